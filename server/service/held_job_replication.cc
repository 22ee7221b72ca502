// HeldJob: messages to and from replicas, and what follows from what they say.
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

// All rows of a bucket that were to come have come.
absl::Status CheckWhole(const v1::ShardSnapshot& snapshot, const TableShard& made) {
  const std::optional<v1::RowCounts> rows = made.store().row_counts();
  if (!rows.has_value() || snapshot.rows_to_come() <= rows->held()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(rows->held(), " rows have come: expected ", snapshot.rows_to_come()));
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
  if (!request.has_install()) return Install(request, std::nullopt, response, std::move(done));
  absl::StatusOr<std::optional<TableShard>> made = BeginInstall(request);
  if (!made.ok()) return done(made.status());
  Install(request, *std::move(made), response, std::move(done));
}

absl::StatusOr<std::optional<TableShard>> HeldJob::BeginInstall(
    const v1::ReplicateRequest& request) const {
  std::optional<HeldShard> shard;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = links_.find(KeyOf(request));
    if (!closed_.ok() || !failure_.ok() || !tables_.failure().ok() || it == links_.end() ||
        ConsiderLocked(request, *it->second).kind != ReplicaVerdict::Kind::kInstall) {
      return std::nullopt;
    }
    shard = it->second->shard();
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
    InstallLocked(request, std::move(made), response, std::move(done), &effects);
  }
  Perform(effects);
}

void HeldJob::InstallLocked(const v1::ReplicateRequest& request, std::optional<TableShard> made,
                            v1::ReplicateResponse* response, Done done, Effects* effects) {
  const ShardKey key = KeyOf(request);
  const auto it = links_.find(key);
  absl::Status status = closed_;
  if (status.ok()) status = failure_;
  if (status.ok() && it == links_.end()) {
    status = absl::NotFoundError(absl::StrCat("routing generation ", routing_.generation(),
                                              " gives this server no copy of it"));
  }
  if (status.ok()) status = ReplicateLocked(request, *it->second, std::move(made), effects);
  if (status.ok()) {
    it->second->Answer(tables_.Find(key), response, std::move(done), &effects->ended);
  } else {
    effects->report |= !tables_.failure().ok();
    effects->ended.emplace_back(
        std::move(done),
        Annotate(status, absl::StrCat("replicate ", options_.job, ", ", NameOf(key))));
  }
}

void HeldJob::ReplicateBatch(const v1::ReplicateBatch& batch, v1::ReplicateBatchAnswer* answer,
                             Done done) {
  if (const absl::Status status = CheckBatch(batch, options_.job); !status.ok()) {
    return done(status);
  }
  // Shared by the messages: some may wait for the log.
  auto ends = std::make_shared<BatchEnds>(batch.messages_size(), std::move(done));
  for (int i = 0; i < batch.messages_size(); ++i) answer->add_results();
  Effects effects;
  {
    absl::MutexLock lock(&mutex_);
    for (int i = 0; i < batch.messages_size(); ++i) {
      v1::ReplicateResult* result = answer->mutable_results(i);
      InstallLocked(
          batch.messages(i), std::nullopt, result->mutable_held(),
          [result, ends](const absl::Status& status) {
            result->set_code(static_cast<int>(status.code()));
            ends->OneEnded();
          },
          &effects);
    }
  }
  Perform(effects);
}

ReplicaVerdict HeldJob::ConsiderLocked(const v1::ReplicateRequest& request,
                                       const ShardLink& link) const {
  const TableShard* held = tables_.Find(link.shard().key);
  const Position position = held != nullptr ? held->core().position() : Position(0);
  return link.replication().Consider(HeadOf(request), position);
}

absl::Status HeldJob::ReplicateLocked(const v1::ReplicateRequest& request, ShardLink& link,
                                      std::optional<TableShard> made, Effects* effects) {
  using Kind = ReplicaVerdict::Kind;
  CAPSTAN_RETURN_IF_ERROR(tables_.failure());
  const ShardKey key = link.shard().key;
  const ReplicaVerdict verdict = ConsiderLocked(request, link);
  const bool install = verdict.kind == Kind::kInstall;
  // What was made aside may be of another cut of the table by now.
  const bool fits = made.has_value() && made->elements() == link.shard().elements;
  if (verdict.kind == Kind::kNotYet || (install && !fits)) {
    return absl::NotFoundError(
        absl::StrCat("routing generation ", request.routing_generation(), ", term ", request.term(),
                     ": this server has generation ", routing_.generation(), ", term ",
                     link.replication().term().value(), "; send again"));
  }
  switch (verdict.kind) {
    case Kind::kFenced:
      return absl::FailedPreconditionError(
          absl::StrCat("term ", request.term(), " of ", request.sender(), " has ended: expected ",
                       link.replication().term().value(), " or higher"));
    case Kind::kInstall:
      CAPSTAN_RETURN_IF_ERROR(CheckWhole(request.install(), *made));
      snapshots_.ShardGone(key, tables_);
      effects->replaced = tables_.Put(key, *std::move(made));
      link.TookInstall(Term(request.term()), &effects->ended);
      SettleLogsLocked(effects);
      tables_.Fail(link.failure());
      return link.failure();
    case Kind::kReplay:
      for (int i = static_cast<int>(verdict.skip); i < request.records_size(); ++i) {
        const absl::Status status = tables_.Replay(key, request.records(i));
        if (!status.ok()) return status;
        link.TookRecord(request.records(i));
      }
      tables_.Fail(link.failure());
      snapshots_.Settle(tables_);
      UnpinUnreadLocked();
      return link.failure();
    case Kind::kNotYet:
    case Kind::kNothing:
      return absl::OkStatus();
  }
  return absl::InternalError("no such verdict");
}

void HeldJob::OnProgress(const ShardKey& key, const ReplicaMessage& message, int64_t bytes) {
  absl::MutexLock lock(&mutex_);
  const auto it = links_.find(key);
  if (it == links_.end()) return;
  it->second->replication().OnProgress(message.to, message.id, bytes, options_.clock->Now());
}

void HeldJob::OnInstalled(const ShardKey& key, const ReplicaMessage& message,
                          const absl::Status& status, const v1::ReplicateResponse& response) {
  Effects effects;
  {
    absl::MutexLock lock(&mutex_);
    const auto installs = installs_in_flight_.find(message.to);
    if (--installs->second == 0) installs_in_flight_.erase(installs);
    if (!closed_.ok()) return;
    OnAnswerLocked(key, message, status, response, &effects);
    // Others may have waited for their turn.
    for (const auto& [other, link] : links_) SendLocked(*link, &effects);
    UnpinUnreadLocked();
  }
  Perform(effects);
}

void HeldJob::OnReplicated(const std::vector<Outgoing>& sent,
                           absl::Span<const ReplicaOutcome> outcomes) {
  Effects effects;
  {
    absl::MutexLock lock(&mutex_);
    if (!closed_.ok()) return;
    for (const ReplicaOutcome& each : outcomes) {
      const Outgoing& of = sent[each.index];
      OnAnswerLocked(of.shard, of.message, each.status, each.response, &effects);
    }
    UnpinUnreadLocked();
  }
  Perform(effects);
}

void HeldJob::OnAnswerLocked(const ShardKey& key, const ReplicaMessage& message,
                             const absl::Status& status, const v1::ReplicateResponse& response,
                             Effects* effects) {
  const auto it = links_.find(key);
  if (it == links_.end()) return;
  it->second->replication().OnAnswer(message.to, message.id, AnswerOf(status, response),
                                     options_.clock->Now());
  SettleLinkLocked(*it->second, effects);
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
    absl::MutexLock lock(&mutex_);
    const auto it = links_.find(shard);
    if (!closed_.ok() || it == links_.end()) return;
    const bool had_begun = it->second->log_begun();
    it->second->OnLogged(term, position, &effects.ended);
    if (!had_begun && LogsBegunLocked()) effects.report = true;
    SettleLinkLocked(*it->second, &effects);
    SettleLogsLocked(&effects);
    UnpinUnreadLocked();
  }
  Perform(effects);
}

bool HeldJob::LogsBegunLocked() const {
  return std::all_of(links_.begin(), links_.end(), [](const auto& entry) {
    return !entry.second->is_primary() || entry.second->log_begun();
  });
}

void HeldJob::SettleLocked(Sink& sink, Effects* effects) {
  for (const auto& [key, call] : sink.TakeBarriers()) {
    if (!calls_.Has(call)) continue;
    ShardLink& link = *links_.at(key);
    if (!link.replication().UnsentBarrier().has_value()) tables_.MakeBarrier(key, sink);
    calls_.HoldForPosition(call, key, *link.replication().UnsentBarrier());
    calls_.Seal(call, &effects->ended);
    sink.Touch(key);
  }
  for (const ShardKey& key : sink.touched()) SettleLinkLocked(*links_.at(key), effects);
  snapshots_.Settle(tables_);
  UnpinUnreadLocked();
  if (!tables_.failure().ok()) effects->report = true;
}

void HeldJob::SettleLogsLocked(Effects* effects) {
  for (const auto& [key, link] : links_) {
    if (log_bytes_ >= options_.log_snapshot_bytes_max) return;
    if (!link->log_due()) continue;
    link->Settle();
    tables_.Fail(link->failure());
    if (!link->failure().ok()) effects->report = true;
  }
}

void HeldJob::SettleLinkLocked(ShardLink& link, Effects* effects) {
  const ShardKey key = link.shard().key;
  const ShardReplication& replication = link.replication();
  if (!link.is_primary()) return;
  if (replication.deposed()) {
    EndWaitingForLocked(key, CheckPrimaryLocked(key), effects);
    return;
  }
  calls_.Release(key, replication.committed_version(), replication.committed_position(),
                 &effects->ended);
  link.Settle();
  SendLocked(link, effects);
  tables_.Fail(link.failure());
  if (link.ReportsChanged() || !link.failure().ok()) effects->report = true;
  TickAtLocked(NextDeadlineOfLocked(replication), effects);
}

bool HeldJob::MayInstallLocked(const FollowerKey& to) const {
  const auto installs = installs_in_flight_.find(to);
  return installs == installs_in_flight_.end() || installs->second < kInstallsInFlightMax;
}

std::optional<ReplicaMessage> HeldJob::NextMessageLocked(ShardLink& link) {
  const auto may_install = [this](const FollowerKey& to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return MayInstallLocked(to);
  };
  return link.replication().NextMessage(options_.clock->Now(), may_install);
}

Instant HeldJob::NextDeadlineOfLocked(const ShardReplication& replication) const {
  if (!tables_.failure().ok()) return Instant::InfiniteFuture();  // Nothing is sent any more.
  const auto may_install = [this](const FollowerKey& to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return MayInstallLocked(to);
  };
  return replication.NextDeadline(may_install);
}

void HeldJob::SendLocked(ShardLink& link, Effects* effects) {
  if (!link.is_primary() || options_.transport == nullptr) return;
  if (!tables_.failure().ok()) return;  // A push may be in half of the shard's rows.
  const ShardKey key = link.shard().key;
  while (const auto message = NextMessageLocked(link)) {
    ReplicaRequest request = link.MessageFor(*message, Generation(routing_.generation()));
    if (request.message == nullptr) {
      tables_.Fail(link.failure());
      effects->report = true;
      return;
    }
    if (message->install) ++installs_in_flight_[message->to];
    effects->sends.push_back({.shard = key,
                              .message = *message,
                              .to = link.AddressOf(message->to),
                              .request = std::move(request)});
  }
  TickAtLocked(NextDeadlineOfLocked(link.replication()), effects);
}

}  // namespace capstan::server
