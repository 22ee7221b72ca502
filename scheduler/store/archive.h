// Archives: convert state to bytes and back. The bytes are in protobuf's wire format, so that a
// newer Capstan reads what an older one has written.
//
// A struct or class supports them by a public member template:
//
//   template <typename Archive>
//   void serialize(Archive& archive) { archive(a, b); }
//
// so that the cores need not know the format. This file has the archives, and the functions for
// the standard library's types, Abseil's and those of common/types. A struct is a message. Its
// values are the fields 1, 2, 3..., in the order in which serialize() gives them to the archive,
// over all its calls.
//
//   bool, integers, enums, StrongInt, Duration (nanoseconds)   varint, a negative one as int64
//   double, float                                              fixed64, fixed32
//   string                                                     its bytes
//   struct, pair, tuple, Instant                               a message
//   vector, deque, set, map, optional                          a message of many fields 1; an entry
//                                                              of a map is a pair
//
// An enum has functions beside it, found by the type of their argument, that say which numbers are
// valid: those from FirstOf (0 if it is missing) to LastOf. Loading refuses others.
//
//   constexpr JobState LastOf(JobState) { return JobState::kFailed; }
//
// Every value is written, an empty container, too. So a field can only be missing if an older
// Capstan wrote the bytes, and the value was appended since: those are the values of Appended().
// Where one of them is missing, loading leaves the value as it was; any other missing field is
// refused, since no writer leaves it out. Fields that a message has beyond those that serialize()
// names are passed over.
//
// HOW TO CHANGE A STRUCT. Append the new value behind all others of its serialize(), by
//
//   archive.Appended(c);
//
// with a default that is right for the states of older versions, and raise kFieldsVersion
// (schema_version.h, which says what else has a version). Never reorder values and never change a
// value's kind. Never remove one: where a member is gone, archive a local variable of its type in
// its place. What a base class or another object contributes is one value (WorkLeases::Durable), so
// that both can grow. A value that is archived only sometimes must stay the last one. When
// kSchemaVersion grows, no older state is read any more, and Appended(c) becomes archive(c).
//
// An Instant has no meaning in another process. A past Instant is written as calendar time, so an
// event keeps its date. A future Instant is written as the time left, so a deadline keeps its
// remaining time. Loading never turns a future Instant into a past one, or the reverse.
// Thread safety: thread-compatible; functions of their arguments.
#ifndef CAPSTAN_SCHEDULER_STORE_ARCHIVE_H_
#define CAPSTAN_SCHEDULER_STORE_ARCHIVE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/time/instant.h"
#include "common/types/ids.h"

namespace capstan {

// The two clocks at one moment, when something is saved or loaded.
struct Moment {
  Instant now;
  absl::Time wall;  // Only for dates that users see; no decision depends on it.
};

// The wire types of protobuf that are written; others are refused.
enum class WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

// Writes the values that it is called with as the fields of one message.
class OutputArchive final {
 public:
  using is_loading = std::false_type;

  explicit OutputArchive(const Moment& at);

  template <typename... Values>
  void operator()(const Values&... values) {
    (Field(values), ...);
  }
  template <typename... Values>
  void Appended(const Values&... values) {
    (Field(values), ...);
  }
  std::string Finish() &&;  // Returns the bytes.

  const Moment moment;

 private:
  static constexpr int64_t kInfiniteNanoseconds = std::numeric_limits<int64_t>::max();

  template <typename Value>
  void Field(const Value& value) {
    ++number_;
    Save(value);
  }

  // Each writes the field `number_`.
  template <typename Value>
  void Save(const Value& value) {
    if constexpr (std::is_enum_v<Value>) {
      Save(static_cast<std::underlying_type_t<Value>>(value));
    } else if constexpr (std::is_integral_v<Value> && std::is_signed_v<Value>) {
      PutVarint(static_cast<uint64_t>(int64_t{value}));
    } else if constexpr (std::is_integral_v<Value>) {
      PutVarint(uint64_t{value});
    } else {
      // serialize() of an output archive does not change the value.
      Message([&] { SerializeWith(const_cast<Value&>(value)); });
    }
  }
  void Save(double value);
  void Save(float value);
  void Save(const std::string& value);
  void Save(const absl::Duration& value);
  template <typename Tag, typename Value>
  void Save(const StrongInt<Tag, Value>& value) {
    Save(value.value());
  }
  template <typename Value>
  void Save(const std::optional<Value>& value) {
    Message([&] {
      if (value) Field(*value);
    });
  }
  template <typename Value>
  void Save(const std::vector<Value>& values) {
    SaveAll(values);
  }
  template <typename Value>
  void Save(const std::deque<Value>& values) {
    SaveAll(values);
  }
  template <typename Value>
  void Save(const std::set<Value>& values) {
    SaveAll(values);
  }
  template <typename Key, typename Value>
  void Save(const std::map<Key, Value>& values) {
    SaveAll(values);
  }
  template <typename Values>
  void SaveAll(const Values& values) {
    Message([&] {
      for (const auto& value : values) {
        number_ = 0;
        Field(value);
      }
    });
  }
  template <typename Value>
  void SerializeWith(Value& value) {
    if constexpr (requires { value.serialize(*this); }) {
      value.serialize(*this);
    } else {
      serialize(*this, value);
    }
  }

  // Writes a message with the fields that `write()` writes.
  template <typename Write>
  void Message(Write write) {
    const uint32_t number = number_;
    const size_t begin = BeginMessage();
    write();
    EndMessage(begin);
    number_ = number;
  }
  size_t BeginMessage();  // Returns the place of the message's length.
  void EndMessage(size_t begin);
  void PutTag(WireType type);
  void PutVarint(uint64_t value);
  void AppendVarint(uint64_t value);
  void AppendFixed(uint64_t bits, int bytes);

  std::string bytes_;
  uint32_t number_ = 0;  // The number of the present message's last field.
};

// Reads the fields of one message into the values that it is called with. After an error it leaves
// all later values as they are. The bytes may be anything: memory is bounded by their number, times
// the size of an empty element.
class InputArchive final {
 public:
  using is_loading = std::true_type;

  // `bytes` were returned by OutputArchive::Finish, and must outlive the archive.
  InputArchive(const Moment& at, absl::string_view bytes);
  InputArchive(const InputArchive&) = delete;
  InputArchive& operator=(const InputArchive&) = delete;

  // Errors: a field is missing.
  template <typename... Values>
  void operator()(Values&... values) {
    (Field(values), ...);
  }
  // The same for values that states of older versions lack: those stay as they are.
  template <typename... Values>
  void Appended(Values&... values) {
    (FieldIfAny(values), ...);
  }
  bool ok() const { return status_.ok(); }
  // Reads to the end. Errors: kDataLoss  the first error, with the path of the field's numbers.
  absl::Status Finish();
  void Fail(const std::string& why);  // An error at the present field. Only the first one counts.

  const Moment moment;

 private:
  static constexpr int64_t kInfiniteNanoseconds = std::numeric_limits<int64_t>::max();

  // A message that is being read.
  struct Level {
    Level* around = nullptr;  // Null: the outermost one.
    const char* end = nullptr;
    uint32_t asked = 0;   // The number of the last field that was wanted.
    uint32_t number = 0;  // The field whose tag was read, but not its value. 0: none.
    WireType type = WireType::kVarint;
  };

  template <typename Value>
  void Field(Value& value) {
    if (!FieldIfAny(value)) FailMissing();
  }
  // False: it is missing, or there was an error.
  template <typename Value>
  bool FieldIfAny(Value& value) {
    if (!Find(level_->asked + 1)) return false;
    Load(value);
    return true;
  }

  // Each reads the value of the field that was found.
  template <typename Value>
  void Load(Value& value) {
    if constexpr (std::is_enum_v<Value>) {
      int64_t first = 0;
      if constexpr (requires { FirstOf(value); }) first = static_cast<int64_t>(FirstOf(value));
      value = static_cast<Value>(
          Signed(static_cast<int64_t>(value), first, static_cast<int64_t>(LastOf(value))));
    } else if constexpr (std::is_same_v<Value, bool>) {
      value = Unsigned(value, 1) != 0;
    } else if constexpr (std::is_integral_v<Value> && std::is_signed_v<Value>) {
      value = static_cast<Value>(
          Signed(value, std::numeric_limits<Value>::min(), std::numeric_limits<Value>::max()));
    } else if constexpr (std::is_integral_v<Value>) {
      value = static_cast<Value>(Unsigned(value, std::numeric_limits<Value>::max()));
    } else {
      Message([&] {
        if constexpr (requires { value.serialize(*this); }) {
          value.serialize(*this);
        } else {
          serialize(*this, value);
        }
      });
    }
  }
  void Load(double& value);
  void Load(float& value);
  void Load(std::string& value);
  void Load(absl::Duration& value);
  template <typename Tag, typename Value>
  void Load(StrongInt<Tag, Value>& value) {
    Value number = value.value();
    Load(number);
    value = StrongInt<Tag, Value>(number);
  }
  template <typename Value>
  void Load(std::optional<Value>& value) {
    value.reset();
    LoadAll([&] {
      if (value) return Fail("two values, expected at most one");
      Load(value.emplace(Value{}));  // Clang 14 makes no aggregate of no arguments here.
    });
  }
  template <typename Value>
  void Load(std::vector<Value>& values) {
    values.clear();
    LoadAll([&] { Load(values.emplace_back()); });
  }
  template <typename Value>
  void Load(std::deque<Value>& values) {
    values.clear();
    LoadAll([&] { Load(values.emplace_back()); });
  }
  template <typename Value>
  void Load(std::set<Value>& values) {
    values.clear();
    LoadAll([&] {
      Value value{};
      Load(value);
      values.insert(values.end(), std::move(value));
    });
  }
  template <typename Key, typename Value>
  void Load(std::map<Key, Value>& values) {
    values.clear();
    LoadAll([&] {
      Key key{};
      Value value{};
      Message([&] { (*this)(key, value); });
      values.emplace_hint(values.end(), std::move(key), std::move(value));
    });
  }
  // Reads a message of fields 1: calls `load` for each.
  template <typename LoadOne>
  void LoadAll(LoadOne load) {
    Message([&] {
      while (Find(1)) load();
    });
  }

  // Reads a message: `read()` asks for its fields, in ascending order.
  template <typename Read>
  void Message(Read read) {
    Level level;
    if (!Enter(level)) return;
    read();
    Leave();
  }
  bool Enter(Level& level);  // False: it failed.
  void Leave();
  // True if the present message's next field has this number. Its value must then be loaded.
  // REQUIRES: a number not below the last one.
  bool Find(uint32_t number);
  void FailMissing();  // The present message lacks the field that it was asked for.
  bool ReadTag();      // False at the end of the message.
  bool ReadVarint(uint64_t& value);
  bool ReadSize(size_t& size);
  uint64_t ReadFixed(WireType type, size_t bytes, uint64_t fallback);
  // Takes the value that was found. False: it has another wire type.
  bool Take(WireType type);
  void Pass();  // Skips the value that was found.
  // Each returns the value that was found, or, if it is no such number, `fallback`.
  int64_t Signed(int64_t fallback, int64_t min, int64_t max);
  uint64_t Unsigned(uint64_t fallback, uint64_t max);
  size_t left() const { return static_cast<size_t>(level_->end - position_); }

  const char* position_;
  Level outermost_;
  Level state_;  // The message in `outermost_` that has the values.
  Level* level_ = &outermost_;
  absl::Status status_;
};

// Returns the bytes that `write(archive)` writes.
template <typename Write>
std::string EncodeState(const Moment& moment, Write write) {
  OutputArchive archive(moment);
  write(archive);
  return std::move(archive).Finish();
}

// Runs `read(archive)`, which returns a Status, on `bytes`.
// Errors: kDataLoss  the bytes are damaged, end early, or something follows their end.
//         And those of `read`. The objects that were read are then in an undefined state.
template <typename Read>
absl::Status DecodeState(const std::string& bytes, const Moment& moment, Read read) {
  InputArchive archive(moment, bytes);
  // If the bytes are damaged, an error of `read` is only a consequence, and the archive's error
  // counts. If `read` fails by itself, unread bytes may follow, and its own error counts.
  try {
    const absl::Status status = read(archive);
    return archive.ok() && !status.ok() ? status : archive.Finish();
  } catch (const std::exception& error) {  // A forged value was the size of a container.
    return absl::DataLossError(absl::StrCat("cannot be read: ", error.what()));
  }
}

// ---------------------------------------------------------------- messages

template <typename Archive>
void serialize(Archive& archive, Range& range) {
  archive(range.begin, range.end);
}

template <typename Archive>
void serialize(Archive& archive, ShardKey& key) {
  archive(key.table, key.shard);
}

template <typename Archive, typename First, typename Second>
void serialize(Archive& archive, std::pair<First, Second>& pair) {
  archive(pair.first, pair.second);
}

template <typename Archive, typename... Values>
void serialize(Archive& archive, std::tuple<Values...>& tuple) {
  std::apply([&archive](auto&... values) { archive(values...); }, tuple);
}

enum class InstantKind : uint8_t { kPast, kFuture, kInfinite };
constexpr InstantKind LastOf(InstantKind) { return InstantKind::kInfinite; }

inline void serialize(OutputArchive& archive, Instant& instant) {
  const absl::Duration ahead = instant - archive.moment.now;
  if (instant == Instant::InfiniteFuture()) {
    archive(InstantKind::kInfinite, int64_t{0});
  } else if (ahead > absl::ZeroDuration()) {
    archive(InstantKind::kFuture, absl::ToInt64Nanoseconds(ahead));
  } else {
    archive(InstantKind::kPast, absl::ToUnixNanos(archive.moment.wall + ahead));
  }
}

inline void serialize(InputArchive& archive, Instant& instant) {
  const Moment& loaded = archive.moment;
  InstantKind kind = InstantKind::kPast;
  int64_t nanoseconds = 0;
  archive(kind, nanoseconds);
  switch (kind) {
    case InstantKind::kInfinite:
      instant = Instant::InfiniteFuture();
      return;
    case InstantKind::kFuture:
      instant = loaded.now + absl::Nanoseconds(nanoseconds);
      return;
    case InstantKind::kPast:
      instant = loaded.now +
                std::min(absl::FromUnixNanos(nanoseconds) - loaded.wall, absl::ZeroDuration());
      return;
  }
}

}  // namespace capstan

#endif  // CAPSTAN_SCHEDULER_STORE_ARCHIVE_H_
