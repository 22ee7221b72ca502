#include "scheduler/store/archive.h"

#include <google/protobuf/unknown_field_set.h>

#include <catch2/catch.hpp>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/random/philox.h"
#include "common/testing/status_matchers.h"

namespace capstan::archive_test {
namespace {

using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

const absl::Time kNoon = absl::FromUnixSeconds(1'700'000'000);

// Saves a value at one moment, loads it at another, and returns the result.
template <typename T>
T Again(const T& value, const Moment& saved, const Moment& loaded) {
  const std::string bytes = EncodeState(saved, [&](auto& archive) { archive(value); });
  T again;
  REQUIRE_OK(DecodeState(bytes, loaded, [&](auto& archive) {
    archive(again);
    return absl::OkStatus();
  }));
  return again;
}

template <typename T>
std::string BytesOf(const T& value) {
  return EncodeState(Moment(), [&](auto& archive) { archive(value); });
}

template <typename T>
absl::Status Read(const std::string& bytes, T& value) {
  return DecodeState(bytes, Moment(), [&](auto& archive) {
    archive(value);
    return absl::OkStatus();
  });
}

// Reads `fields`, which are written by hand, as the one value of a state.
template <typename T>
absl::Status ReadFields(const std::string& fields, T& value) {
  REQUIRE(fields.size() < 128);
  return Read(absl::StrCat("\x0a", std::string(1, static_cast<char>(fields.size())), fields),
              value);
}

// Draws of a seed.
struct Draws {
  uint64_t seed;
  uint64_t next = 0;
  uint32_t Below(uint32_t bound) { return PhiloxWord(seed, next++) % bound; }
  // Any number of that type; the bounds and 0 often.
  template <typename T>
  T Number() {
    if (const uint32_t kind = Below(4); kind < 3) {
      return kind == 0 ? std::numeric_limits<T>::lowest()
                       : (kind == 1 ? std::numeric_limits<T>::max() : T{});
    }
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(MixKey(seed, next++) >> Below(64));
    } else {
      return static_cast<T>(Below(1000)) / T{7};
    }
  }
  std::string Text() { return std::string(Below(4) == 0 ? Below(20'000) : Below(4), 'x'); }
};

enum class Small : uint8_t { kA, kB = 255 };
constexpr Small LastOf(Small) { return Small::kB; }
enum class Wide { kMinus = -1, kA, kLarge = 1 << 30 };
constexpr Wide FirstOf(Wide) { return Wide::kMinus; }
constexpr Wide LastOf(Wide) { return Wide::kLarge; }

// One of each kind of value.
struct Everything {
  bool flag = false;
  int8_t byte = 0;
  uint16_t half = 0;
  int32_t word = 0;
  uint32_t unsigned_word = 0;
  int64_t number = 0;
  uint64_t unsigned_number = 0;
  Small small = Small::kA;
  Wide wide = Wide::kA;
  double real = 0;
  float single = 0;
  std::string text;
  Rank rank;
  Generation generation;
  Range range;
  ShardKey key;
  absl::Duration duration;
  std::vector<int64_t> numbers;
  std::vector<std::string> texts;
  std::deque<Range> ranges;
  std::set<Rank> ranks;
  std::map<std::string, std::vector<Range>> map;
  std::pair<std::string, Term> pair;
  std::tuple<int, std::string, bool> tuple;
  std::optional<std::string> maybe;
  std::optional<std::vector<int>> maybe_list;

  template <typename Archive>
  void serialize(Archive& archive) {
    archive(flag, byte, half, word, unsigned_word, number, unsigned_number, small, wide, real,
            single, text);
    archive(rank, generation, range, key, duration, numbers, texts, ranges, ranks, map, pair, tuple,
            maybe, maybe_list);
  }
  friend bool operator==(const Everything&, const Everything&) = default;
};

Everything Drawn(uint64_t seed) {
  Draws draws{seed};
  Everything all;
  all.flag = draws.Below(2) == 1;
  all.byte = draws.Number<int8_t>();
  all.half = draws.Number<uint16_t>();
  all.word = draws.Number<int32_t>();
  all.unsigned_word = draws.Number<uint32_t>();
  all.number = draws.Number<int64_t>();
  all.unsigned_number = draws.Number<uint64_t>();
  all.small = draws.Below(2) == 0 ? Small::kA : Small::kB;
  all.wide = draws.Below(2) == 0 ? Wide::kMinus : Wide::kLarge;
  all.real = draws.Number<double>();
  all.single = draws.Number<float>();
  all.text = draws.Text();
  all.rank = Rank(draws.Number<int32_t>());
  all.generation = Generation(draws.Number<uint64_t>());
  all.range = {draws.Number<int64_t>(), draws.Number<int64_t>()};
  all.key = {TableId(draws.Number<int32_t>()), ShardId(draws.Number<int32_t>())};
  all.duration = draws.Below(4) == 0 ? absl::InfiniteDuration()
                                     : absl::Nanoseconds(draws.Number<int64_t>() / 2);
  for (uint32_t i = draws.Below(300); i > 0; --i) all.numbers.push_back(draws.Number<int64_t>());
  for (uint32_t i = draws.Below(3); i > 0; --i) all.texts.push_back(draws.Text());
  for (uint32_t i = draws.Below(3); i > 0; --i) all.ranges.push_back({i, draws.Number<int64_t>()});
  for (uint32_t i = draws.Below(3); i > 0; --i) all.ranks.insert(Rank(draws.Number<int32_t>()));
  for (uint32_t i = draws.Below(3); i > 0; --i) all.map[draws.Text()].resize(draws.Below(3));
  all.pair = {draws.Text(), Term(draws.Number<uint64_t>())};
  all.tuple = {draws.Number<int>(), draws.Text(), draws.Below(2) == 1};
  if (draws.Below(2) == 1) all.maybe = draws.Text();
  if (draws.Below(2) == 1) all.maybe_list.emplace(draws.Below(3));
  return all;
}

TEST_CASE("Archive: what happened keeps its date, a limit keeps its rest, never stays never",
          "[scheduler][store]") {
  const Instant saved_now = Instant::FromOrigin(absl::Hours(100));
  const Instant loaded_now = Instant::FromOrigin(absl::Seconds(7));  // The machine was restarted.
  const Moment saved{saved_now, kNoon};
  const Moment loaded{loaded_now, kNoon + absl::Minutes(10)};
  const auto again = [&](Instant instant) { return Again(instant, saved, loaded); };
  CHECK(again(saved_now - absl::Minutes(5)) == loaded_now - absl::Minutes(15));
  CHECK(again(saved_now) == loaded_now - absl::Minutes(10));
  CHECK(again(saved_now + absl::Seconds(3)) == loaded_now + absl::Seconds(3));
  CHECK(again(Instant::InfiniteFuture()) == Instant::InfiniteFuture());
  // The calendar was set back between saving and loading.
  const Moment before{loaded_now, kNoon - absl::Hours(1)};
  CHECK(Again(saved_now, saved, before) == loaded_now);
}

TEST_CASE("Archive: every kind of value comes back equal", "[scheduler][store]") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const Everything saved = Drawn(seed);
    const std::string bytes = BytesOf(saved);
    Everything loaded = Drawn(seed + 1);  // Read() replaces this content.
    REQUIRE_OK(Read(bytes, loaded));
    CHECK(loaded == saved);
    CHECK(BytesOf(loaded) == bytes);
  }
}

// The fields of a message, as protobuf's own parser finds them.
struct Parsed {
  explicit Parsed(const std::string& bytes) { REQUIRE(fields.ParseFromString(bytes)); }
  int field_count() const { return fields.field_count(); }
  const UnknownField& field(int index) const { return fields.field(index); }
  UnknownFieldSet fields;
};

TEST_CASE("Archive: the bytes are protobuf's wire format", "[scheduler][store]") {
  Everything all;
  all.flag = true;
  all.word = -2;
  all.half = 300;
  all.real = 0.5;
  all.single = -1;
  all.text = std::string(200, 'x');  // Its length needs two bytes, the state's three.
  all.texts = {"a", std::string(20'000, 'b'), ""};
  all.map = {{"key", {{1, 2}}}};
  all.maybe_list = std::vector<int>();
  const Parsed state(BytesOf(all));
  REQUIRE(state.field_count() == 1);
  CHECK(state.field(0).number() == 1);
  const Parsed one(state.field(0).length_delimited());
  REQUIRE(one.field_count() == 1);
  const Parsed fields(one.field(0).length_delimited());
  REQUIRE(fields.field_count() == 26);
  for (int i = 0; i < fields.field_count(); ++i) CHECK(fields.field(i).number() == i + 1);
  CHECK(fields.field(0).varint() == 1);
  CHECK(fields.field(2).varint() == 300);
  CHECK(fields.field(3).varint() == uint64_t{0} - 2);
  CHECK(fields.field(9).fixed64() == 0x3FE0000000000000);
  CHECK(fields.field(10).fixed32() == 0xBF800000);
  CHECK(fields.field(11).length_delimited() == all.text);
  const Parsed texts(fields.field(18).length_delimited());
  REQUIRE(texts.field_count() == 3);
  for (int i = 0; i < 3; ++i) {
    CHECK(texts.field(i).number() == 1);
    CHECK(texts.field(i).length_delimited() == all.texts[static_cast<size_t>(i)]);
  }
  const Parsed map(fields.field(21).length_delimited());
  REQUIRE(map.field_count() == 1);
  const Parsed entry(map.field(0).length_delimited());
  REQUIRE(entry.field_count() == 2);
  CHECK(entry.field(0).length_delimited() == "key");
  CHECK(entry.field(1).number() == 2);
  // No value, and a value that is an empty list.
  CHECK(fields.field(24).length_delimited().empty());
  CHECK(fields.field(25).length_delimited() == std::string("\x0a\0", 2));
}

// A struct of two versions. The newer one has more values, as has what it contains.
struct OldPart {
  int64_t a = 1;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(a);
  }
};
struct NewPart : OldPart {
  double b = 0.25;
  std::optional<std::string> c = "c";
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(a);
    archive.Appended(b);
    archive.Appended(c);
  }
};
template <typename Part>
struct OldState {
  std::vector<Part> parts;
  std::string text;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(parts, text);
  }
};
template <typename Part>
struct NewState : OldState<Part> {
  std::vector<int> appended = {7};
  float rate = 3;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(this->parts, this->text);
    archive.Appended(appended, rate);
  }
};

TEST_CASE("Archive: a newer version reads an older one's bytes, what is appended has its default",
          "[scheduler][store]") {
  OldState<OldPart> old;
  old.parts = {{5}, {6}};
  old.text = "old";
  NewState<NewPart> read;
  read.text = "gone";
  REQUIRE_OK(Read(BytesOf(old), read));
  REQUIRE(read.parts.size() == 2);
  CHECK(read.parts[1].a == 6);
  CHECK(read.parts[1].b == 0.25);
  CHECK(read.parts[1].c == "c");
  CHECK(read.text == "old");
  CHECK(read.appended == std::vector<int>{7});
  CHECK(read.rate == 3);
}

TEST_CASE("Archive: a field that every version has written is not left out (fuzzed)",
          "[scheduler][store]") {
  const auto refuses = [](auto value, const std::string& fields, const std::string& why) {
    CHECK_STATUS(ReadFields(fields, value), absl::StatusCode::kDataLoss, why);
  };
  refuses(int64_t{7}, "", "field 1: it is missing");
  refuses(Range(), "\x0a\x02\x08\x01", "field 1.2: it is missing");
  refuses(Range(), "\x0a\x02\x10\x01", "field 1.1: it is missing");
  refuses(Instant(), std::string("\x0a\x02\x08\x00", 4), "field 1.2: it is missing");
  refuses(std::pair<int, int>(), std::string("\x0a\x00", 2), "field 1.1: it is missing");
  refuses(std::map<int, int>(), "\x0a\x04\x0a\x02\x08\x01", "field 1.1.2: it is missing");
  refuses(std::vector<NewPart>(), std::string("\x0a\x02\x0a\x00", 4), "field 1.1.1: it is missing");
  // Appended fields may be missing.
  std::vector<NewPart> parts;
  REQUIRE_OK(ReadFields("\x0a\x04\x0a\x02\x08\x05", parts));
  CHECK(parts.at(0).a == 5);
  CHECK(parts.at(0).b == 0.25);
  // An old state in which a field that it should have is missing.
  NewState<NewPart> state;
  refuses(state, std::string("\x0a\x02\x0a\x00", 4), "field 1.2: it is missing");
}

TEST_CASE("Archive: fields of a newer version are passed over", "[scheduler][store]") {
  NewState<NewPart> now;
  now.parts.resize(3);
  now.parts[2].a = 9;
  now.text = "new";
  OldState<OldPart> read;
  REQUIRE_OK(Read(BytesOf(now), read));
  REQUIRE(read.parts.size() == 3);
  CHECK(read.parts[2].a == 9);
  CHECK(read.text == "new");
}

TEST_CASE("Archive: bytes that end early and bytes that go on are refused", "[scheduler][store]") {
  const std::string bytes =
      EncodeState(Moment(), [](auto& archive) { archive(std::string("hello"), int64_t{5}); });
  const auto read = [&](const std::string& from) {
    return DecodeState(from, Moment(), [](auto& archive) {
      std::string text;
      int64_t number = 0;
      archive(text, number);
      return absl::OkStatus();
    });
  };
  REQUIRE_OK(read(bytes));
  for (size_t size = 0; size < bytes.size(); ++size) {
    CHECK_STATUS(read(bytes.substr(0, size)), absl::StatusCode::kDataLoss, "cannot be read");
  }
  CHECK_STATUS(read(bytes + "x"), absl::StatusCode::kDataLoss, "follows its end");
  CHECK_STATUS(read(std::string("\1\1\0\0\0", 5)), absl::StatusCode::kDataLoss,
               "perhaps an earlier release");
}

TEST_CASE("Archive: what does not fit is named, and the value stays as it was",
          "[scheduler][store]") {
  const auto refuses = [](auto value, const std::string& fields, const std::string& why) {
    const auto before = value;
    CHECK_STATUS(ReadFields(fields, value), absl::StatusCode::kDataLoss, why);
    CHECK(value == before);
  };
  const std::string minus_one = "\x08" + std::string(9, '\xff') + "\x01";
  refuses(int32_t{7}, "\x08\x80\x80\x80\x80\x08",
          "field 1: 2147483648, expected a number in [-2147483648, 2147483647]");
  refuses(uint32_t{7}, minus_one, "field 1: 18446744073709551615, expected a number in [0, 429");
  refuses(Rank(7), "\x08\x80\x80\x80\x80\x08", "2147483648, expected");
  refuses(true, "\x08\x02", "field 1: 2, expected a number in [0, 1]");
  refuses(Small::kB, "\x08\x80\x02", "field 1: 256, expected a number in [0, 255]");
  refuses(int64_t{7}, "\x08" + std::string(10, '\xff') + "\x01", "more than 64 bits");
  refuses(int64_t{7}, "\x08" + std::string(9, '\xff') + "\x02", "more than 64 bits");
  refuses(int64_t{7}, "\x08\x80", "ends early");
  refuses(int64_t{7}, "\x0a\x01x", "field 1: wire type 2, expected 0");
  refuses(int64_t{7},
          "\x0d"
          "1234",
          "field 1: wire type 5, expected 0");
  refuses(std::string("a"), "\x08\x01", "field 1: wire type 0, expected 2");
  refuses(std::vector<int>{}, "\x08\x01", "field 1: wire type 0, expected 2");
  refuses(1.0,
          "\x0d"
          "1234",
          "field 1: wire type 5, expected 1");
  refuses(1.0,
          "\x09"
          "1234",
          "ends early");
  refuses(1.0f,
          "\x0d"
          "123",
          "ends early");
  refuses(std::string("a"), "\x0a\x03xx", "it has 3 bytes, but only 2 are left");
  refuses(int64_t{7}, "\x0b\x0c", "wire type 3");  // A group.
  refuses(int64_t{7}, std::string("\x00\x01", 2), "number is 0");
  int64_t number = 7;
  // Twice, a field that is not ascending, a group that nobody asked for.
  CHECK_STATUS(ReadFields("\x08\x01\x08\x02", number), absl::StatusCode::kDataLoss, "comes twice");
  CHECK_STATUS(ReadFields("\x08\x01\x13\x14", number), absl::StatusCode::kDataLoss,
               "field 2: wire type 3");
  Range range;
  CHECK_STATUS(ReadFields("\x0a\x06\x08\x01\x10\x02\x08\x02", range), absl::StatusCode::kDataLoss,
               "field 1.1: it comes twice or too late");
  CHECK_STATUS(ReadFields("\x0a\x04\x10\x01\x08\x02", range), absl::StatusCode::kDataLoss,
               "field 1.1: it is missing");
  std::vector<int> numbers;
  CHECK_STATUS(ReadFields(std::string("\x0a\x02\x0a\x00", 4), numbers), absl::StatusCode::kDataLoss,
               "field 1.1: wire type 2");
  std::optional<int> maybe;
  CHECK_STATUS(ReadFields("\x0a\x04\x08\x01\x08\x02", maybe), absl::StatusCode::kDataLoss,
               "expected at most one");
  Instant instant;
  CHECK_STATUS(ReadFields("\x0a\x04\x08\x03\x10\x01", instant), absl::StatusCode::kDataLoss,
               "field 1.1: 3, expected a number in [0, 2]");
}

// An enum of a class, whose functions are friends.
struct HasEnum {
  enum class Kind { kOne = 1, kTwo };
  friend constexpr Kind FirstOf(Kind) { return Kind::kOne; }
  friend constexpr Kind LastOf(Kind) { return Kind::kTwo; }
  Kind kind = Kind::kOne;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(kind);
  }
};

TEST_CASE("Archive: a number that an enum does not have is refused", "[scheduler][store]") {
  const auto read = [](int64_t number, HasEnum& value) {
    return Read(BytesOf(std::pair(number, 0)), value);
  };
  HasEnum value;
  REQUIRE_OK(read(2, value));
  CHECK(value.kind == HasEnum::Kind::kTwo);
  for (const int64_t number : {int64_t{0}, int64_t{3}, int64_t{-1}, INT64_MAX, INT64_MIN}) {
    CHECK_STATUS(read(number, value), absl::StatusCode::kDataLoss,
                 absl::StrCat("field 1.1: ", number, ", expected a number in [1, 2]"));
    CHECK(value.kind == HasEnum::Kind::kTwo);
  }
  Wide wide = Wide::kA;
  CHECK_STATUS(Read(BytesOf(int64_t{-2}), wide), absl::StatusCode::kDataLoss,
               "field 1: -2, expected a number in [-1, 1073741824]");
}

TEST_CASE("Archive: lengths above what is there are refused before anything is allocated",
          "[scheduler][store]") {
  for (const std::string length : {"\xff\xff\xff\xff\x0f", "\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
                                   "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"}) {
    std::vector<std::string> texts;
    CHECK_STATUS(ReadFields("\x0a" + length, texts), absl::StatusCode::kDataLoss, "are left");
    CHECK_STATUS(Read("\x0a" + length, texts), absl::StatusCode::kDataLoss, "are left");
    const std::string inner = "\x0a" + length;
    CHECK_STATUS(
        ReadFields(absl::StrCat("\x0a", std::string(1, static_cast<char>(inner.size())), inner),
                   texts),
        absl::StatusCode::kDataLoss, "field 1.1: it has");
    CHECK(texts.capacity() <= 1);
  }
}

TEST_CASE("Archive: messages in messages, deeper than any struct, cost no stack",
          "[scheduler][store]") {
  std::string nested;
  for (int depth = 0; depth < 20'000; ++depth) {
    // The message is nested as the field 9 of another one, which no reader here knows.
    OutputArchive archive{Moment()};
    archive(nested);
    nested = std::move(archive).Finish();
    nested[0] = '\x4a';
    if (nested.size() > 100'000) break;
  }
  NewState<NewPart> read;
  CHECK_STATUS(Read(nested, read), absl::StatusCode::kDataLoss, "does not begin");
  // Behind what the reader knows.
  const std::string behind =
      EncodeState(Moment(), [&](auto& archive) { archive(read, int64_t{1}, nested); });
  REQUIRE_OK(Read(behind, read));
}

TEST_CASE("Archive: flipped bits and cut bytes never crash, and what is read can be written",
          "[scheduler][store]") {
  int refused = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Draws draws{seed + 1000};
    Everything saved = Drawn(seed);
    saved.text.resize(std::min<size_t>(saved.text.size(), 30));
    const std::string bytes = BytesOf(saved);
    for (int i = 0; i < 500; ++i) {
      std::string damaged = bytes;
      for (uint32_t flips = 1 + draws.Below(3); flips > 0; --flips) {
        char& byte = damaged[draws.Below(static_cast<uint32_t>(damaged.size()))];
        byte = static_cast<char>(byte ^ (1 << draws.Below(8)));
      }
      if (draws.Below(4) == 0) damaged.resize(draws.Below(static_cast<uint32_t>(damaged.size())));
      Everything loaded;
      const absl::Status status = Read(damaged, loaded);
      if (status.ok()) {
        const std::string written = BytesOf(loaded);  // A NaN differs from itself.
        REQUIRE_OK(Read(written, loaded));
        CHECK(BytesOf(loaded) == written);
        continue;
      }
      ++refused;
      REQUIRE(status.code() == absl::StatusCode::kDataLoss);
    }
  }
  CHECK(refused > 3000);
}

TEST_CASE("Archive: random bytes never crash", "[scheduler][store]") {
  Draws draws{5};
  for (int i = 0; i < 20'000; ++i) {
    std::string fields;
    for (uint32_t size = draws.Below(100); size > 0; --size) {
      fields.push_back(static_cast<char>(draws.Below(draws.Below(2) == 0 ? 256 : 32)));
    }
    Everything loaded;
    Read(absl::StrCat("\x0a", std::string(1, static_cast<char>(fields.size() + 2)), "\x0a",
                      std::string(1, static_cast<char>(fields.size())), fields),
         loaded)
        .IgnoreError();
  }
}

TEST_CASE("Archive: what a forged size makes a container throw is damage, too", "[scheduler]") {
  const std::string bytes = EncodeState(Moment(), [](auto& archive) { archive(int64_t{-1}); });
  const auto read = [](auto& archive) {
    int64_t size = 0;
    archive(size);
    const std::vector<int> sized(static_cast<size_t>(size));
    return absl::OkStatus();
  };
  CHECK_STATUS(DecodeState(bytes, Moment(), read), absl::StatusCode::kDataLoss, "cannot be read");
}

}  // namespace
}  // namespace capstan::archive_test
