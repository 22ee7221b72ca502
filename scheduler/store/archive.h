// Archives: convert state to bytes and back, with cereal.
//
// A struct or class supports them by a public member template (the name is cereal's):
//
//   template <typename Archive>
//   void serialize(Archive& archive) { archive(a, b); }
//
// so that the cores need not know cereal. This file has the archives, and the functions for
// Capstan's and Abseil's types. The bytes are the same on every machine; they carry no names and no
// versions (SqliteStore::kSchemaVersion is the version of all).
//
// An Instant has no meaning in another process. A past Instant is written as calendar time, so an
// event keeps its date. A future Instant is written as the time left, so a deadline keeps its
// remaining time. Loading never turns a future Instant into a past one, or the reverse.
// Thread safety: functions of their arguments.
#ifndef CAPSTAN_SCHEDULER_STORE_ARCHIVE_H_
#define CAPSTAN_SCHEDULER_STORE_ARCHIVE_H_

#include <algorithm>
#include <cereal/archives/portable_binary.hpp>
#include <cereal/types/deque.hpp>
#include <cereal/types/optional.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/tuple.hpp>
#include <cereal/types/utility.hpp>
#include <cereal/types/vector.hpp>
#include <cstdint>
#include <exception>
#include <limits>
#include <sstream>
#include <string>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/time/instant.h"
#include "common/types/ids.h"

namespace capstan {

// The two clocks at one moment, when something is saved or loaded.
struct Moment {
  Instant now;
  absl::Time wall;  // Only for dates that users see; no decision depends on it.
};

class OutputArchive final : public cereal::PortableBinaryOutputArchive {
 public:
  OutputArchive(const Moment& at, std::ostream& bytes)
      : cereal::PortableBinaryOutputArchive(bytes), moment(at) {}
  const Moment moment;
};

class InputArchive final : public cereal::PortableBinaryInputArchive {
 public:
  InputArchive(const Moment& at, std::istream& bytes)
      : cereal::PortableBinaryInputArchive(bytes), moment(at) {}
  const Moment moment;
};

// Returns the bytes that `write(archive)` writes.
template <typename Write>
std::string EncodeState(const Moment& moment, Write write) {
  std::ostringstream bytes;
  {
    OutputArchive archive(moment, bytes);
    write(archive);
  }
  return std::move(bytes).str();
}

// Runs `read(archive)`, which returns a Status, on `bytes`.
// Errors: kDataLoss  the bytes end early, or have unread bytes at the end.   And those of `read`.
//         The objects that were read are then in an undefined state.
template <typename Read>
absl::Status DecodeState(const std::string& bytes, const Moment& moment, Read read) {
  std::istringstream stream(bytes);
  try {
    InputArchive archive(moment, stream);
    if (absl::Status status = read(archive); !status.ok()) return status;
  } catch (const std::exception& error) {
    return absl::DataLossError(absl::StrCat("cannot be read: ", error.what()));
  }
  if (stream.peek() == std::istringstream::traits_type::eof()) return absl::OkStatus();
  return absl::DataLossError("something follows its end");
}

// ---------------------------------------------------------------- Capstan's types

template <typename Archive, typename Tag, typename Value>
void save(Archive& archive, const StrongInt<Tag, Value>& number) {
  archive(number.value());
}

template <typename Archive, typename Tag, typename Value>
void load(Archive& archive, StrongInt<Tag, Value>& number) {
  Value value = 0;
  archive(value);
  number = StrongInt<Tag, Value>(value);
}

template <typename Archive>
void serialize(Archive& archive, Range& range) {
  archive(range.begin, range.end);
}

template <typename Archive>
void serialize(Archive& archive, ShardKey& key) {
  archive(key.table, key.shard);
}

enum class InstantKind : uint8_t { kPast, kFuture, kInfinite };

// cereal passes these functions the base classes of the archives above, hence the casts.
inline void save(cereal::PortableBinaryOutputArchive& archive, const Instant& instant) {
  const Moment& saved = dynamic_cast<const OutputArchive&>(archive).moment;
  const absl::Duration ahead = instant - saved.now;
  if (instant == Instant::InfiniteFuture()) {
    archive(InstantKind::kInfinite, int64_t{0});
  } else if (ahead > absl::ZeroDuration()) {
    archive(InstantKind::kFuture, absl::ToInt64Nanoseconds(ahead));
  } else {
    archive(InstantKind::kPast, absl::ToUnixNanos(saved.wall + ahead));
  }
}

inline void load(cereal::PortableBinaryInputArchive& archive, Instant& instant) {
  const Moment& loaded = dynamic_cast<const InputArchive&>(archive).moment;
  InstantKind kind = InstantKind::kPast;
  int64_t nanoseconds = 0;
  archive(kind, nanoseconds);
  if (kind == InstantKind::kInfinite) {
    instant = Instant::InfiniteFuture();
  } else if (kind == InstantKind::kFuture) {
    instant = loaded.now + absl::Nanoseconds(nanoseconds);
  } else {
    const absl::Duration ahead = absl::FromUnixNanos(nanoseconds) - loaded.wall;
    instant = loaded.now + std::min(ahead, absl::ZeroDuration());
  }
}

}  // namespace capstan

// ---------------------------------------------------------------- Abseil's types

namespace cereal {

constexpr int64_t kInfiniteNanoseconds = std::numeric_limits<int64_t>::max();

template <typename Archive>
void save(Archive& archive, const absl::Duration& duration) {
  const bool infinite = duration == absl::InfiniteDuration();
  archive(infinite ? kInfiniteNanoseconds : absl::ToInt64Nanoseconds(duration));
}

template <typename Archive>
void load(Archive& archive, absl::Duration& duration) {
  int64_t nanoseconds = 0;
  archive(nanoseconds);
  const bool infinite = nanoseconds == kInfiniteNanoseconds;
  duration = infinite ? absl::InfiniteDuration() : absl::Nanoseconds(nanoseconds);
}

template <typename Archive, typename Key, typename Value>
void save(Archive& archive, const absl::btree_map<Key, Value>& map) {
  archive(make_size_tag(static_cast<size_type>(map.size())));
  for (const auto& [key, value] : map) archive(key, value);
}

template <typename Archive, typename Key, typename Value>
void load(Archive& archive, absl::btree_map<Key, Value>& map) {
  size_type size = 0;
  archive(make_size_tag(size));
  map.clear();
  for (size_type i = 0; i < size; ++i) {
    Key key;
    Value value;
    archive(key, value);
    map.emplace_hint(map.end(), std::move(key), std::move(value));
  }
}

template <typename Archive, typename Key>
void save(Archive& archive, const absl::btree_set<Key>& set) {
  archive(make_size_tag(static_cast<size_type>(set.size())));
  for (const Key& key : set) archive(key);
}

template <typename Archive, typename Key>
void load(Archive& archive, absl::btree_set<Key>& set) {
  size_type size = 0;
  archive(make_size_tag(size));
  set.clear();
  for (size_type i = 0; i < size; ++i) {
    Key key;
    archive(key);
    set.insert(set.end(), std::move(key));
  }
}

}  // namespace cereal

#endif  // CAPSTAN_SCHEDULER_STORE_ARCHIVE_H_
