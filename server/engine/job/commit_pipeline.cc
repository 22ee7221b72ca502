#include "server/engine/job/commit_pipeline.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "server/engine/shard_engine.h"

namespace capstan::server {
namespace {

ReplicaAnswer AnswerOf(const absl::Status& status, const v1::ReplicateResponse& response) {
  using Kind = ReplicaAnswer::Kind;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return {.kind = Kind::kHolds,
              .term = Term(response.term()),
              .position = Position(response.position())};
    case absl::StatusCode::kFailedPrecondition:
      return {.kind = Kind::kFenced};
    case absl::StatusCode::kNotFound:
      return {.kind = Kind::kNotYet};
    default:
      return {.kind = Kind::kFailed};
  }
}

}  // namespace

std::optional<JobState::CallId> CommitPipeline::FinishLocked(JobState::CallId call,
                                                             const absl::Status& status,
                                                             CallSink& sink, JobEffects* effects) {
  if (!status.ok()) effects->failed = {call, status};
  SettleLocked(sink, effects);
  if (!status.ok() || !state_->calls.Seal(call, &effects->ended)) return std::nullopt;
  return call;
}

void CommitPipeline::SettleLocked(CallSink& sink, JobEffects* effects) {
  for (const auto& [key, call] : sink.TakeBarriers()) {
    ShardEngine& engine = *state_->engines.at(key);
    absl::MutexLock shard_lock(&engine.mutex);
    ShardLink& link = engine.link;
    if (!link.replication().primary().UnsentBarrier().has_value())
      state_->tables.MakeBarrier(key, sink);
    state_->calls.HoldForPosition(call, key, *link.replication().primary().UnsentBarrier());
    state_->calls.Seal(call, &effects->ended);
    sink.Touch(key);
  }
  for (const ShardKey& key : sink.touched()) {
    ShardEngine& engine = *state_->engines.at(key);
    absl::MutexLock shard_lock(&engine.mutex);
    SettleLinkLocked(engine.link, effects);
  }
  effects->snapshots_full |= state_->snapshots.IsFull();
  state_->UnpinUnreadLocked();
  if (!state_->tables.failure().ok()) effects->report = true;
}

void CommitPipeline::SettleLogsLocked(JobEffects* effects) {
  for (const auto& [key, engine] : state_->engines) {
    if (state_->log_bytes >= state_->options.log_snapshot_bytes_max) return;
    absl::MutexLock shard_lock(&engine->mutex);
    ShardLink& link = engine->link;
    if (!link.log_due()) continue;
    link.Settle();
    state_->tables.Fail(link.failure());
    if (!link.failure().ok()) effects->report = true;
  }
}

void CommitPipeline::SettleLinkLocked(ShardLink& link, JobEffects* effects) {
  const ShardKey key = link.shard().key;
  const ShardPrimary& primary = link.replication().primary();
  if (!link.is_primary()) return;
  if (primary.deposed()) {
    effects->deposed.push_back(key);
    return;
  }
  state_->calls.Release(key, primary.committed_version(), primary.committed_position(),
                        &effects->ended);
  link.Settle();
  SendLocked(link, effects);
  state_->tables.Fail(link.failure());
  if (link.ReportsChanged() || !link.failure().ok()) effects->report = true;
  state_->TickAt(NextDeadlineOf(primary), effects);
}

void CommitPipeline::TickLocked(Instant now, JobEffects* effects) {
  for (const auto& [key, engine] : state_->engines) {
    absl::MutexLock shard_lock(&engine->mutex);
    ShardLink& link = engine->link;
    if (!link.holds_replies() || !link.is_primary()) continue;
    link.replication().primary().Tick(now);
    SettleLinkLocked(link, effects);
  }
}

Instant CommitPipeline::NextDeadlineLocked() const {
  Instant next = Instant::InfiniteFuture();
  for (const auto& [key, engine] : state_->engines) {
    absl::MutexLock shard_lock(&engine->mutex);
    next = std::min(next, NextDeadlineOf(engine->link.replication().primary()));
  }
  return next;
}

void CommitPipeline::Perform(JobEffects* effects) {
  PerformAlone(effects);
  for (const auto& [done, status] : effects->ended) done(status);
  Send(effects->sends);
  if (effects->tick.has_value() && state_->options.schedule_tick)
    state_->options.schedule_tick(*effects->tick);
  if (effects->report && state_->options.on_report) state_->options.on_report();
}

void CommitPipeline::PerformAlone(JobEffects* effects) {
  if (!effects->failed && effects->deposed.empty() && !effects->snapshots_full) return;
  absl::MutexLock lock(&state_->mutex);
  if (effects->failed)
    state_->EndLocked(effects->failed->first, effects->failed->second, &effects->ended);
  for (const ShardKey& key : effects->deposed) {
    const absl::StatusOr<ShardEngine*> engine = state_->EngineLocked(key);
    if (!engine.ok()) continue;
    absl::Status lost;
    {
      absl::MutexLock shard_lock(&(*engine)->mutex);
      if ((*engine)->link.replication().primary().deposed())
        lost = state_->CheckPrimaryLocked(**engine);
    }
    if (!lost.ok()) state_->EndWaitingForLocked(key, lost, &effects->ended);
  }
  if (effects->snapshots_full) state_->snapshots.Settle(state_->tables);
}

void CommitPipeline::Send(const std::vector<Outgoing>& sends) {
  struct Together {
    std::vector<Outgoing> sends;
    int64_t bytes = 0;
  };
  std::map<FollowerKey, Together> by_server;
  for (const Outgoing& each : sends) {
    if (each.message.install) {
      state_->options.transport->Send(
          each.to, each.request,
          [self = state_->WeakOf(this), key = each.shard, message = each.message](int64_t moved) {
            if (const auto held = self.lock()) held->OnProgress(key, message, moved);
          },
          [self = state_->WeakOf(this), key = each.shard, message = each.message](
              const absl::Status& status, const v1::ReplicateResponse& response) {
            if (const auto held = self.lock()) held->OnInstalled(key, message, status, response);
          });
      continue;
    }
    Together& together = by_server[each.message.to];
    const int64_t bytes = together.bytes + each.request.bytes;
    const bool is_full = together.sends.size() == ReplicaTransport::kTogetherMax ||
                         bytes > ReplicaTransport::kTogetherBytesMax;
    if (is_full && !together.sends.empty()) {
      SendTogether(std::exchange(together, {}).sends);
    }
    together.sends.push_back(each);
    together.bytes += each.request.bytes;
  }
  for (auto& [server, together] : by_server) SendTogether(std::move(together.sends));
}

void CommitPipeline::SendTogether(std::vector<Outgoing> sends) {
  std::vector<ReplicaRequest> requests;
  requests.reserve(sends.size());
  for (Outgoing& each : sends) requests.push_back(std::move(each.request));
  const v1::ServerAddress to = sends.front().to;
  state_->options.transport->SendTogether(to, std::move(requests),
                                          [self = state_->WeakOf(this), sent = std::move(sends)](
                                              absl::Span<const ReplicaOutcome> outcomes) {
                                            if (const auto held = self.lock())
                                              held->OnReplicated(sent, outcomes);
                                          });
}

void CommitPipeline::OnProgress(const ShardKey& key, const ReplicaMessage& message, int64_t bytes) {
  absl::ReaderMutexLock lock(&state_->mutex);
  const auto it = state_->engines.find(key);
  if (it == state_->engines.end()) return;
  absl::MutexLock shard_lock(&it->second->mutex);
  it->second->link.replication().primary().OnProgress(message.to, message.id, bytes,
                                                      state_->options.clock->Now());
}

void CommitPipeline::OnInstalled(const ShardKey& key, const ReplicaMessage& message,
                                 const absl::Status& status,
                                 const v1::ReplicateResponse& response) {
  JobEffects effects;
  {
    absl::MutexLock lock(&state_->mutex);
    EndInstall(message.to);
    if (!state_->closed.ok()) return;
    OnAnswerLocked(key, message, status, response, &effects);
    // Other shards may have waited for their turn to be installed.
    for (const auto& [other, engine] : state_->engines) {
      absl::MutexLock shard_lock(&engine->mutex);
      SendLocked(engine->link, &effects);
    }
    state_->UnpinUnreadLocked();
  }
  Perform(&effects);
}

void CommitPipeline::OnReplicated(const std::vector<Outgoing>& sent,
                                  absl::Span<const ReplicaOutcome> outcomes) {
  JobEffects effects;
  {
    absl::ReaderMutexLock lock(&state_->mutex);
    if (!state_->closed.ok()) return;
    for (const ReplicaOutcome& each : outcomes) {
      const Outgoing& of = sent[each.index];
      OnAnswerLocked(of.shard, of.message, each.status, each.response, &effects);
    }
    state_->UnpinUnreadLocked();
  }
  Perform(&effects);
}

void CommitPipeline::OnAnswerLocked(const ShardKey& key, const ReplicaMessage& message,
                                    const absl::Status& status,
                                    const v1::ReplicateResponse& response, JobEffects* effects) {
  const auto it = state_->engines.find(key);
  if (it == state_->engines.end()) return;
  absl::MutexLock shard_lock(&it->second->mutex);
  ShardLink& link = it->second->link;
  link.replication().primary().OnAnswer(message.to, message.id, AnswerOf(status, response),
                                        state_->options.clock->Now());
  SettleLinkLocked(link, effects);
}

void CommitPipeline::OnLogged(const ShardKey& shard, Term term, Position position) {
  JobEffects effects;
  {
    absl::ReaderMutexLock lock(&state_->mutex);
    const auto it = state_->engines.find(shard);
    if (!state_->closed.ok() || it == state_->engines.end()) return;
    bool had_begun = false;
    {
      absl::MutexLock shard_lock(&it->second->mutex);
      ShardLink& link = it->second->link;
      had_begun = link.log_begun();
      link.OnLogged(term, position, &effects.ended);
      SettleLinkLocked(link, &effects);
    }
    if (!had_begun && state_->LogsBegunLocked()) effects.report = true;
    SettleLogsLocked(&effects);
    state_->UnpinUnreadLocked();
  }
  Perform(&effects);
}

ShardPrimary::MayInstall CommitPipeline::MayInstall() const {
  return [this](const FollowerKey& to) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const auto installs = installs_in_flight_.find(to);
    return installs == installs_in_flight_.end() || installs->second < kInstallsInFlightMax;
  };
}

void CommitPipeline::EndInstall(const FollowerKey& to) {
  absl::MutexLock lock(&installs_mutex_);
  const auto installs = installs_in_flight_.find(to);
  if (--installs->second == 0) installs_in_flight_.erase(installs);
}

std::optional<ReplicaMessage> CommitPipeline::NextMessage(ShardLink& link) {
  absl::MutexLock lock(&installs_mutex_);
  const auto message =
      link.replication().primary().NextMessage(state_->options.clock->Now(), MayInstall());
  if (message && message->install) ++installs_in_flight_[message->to];
  return message;
}

Instant CommitPipeline::NextDeadlineOf(const ShardPrimary& primary) const {
  if (!state_->tables.failure().ok())
    return Instant::InfiniteFuture();  // Nothing is sent any more.
  absl::MutexLock lock(&installs_mutex_);
  return primary.NextDeadline(MayInstall());
}

void CommitPipeline::SendLocked(ShardLink& link, JobEffects* effects) {
  if (!link.is_primary() || state_->options.transport == nullptr) return;
  if (!state_->tables.failure().ok()) return;  // A push may have changed half of the shard's rows.
  const ShardKey key = link.shard().key;
  while (const auto message = NextMessage(link)) {
    ReplicaRequest request = link.MessageFor(*message, state_->routing.generation());
    if (request.message == nullptr) {
      if (message->install) EndInstall(message->to);
      state_->tables.Fail(link.failure());
      effects->report = true;
      return;
    }
    effects->sends.push_back({.shard = key,
                              .message = *message,
                              .to = link.AddressOf(message->to),
                              .request = std::move(request)});
  }
  state_->TickAt(NextDeadlineOf(link.replication().primary()), effects);
}

}  // namespace capstan::server
