// HeldJob: exchanges messages with replicas and acts on them.
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "server/service/held_job.h"
#include "server/service/held_job_sink.h"
#include "server/service/message_checks.h"

namespace capstan::server {
namespace {

ReplicateHead HeadOf(const v1::ReplicateRequest& request) {
  ReplicateHead head{.generation = Generation(request.routing_generation()),
                     .term = Term(request.term()),
                     .install = {},
                     .begin = {},
                     .records = request.records_size()};
  if (request.has_install()) head.install = Position(request.install().position());
  if (head.records > 0) head.begin = Position(request.records(0).position());
  return head;
}

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

// Checks that all rows of a bucket that were to come have come.
absl::Status CheckWhole(const v1::ShardSnapshot& snapshot, const TableShard& made) {
  if (made.rows() == nullptr) return absl::OkStatus();
  const int64_t held = made.rows()->row_counts().held();
  if (snapshot.rows_to_come() <= held) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(held, " rows have come: expected ", snapshot.rows_to_come()));
}

absl::Status CheckBatch(const v1::ReplicateBatch& batch, const JobId& job) {
  if (batch.messages_size() < 1 ||
      static_cast<size_t>(batch.messages_size()) > ReplicaTransport::kTogetherMax) {
    return absl::InvalidArgumentError(absl::StrCat("replicate ", job, ": ", batch.messages_size(),
                                                   " messages: expected 1 to ",
                                                   ReplicaTransport::kTogetherMax));
  }
  for (const v1::ReplicateRequest& message : batch.messages()) {
    if (message.job_id() == job) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("replicate ", job, ": a message of job ", message.job_id()));
  }
  return absl::OkStatus();
}

// Ends a call once all of its messages have ended. Thread safety: thread-safe.
class BatchEnds {
 public:
  BatchEnds(int messages, HeldJob::Done done) : missing_(messages), done_(std::move(done)) {}
  void OneEnded() {
    if (--missing_ == 0) done_(absl::OkStatus());
  }

 private:
  std::atomic<int> missing_;
  const HeldJob::Done done_;
};

}  // namespace

void HeldJob::Replicate(const v1::ReplicateRequest& request, v1::ReplicateResponse* response,
                        Done done) {
  if (!request.has_install()) return Replay(request, response, std::move(done));
  absl::StatusOr<std::optional<TableShard>> made = BeginInstall(request);
  if (!made.ok()) return done(made.status());
  Install(request, *std::move(made), response, std::move(done));
}

absl::StatusOr<std::optional<TableShard>> HeldJob::BeginInstall(
    const v1::ReplicateRequest& request) const {
  std::optional<HeldShard> shard;
  {
    absl::ReaderMutexLock lock(&mutex_);
    const auto it = engines_.find(KeyOf(request));
    if (!closed_.ok() || !failure_.ok() || !tables_.failure().ok() || it == engines_.end()) {
      return std::nullopt;
    }
    absl::MutexLock shard_lock(&it->second->mutex);
    const ShardLink& link = it->second->link;
    if (Consider(request, link).kind != ReplicaVerdict::Kind::kInstall) return std::nullopt;
    shard = link.shard();
  }
  absl::StatusOr<TableShard> made = factory_->FromSnapshot(*shard, request.install());
  if (!made.ok()) return Annotate(made.status(), absl::StrCat("replicate ", options_.job));
  return *std::move(made);
}

void HeldJob::Install(const v1::ReplicateRequest& request, std::optional<TableShard> made,
                      v1::ReplicateResponse* response, Done done) {
  Effects effects;
  {
    absl::MutexLock lock(&mutex_);
    const absl::StatusOr<ShardEngine*> engine = EngineOfReplicaLocked(KeyOf(request));
    absl::Status status = engine.status();
    if (status.ok()) {
      absl::MutexLock shard_lock(&(*engine)->mutex);
      status = InstallLocked(request, (*engine)->link, std::move(made), &effects);
    }
    if (status.ok()) SettleLogsLocked(&effects);
    AnswerLocked(request, status, response, std::move(done), &effects);
  }
  Perform(&effects);
}

absl::StatusOr<ShardEngine*> HeldJob::EngineOfReplicaLocked(const ShardKey& key) const {
  CAPSTAN_RETURN_IF_ERROR(CheckOpenLocked());
  const auto it = engines_.find(key);
  if (it != engines_.end()) return it->second.get();
  return absl::NotFoundError(absl::StrCat("routing generation ", routing_.generation(),
                                          " gives this server no copy of it"));
}

void HeldJob::AnswerLocked(const v1::ReplicateRequest& request, const absl::Status& status,
                           v1::ReplicateResponse* response, Done done, Effects* effects) {
  const ShardKey key = KeyOf(request);
  if (!status.ok()) {
    effects->report |= !tables_.failure().ok();
    effects->ended.emplace_back(
        std::move(done),
        Annotate(status, absl::StrCat("replicate ", options_.job, ", ", NameOf(key))));
    return;
  }
  ShardEngine& engine = *engines_.at(key);
  absl::MutexLock shard_lock(&engine.mutex);
  engine.link.Answer(tables_.Find(key), response, std::move(done), &effects->ended);
}

void HeldJob::Replay(const v1::ReplicateRequest& request, v1::ReplicateResponse* response,
                     Done done) {
  Effects effects;
  {
    absl::ReaderMutexLock lock(&mutex_);
    ReplayLocked(request, response, std::move(done), &effects);
    effects.snapshots_full = snapshots_.IsFull();
    UnpinUnreadLocked();
  }
  Perform(&effects);
}

void HeldJob::ReplicateBatch(const v1::ReplicateBatch& batch, v1::ReplicateBatchAnswer* answer,
                             Done done) {
  if (const absl::Status status = CheckBatch(batch, options_.job); !status.ok()) {
    return done(status);
  }
  // The messages share it, because some may wait for the log.
  auto ends = std::make_shared<BatchEnds>(batch.messages_size(), std::move(done));
  for (int i = 0; i < batch.messages_size(); ++i) answer->add_results();
  Effects effects;
  {
    absl::ReaderMutexLock lock(&mutex_);
    for (int i = 0; i < batch.messages_size(); ++i) {
      v1::ReplicateResult* result = answer->mutable_results(i);
      ReplayLocked(
          batch.messages(i), result->mutable_held(),
          [result, ends](const absl::Status& status) {
            result->set_code(static_cast<int>(status.code()));
            ends->OneEnded();
          },
          &effects);
    }
    effects.snapshots_full = snapshots_.IsFull();
    UnpinUnreadLocked();
  }
  Perform(&effects);
}

ReplicaVerdict HeldJob::Consider(const v1::ReplicateRequest& request, const ShardLink& link) const {
  const TableShard* held = tables_.Find(link.shard().key);
  const Position position = held != nullptr ? held->core().position() : Position(0);
  return link.replication().Consider(HeadOf(request), position);
}

// Returns an error if the request can never be carried out, or not yet; OK otherwise.
absl::Status HeldJob::CheckVerdictLocked(const v1::ReplicateRequest& request,
                                         const ReplicaVerdict& verdict,
                                         const ShardLink& link) const {
  switch (verdict.kind) {
    case ReplicaVerdict::Kind::kFenced:
      return absl::FailedPreconditionError(
          absl::StrCat("term ", request.term(), " of ", request.sender(), " has ended: expected ",
                       link.replication().term().value(), " or higher"));
    case ReplicaVerdict::Kind::kNotYet:
      return absl::NotFoundError(
          absl::StrCat("routing generation ", request.routing_generation(), ", term ",
                       request.term(), ": this server has generation ", routing_.generation(),
                       ", term ", link.replication().term().value(), "; send again"));
    default:
      return absl::OkStatus();
  }
}

absl::Status HeldJob::InstallLocked(const v1::ReplicateRequest& request, ShardLink& link,
                                    std::optional<TableShard> made, Effects* effects) {
  using Kind = ReplicaVerdict::Kind;
  CAPSTAN_RETURN_IF_ERROR(tables_.failure());
  ReplicaVerdict verdict = Consider(request, link);
  // The table may have been cut anew since `made` was prepared without the lock.
  const bool fits = made.has_value() && made->elements() == link.shard().elements;
  if (verdict.kind == Kind::kInstall && !fits) verdict.kind = Kind::kNotYet;
  CAPSTAN_RETURN_IF_ERROR(CheckVerdictLocked(request, verdict, link));
  if (verdict.kind != Kind::kInstall) return absl::OkStatus();
  CAPSTAN_RETURN_IF_ERROR(CheckWhole(request.install(), *made));
  snapshots_.ShardGone(link.shard().key, tables_);
  effects->replaced = tables_.Put(link.shard().key, *std::move(made));
  link.TookInstall(Term(request.term()), &effects->ended);
  tables_.Fail(link.failure());
  return link.failure();
}

void HeldJob::ReplayLocked(const v1::ReplicateRequest& request, v1::ReplicateResponse* response,
                           Done done, Effects* effects) {
  const absl::StatusOr<ShardEngine*> engine = EngineOfReplicaLocked(KeyOf(request));
  absl::Status status = engine.status();
  if (status.ok()) {
    absl::MutexLock shard_lock(&(*engine)->mutex);
    status = ReplayRecordsLocked(request, (*engine)->link);
  }
  AnswerLocked(request, status, response, std::move(done), effects);
}

absl::Status HeldJob::ReplayRecordsLocked(const v1::ReplicateRequest& request, ShardLink& link) {
  CAPSTAN_RETURN_IF_ERROR(tables_.failure());
  ReplicaVerdict verdict = Consider(request, link);
  // A whole shard comes in a call of its own.
  if (verdict.kind == ReplicaVerdict::Kind::kInstall) verdict.kind = ReplicaVerdict::Kind::kNotYet;
  CAPSTAN_RETURN_IF_ERROR(CheckVerdictLocked(request, verdict, link));
  if (verdict.kind != ReplicaVerdict::Kind::kReplay) return absl::OkStatus();
  for (int i = static_cast<int>(verdict.skip); i < request.records_size(); ++i) {
    CAPSTAN_RETURN_IF_ERROR(tables_.Replay(link.shard().key, request.records(i)));
    link.TookRecord(request.records(i));
  }
  tables_.Fail(link.failure());
  return link.failure();
}

void HeldJob::OnProgress(const ShardKey& key, const ReplicaMessage& message, int64_t bytes) {
  absl::ReaderMutexLock lock(&mutex_);
  const auto it = engines_.find(key);
  if (it == engines_.end()) return;
  absl::MutexLock shard_lock(&it->second->mutex);
  it->second->link.replication().OnProgress(message.to, message.id, bytes, options_.clock->Now());
}

void HeldJob::OnInstalled(const ShardKey& key, const ReplicaMessage& message,
                          const absl::Status& status, const v1::ReplicateResponse& response) {
  Effects effects;
  {
    absl::MutexLock lock(&mutex_);
    EndInstall(message.to);
    if (!closed_.ok()) return;
    OnAnswerLocked(key, message, status, response, &effects);
    // Other shards may have waited for their turn to be installed.
    for (const auto& [other, engine] : engines_) {
      absl::MutexLock shard_lock(&engine->mutex);
      SendLocked(engine->link, &effects);
    }
    UnpinUnreadLocked();
  }
  Perform(&effects);
}

void HeldJob::OnReplicated(const std::vector<Outgoing>& sent,
                           absl::Span<const ReplicaOutcome> outcomes) {
  Effects effects;
  {
    absl::ReaderMutexLock lock(&mutex_);
    if (!closed_.ok()) return;
    for (const ReplicaOutcome& each : outcomes) {
      const Outgoing& of = sent[each.index];
      OnAnswerLocked(of.shard, of.message, each.status, each.response, &effects);
    }
    UnpinUnreadLocked();
  }
  Perform(&effects);
}

void HeldJob::OnAnswerLocked(const ShardKey& key, const ReplicaMessage& message,
                             const absl::Status& status, const v1::ReplicateResponse& response,
                             Effects* effects) {
  const auto it = engines_.find(key);
  if (it == engines_.end()) return;
  absl::MutexLock shard_lock(&it->second->mutex);
  ShardLink& link = it->second->link;
  link.replication().OnAnswer(message.to, message.id, AnswerOf(status, response),
                              options_.clock->Now());
  SettleLinkLocked(link, effects);
}

void HeldJob::Send(const std::vector<Outgoing>& sends) {
  struct Together {
    std::vector<Outgoing> sends;
    int64_t bytes = 0;
  };
  absl::btree_map<FollowerKey, Together> by_server;
  for (const Outgoing& each : sends) {
    if (each.message.install) {
      options_.transport->Send(
          each.to, each.request,
          [job = weak_from_this(), key = each.shard, message = each.message](int64_t moved) {
            if (const auto held = job.lock()) held->OnProgress(key, message, moved);
          },
          [job = weak_from_this(), key = each.shard, message = each.message](
              const absl::Status& status, const v1::ReplicateResponse& response) {
            if (const auto held = job.lock()) held->OnInstalled(key, message, status, response);
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

void HeldJob::SendTogether(std::vector<Outgoing> sends) {
  std::vector<ReplicaRequest> requests;
  requests.reserve(sends.size());
  for (Outgoing& each : sends) requests.push_back(std::move(each.request));
  const v1::ServerAddress to = sends.front().to;
  options_.transport->SendTogether(
      to, std::move(requests),
      [job = weak_from_this(), sent = std::move(sends)](absl::Span<const ReplicaOutcome> outcomes) {
        if (const auto held = job.lock()) held->OnReplicated(sent, outcomes);
      });
}

void HeldJob::OnLogged(const ShardKey& shard, Term term, Position position) {
  Effects effects;
  {
    absl::ReaderMutexLock lock(&mutex_);
    const auto it = engines_.find(shard);
    if (!closed_.ok() || it == engines_.end()) return;
    bool had_begun = false;
    {
      absl::MutexLock shard_lock(&it->second->mutex);
      ShardLink& link = it->second->link;
      had_begun = link.log_begun();
      link.OnLogged(term, position, &effects.ended);
      SettleLinkLocked(link, &effects);
    }
    if (!had_begun && LogsBegunLocked()) effects.report = true;
    SettleLogsLocked(&effects);
    UnpinUnreadLocked();
  }
  Perform(&effects);
}

bool HeldJob::LogsBegunLocked() const {
  return std::all_of(engines_.begin(), engines_.end(), [](const auto& entry) {
    absl::MutexLock shard_lock(&entry.second->mutex);
    const ShardLink& link = entry.second->link;
    return !link.is_primary() || link.log_begun();
  });
}

void HeldJob::SettleLocked(Sink& sink, Effects* effects) {
  for (const auto& [key, call] : sink.TakeBarriers()) {
    ShardEngine& engine = *engines_.at(key);
    absl::MutexLock shard_lock(&engine.mutex);
    ShardLink& link = engine.link;
    if (!link.replication().UnsentBarrier().has_value()) tables_.MakeBarrier(key, sink);
    calls_.HoldForPosition(call, key, *link.replication().UnsentBarrier());
    calls_.Seal(call, &effects->ended);
    sink.Touch(key);
  }
  for (const ShardKey& key : sink.touched()) {
    ShardEngine& engine = *engines_.at(key);
    absl::MutexLock shard_lock(&engine.mutex);
    SettleLinkLocked(engine.link, effects);
  }
  effects->snapshots_full |= snapshots_.IsFull();
  UnpinUnreadLocked();
  if (!tables_.failure().ok()) effects->report = true;
}

void HeldJob::SettleLogsLocked(Effects* effects) {
  for (const auto& [key, engine] : engines_) {
    if (log_bytes_ >= options_.log_snapshot_bytes_max) return;
    absl::MutexLock shard_lock(&engine->mutex);
    ShardLink& link = engine->link;
    if (!link.log_due()) continue;
    link.Settle();
    tables_.Fail(link.failure());
    if (!link.failure().ok()) effects->report = true;
  }
}

void HeldJob::SettleLinkLocked(ShardLink& link, Effects* effects) {
  const ShardKey key = link.shard().key;
  const ShardReplication& replication = link.replication();
  if (!link.is_primary()) return;
  if (replication.deposed()) {
    effects->deposed.push_back(key);
    return;
  }
  calls_.Release(key, replication.committed_version(), replication.committed_position(),
                 &effects->ended);
  link.Settle();
  SendLocked(link, effects);
  tables_.Fail(link.failure());
  if (link.ReportsChanged() || !link.failure().ok()) effects->report = true;
  TickAt(NextDeadlineOf(replication), effects);
}

bool HeldJob::MayInstall(const FollowerKey& to) const {
  const auto installs = installs_in_flight_.find(to);
  return installs == installs_in_flight_.end() || installs->second < kInstallsInFlightMax;
}

void HeldJob::EndInstall(const FollowerKey& to) {
  absl::MutexLock lock(&installs_mutex_);
  const auto installs = installs_in_flight_.find(to);
  if (--installs->second == 0) installs_in_flight_.erase(installs);
}

std::optional<ReplicaMessage> HeldJob::NextMessage(ShardLink& link) {
  const auto may_install = [this](const FollowerKey& to)
                               ABSL_NO_THREAD_SAFETY_ANALYSIS { return MayInstall(to); };
  absl::MutexLock lock(&installs_mutex_);
  const auto message = link.replication().NextMessage(options_.clock->Now(), may_install);
  if (message && message->install) ++installs_in_flight_[message->to];
  return message;
}

Instant HeldJob::NextDeadlineOf(const ShardReplication& replication) const {
  if (!tables_.failure().ok()) return Instant::InfiniteFuture();  // Nothing is sent any more.
  const auto may_install = [this](const FollowerKey& to)
                               ABSL_NO_THREAD_SAFETY_ANALYSIS { return MayInstall(to); };
  absl::MutexLock lock(&installs_mutex_);
  return replication.NextDeadline(may_install);
}

void HeldJob::SendLocked(ShardLink& link, Effects* effects) {
  if (!link.is_primary() || options_.transport == nullptr) return;
  if (!tables_.failure().ok()) return;  // A push may have changed half of the shard's rows.
  const ShardKey key = link.shard().key;
  while (const auto message = NextMessage(link)) {
    ReplicaRequest request = link.MessageFor(*message, Generation(routing_.generation()));
    if (request.message == nullptr) {
      if (message->install) EndInstall(message->to);
      tables_.Fail(link.failure());
      effects->report = true;
      return;
    }
    effects->sends.push_back({.shard = key,
                              .message = *message,
                              .to = link.AddressOf(message->to),
                              .request = std::move(request)});
  }
  TickAt(NextDeadlineOf(link.replication()), effects);
}

}  // namespace capstan::server
