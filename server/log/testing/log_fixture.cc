#include "server/log/testing/log_fixture.h"

#include <algorithm>
#include <deque>

#include "absl/strings/str_cat.h"
#include "common/random/philox.h"
#include "common/status/status_macros.h"
#include "common/storage/crc32c.h"

namespace capstan::server::testing {
namespace {

constexpr int kShards = 4;

std::string Bytes(uint64_t salt, size_t count) {
  std::string bytes(count, '\0');
  uint64_t state = MixKey(salt, count);
  for (char& byte : bytes) {
    state = state * 6364136223846793005 + 1442695040888963407;
    byte = static_cast<char>(state >> 56);
  }
  return bytes;
}

std::string Text(const v1::ShardSnapshot& snapshot) {
  return absl::StrCat("base ", snapshot.position(), ":", Crc32cOf(snapshot.values()), " ");
}

std::string Text(const v1::ShardRecord& record) {
  return absl::StrCat(record.position(), ":", Crc32cOf(record.values()), " ");
}

}  // namespace

v1::ShardSnapshot FixtureSnapshot(int64_t position, uint64_t salt, size_t bytes) {
  v1::ShardSnapshot snapshot;
  snapshot.set_position(position);
  snapshot.set_values(Bytes(salt, bytes));
  return snapshot;
}

v1::ShardRecord FixtureRecord(int64_t position, uint64_t salt, size_t bytes) {
  v1::ShardRecord record;
  record.set_position(position);
  record.mutable_update()->set_version(position - 1);
  record.set_values(Bytes(salt, bytes));
  return record;
}

absl::StatusOr<LogState> ReadState(const JobLog& log) {
  LogState state;
  for (const StoredState& stored : log.Stored()) {
    std::string& text = state[stored.shard];
    text = absl::StrCat("term ", stored.term.value(), " ");
    int64_t position = -1;
    CAPSTAN_RETURN_IF_ERROR(log.Read(
        stored.shard,
        [&](const v1::ShardSnapshot& snapshot) {
          text += Text(snapshot);
          position = snapshot.position();
          return absl::OkStatus();
        },
        [&](const v1::ShardRecord& record) {
          text += Text(record);
          position = record.position();
          return absl::OkStatus();
        }));
    if (position != stored.position.value()) {
      return absl::InternalError(
          absl::StrCat("read up to ", position, ", stored says ", stored.position.value()));
    }
  }
  return state;
}

LogFixture::LogFixture(uint64_t seed, int steps) {
  uint64_t draws = 0;
  const auto random = [&](uint64_t below) { return PhiloxWord(seed, draws++) % below; };
  LogState state;
  std::map<ShardKey, std::pair<Term, int64_t>> tails;
  std::map<ShardKey, int64_t> bases;
  states_.push_back(state);
  for (int i = 0; i < steps; ++i) {
    // Shard 3 is busy and shard 0 hardly ever is, so that cleaning copies the frames of shard 0.
    const uint64_t pick = random(16);
    const int32_t index = pick < 1 ? 0 : pick < 4 ? 1 : pick < 8 ? 2 : kShards - 1;
    Step step{.shard = {TableId(index / 3), ShardId(index % 3)},
              .salt = seed * 1'000'003 + static_cast<uint64_t>(i),
              .bytes = random(120),
              .commit = random(3) == 0 || i == steps - 1};
    const auto tail = tails.find(step.shard);
    const uint64_t kind = random(20);
    if (tail != tails.end() && kind == 0) {
      step.kind = Kind::kForget;
      tails.erase(tail);
      state.erase(step.shard);
    } else if (tail == tails.end() || kind < 3) {
      // The term is the same or a later one; the position may be lower (an older checkpoint).
      step.kind = Kind::kBegin;
      step.bytes += 100;
      step.term =
          Term(tail == tails.end() ? 1 + random(5) : tail->second.first.value() + random(2));
      step.position = static_cast<int64_t>(random(50));
      tails[step.shard] = {step.term, step.position};
      bases[step.shard] = step.position;
      state[step.shard] = absl::StrCat("term ", step.term.value(), " ",
                                       Text(FixtureSnapshot(step.position, step.salt, step.bytes)));
    } else if (kind < 5) {
      step.kind = Kind::kContinue;
      step.term = tail->second.first = Term(tail->second.first.value() + 1 + random(2));
      const int64_t end = tail->second.second;
      step.position = std::max(bases[step.shard], end - static_cast<int64_t>(random(3)));
      tail->second.second = step.position;
      std::string& text = state[step.shard];
      for (int64_t gone = step.position; gone < end; ++gone) {
        text.erase(text.rfind(' ', text.size() - 2) + 1);
      }
      text = absl::StrCat("term ", step.term.value(), text.substr(text.find(' ', 5)));
    } else {
      step.kind = Kind::kAppend;
      step.term = tail->second.first;
      step.position = ++tail->second.second;
      state[step.shard] += Text(FixtureRecord(step.position, step.salt, step.bytes));
    }
    steps_.push_back(step);
    states_.push_back(state);
  }
}

int LogFixture::Run(JobLog& log, int* tried) const {
  int committed = 0;
  *tried = 0;
  // The log borrows these until it commits.
  std::deque<v1::ShardSnapshot> snapshots;
  std::deque<v1::ShardRecord> records;
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Kind::kBegin:
        log.Begin(step.shard, step.term,
                  snapshots.emplace_back(FixtureSnapshot(step.position, step.salt, step.bytes)));
        break;
      case Kind::kAppend:
        log.Append(step.shard, step.term,
                   records.emplace_back(FixtureRecord(step.position, step.salt, step.bytes)));
        break;
      case Kind::kContinue:
        log.Continue(step.shard, step.term, Position(step.position));
        break;
      case Kind::kForget:
        log.Forget(step.shard);
        break;
    }
    ++*tried;
    if (!step.commit) continue;
    if (!log.Commit().ok()) return committed;
    committed = *tried;
    snapshots.clear();
    records.clear();
  }
  return committed;
}

}  // namespace capstan::server::testing
