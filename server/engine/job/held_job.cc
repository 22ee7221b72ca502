#include "server/engine/job/held_job.h"

#include <algorithm>
#include <set>
#include <utility>

#include "server/engine/job/call_sink.h"

namespace capstan::server {

HeldJob::HeldJob(Options options, std::shared_ptr<const ShardFactory> factory)
    : state_(
          std::move(options), std::move(factory), [this] { return weak_from_this(); },
          [this](const ShardKey& key) { return captures_.CaptureAll(key); }),
      commits_(&state_),
      calls_(&state_, &commits_),
      replica_calls_(&state_, &commits_),
      snapshot_calls_(&state_, &commits_),
      captures_(&state_, [this](const absl::Status& status) { Fail(status); }),
      assignment_(&state_, &commits_) {}

void HeldJob::Fail(const absl::Status& status) {
  JobEffects effects;
  {
    absl::MutexLock lock(&state_.mutex);
    if (!state_.failure.ok()) return;
    state_.failure = status;
    EndAllLocked(status, &effects.ended);
    effects.report = true;
  }
  commits_.Perform(&effects);
}

void HeldJob::EndAllLocked(const absl::Status& status, EndedCalls* ended) {
  for (const JobState::CallId call : state_.calls.All()) state_.EndLocked(call, status, ended);
  for (const auto& [key, engine] : state_.engines) {
    absl::MutexLock shard_lock(&engine->mutex);
    engine->link.Close(status, ended);
  }
}

Instant HeldJob::Tick(Instant now) {
  JobEffects effects;
  Instant next;
  {
    absl::MutexLock lock(&state_.mutex);
    state_.AskForTick(Instant::InfiniteFuture());
    CallSink sink(&state_, &effects.ended);
    state_.tables.Tick(now, sink);
    state_.snapshots.Tick(now, state_.tables);
    commits_.SettleLocked(sink, &effects);
    commits_.TickLocked(now, &effects);
    effects.tick.reset();
    next = NextDeadlineLocked();
    state_.AskForTick(next);
  }
  commits_.Perform(&effects);
  return next;
}

Instant HeldJob::NextDeadline() const {
  absl::MutexLock lock(&state_.mutex);
  return NextDeadlineLocked();
}

Instant HeldJob::NextDeadlineLocked() const {
  Instant next = std::min(state_.snapshots.NextDeadline(), commits_.NextDeadlineLocked());
  if (!state_.calls.empty()) next = std::min(next, state_.tables.NextDeadline());
  return next;
}

void HeldJob::Close(const absl::Status& reason) {
  JobEffects effects;
  {
    absl::MutexLock lock(&state_.mutex);
    state_.closed = reason;
    EndAllLocked(reason, &effects.ended);
  }
  commits_.Perform(&effects);
}

std::vector<HeldCopy> HeldJob::Copies() const {
  absl::MutexLock lock(&state_.mutex);
  std::vector<HeldCopy> copies;
  if (!state_.tables.failure().ok()) return copies;  // A push may have changed half of a shard.
  for (const auto& [key, engine] : state_.engines) {
    absl::MutexLock shard_lock(&engine->mutex);
    const TableShard* held = state_.tables.Find(key);
    const Term term = engine->link.replication().held_term();
    if (held == nullptr || term == Term(0)) continue;
    absl::StatusOr<v1::ShardSnapshot> copy = held->Snapshot();
    if (copy.ok()) copies.push_back({key, term, *std::move(copy)});
  }
  return copies;
}

bool HeldJob::logs_begun() const {
  absl::MutexLock lock(&state_.mutex);
  return state_.LogsBegunLocked();
}

Version HeldJob::version_max() const {
  absl::MutexLock lock(&state_.mutex);
  Version highest;
  for (const ShardKey& key : state_.PrimariesLocked()) {
    highest = std::max(highest, state_.tables.Find(key)->core().version());
  }
  return highest;
}

absl::Status HeldJob::failure() const {
  absl::MutexLock lock(&state_.mutex);
  return state_.failure.ok() ? state_.tables.failure() : state_.failure;
}

std::vector<HeldShard> HeldJob::shards() const {
  absl::MutexLock lock(&state_.mutex);
  std::vector<HeldShard> shards;
  for (const auto& [key, engine] : state_.engines) {
    absl::MutexLock shard_lock(&engine->mutex);
    if (engine->link.is_primary()) shards.push_back(engine->link.shard());
  }
  return shards;
}

std::vector<v1::ReplicaState> HeldJob::ReplicaStates() const {
  absl::MutexLock lock(&state_.mutex);
  std::vector<v1::ReplicaState> states;
  for (const auto& [key, engine] : state_.engines) {
    absl::MutexLock shard_lock(&engine->mutex);
    for (v1::ReplicaState& state : engine->link.Reports()) states.push_back(std::move(state));
  }
  return states;
}

std::vector<v1::HeldTable> HeldJob::Describe() const {
  absl::MutexLock lock(&state_.mutex);
  const std::vector<ShardKey> keys = state_.PrimariesLocked();
  const std::set<ShardKey> primaries(keys.begin(), keys.end());
  std::vector<v1::HeldTable> tables =
      state_.tables.Describe([&](const ShardKey& key) { return primaries.contains(key); });
  for (v1::HeldTable& table : tables) table.set_job_id(state_.options.job);
  return tables;
}

}  // namespace capstan::server
