#include "server/engine/job/replica_calls.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "server/engine/message_checks.h"

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

// Checks that a message of the present term comes from the primary of that term. Messages of other
// terms are decided on by ShardReplication.
absl::Status CheckSender(const v1::ReplicateRequest& request, const ShardReplication& replication) {
  if (Term(request.term()) != replication.term()) return absl::OkStatus();
  if (replication.IsPrimary(request.sender())) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("sent by \"", request.sender(), "\": expected \"", replication.primary_node(),
                   "\", the primary of term ", replication.term().value()));
}

// Checks that all rows of a bucket that were announced have come.
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
  BatchEnds(int messages, ReplicaCalls::Done done) : missing_(messages), done_(std::move(done)) {}
  void OneEnded() {
    if (--missing_ == 0) done_(absl::OkStatus());
  }

 private:
  std::atomic<int> missing_;
  const ReplicaCalls::Done done_;
};

}  // namespace

void ReplicaCalls::Replicate(const v1::ReplicateRequest& request, v1::ReplicateResponse* response,
                             Done done) {
  if (!request.has_install()) return Replay(request, response, std::move(done));
  absl::StatusOr<std::optional<TableShard>> made = BeginInstall(request);
  if (!made.ok()) return done(made.status());
  Install(request, *std::move(made), response, std::move(done));
}

absl::StatusOr<std::optional<TableShard>> ReplicaCalls::BeginInstall(
    const v1::ReplicateRequest& request) const {
  std::optional<HeldShard> shard;
  {
    absl::ReaderMutexLock lock(&state_->mutex);
    const auto it = state_->engines.find(KeyOf(request));
    if (!state_->closed.ok() || !state_->failure.ok() || !state_->tables.failure().ok() ||
        it == state_->engines.end()) {
      return std::nullopt;
    }
    absl::MutexLock shard_lock(&it->second->mutex);
    const ShardLink& link = it->second->link;
    if (Consider(request, link).kind != ReplicaVerdict::Kind::kInstall) return std::nullopt;
    if (!CheckSender(request, link.replication()).ok()) return std::nullopt;
    shard = link.shard();
  }
  absl::StatusOr<TableShard> made = state_->factory->FromSnapshot(*shard, request.install());
  if (!made.ok()) return Annotate(made.status(), absl::StrCat("replicate ", state_->options.job));
  return *std::move(made);
}

void ReplicaCalls::Install(const v1::ReplicateRequest& request, std::optional<TableShard> made,
                           v1::ReplicateResponse* response, Done done) {
  JobEffects effects;
  {
    absl::MutexLock lock(&state_->mutex);
    const absl::StatusOr<ShardEngine*> engine = EngineOfReplicaLocked(KeyOf(request));
    absl::Status status = engine.status();
    if (status.ok()) {
      absl::MutexLock shard_lock(&(*engine)->mutex);
      status = InstallLocked(request, (*engine)->link, std::move(made), &effects);
    }
    if (status.ok()) commits_->SettleLogsLocked(&effects);
    AnswerLocked(request, status, response, std::move(done), &effects);
  }
  commits_->Perform(&effects);
}

absl::StatusOr<ShardEngine*> ReplicaCalls::EngineOfReplicaLocked(const ShardKey& key) const {
  CAPSTAN_RETURN_IF_ERROR(state_->CheckOpenLocked());
  const auto it = state_->engines.find(key);
  if (it != state_->engines.end()) return it->second.get();
  return absl::NotFoundError(absl::StrCat("routing generation ",
                                          state_->routing.generation().value(),
                                          " gives this server no copy of it"));
}

void ReplicaCalls::AnswerLocked(const v1::ReplicateRequest& request, const absl::Status& status,
                                v1::ReplicateResponse* response, Done done, JobEffects* effects) {
  const ShardKey key = KeyOf(request);
  if (!status.ok()) {
    effects->report |= !state_->tables.failure().ok();
    effects->ended.emplace_back(
        std::move(done),
        Annotate(status, absl::StrCat("replicate ", state_->options.job, ", ", NameOf(key))));
    return;
  }
  ShardEngine& engine = *state_->engines.at(key);
  absl::MutexLock shard_lock(&engine.mutex);
  engine.link.Answer(state_->tables.Find(key), response, std::move(done), &effects->ended);
}

void ReplicaCalls::Replay(const v1::ReplicateRequest& request, v1::ReplicateResponse* response,
                          Done done) {
  JobEffects effects;
  {
    absl::ReaderMutexLock lock(&state_->mutex);
    ReplayLocked(request, response, std::move(done), &effects);
    effects.snapshots_full = state_->snapshots.IsFull();
    state_->UnpinUnreadLocked();
  }
  commits_->Perform(&effects);
}

void ReplicaCalls::ReplicateBatch(const v1::ReplicateBatch& batch, v1::ReplicateBatchAnswer* answer,
                                  Done done) {
  if (const absl::Status status = CheckBatch(batch, state_->options.job); !status.ok()) {
    return done(status);
  }
  // The messages share it, because some may wait for the log.
  auto ends = std::make_shared<BatchEnds>(batch.messages_size(), std::move(done));
  for (int i = 0; i < batch.messages_size(); ++i) answer->add_results();
  JobEffects effects;
  {
    absl::ReaderMutexLock lock(&state_->mutex);
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
    effects.snapshots_full = state_->snapshots.IsFull();
    state_->UnpinUnreadLocked();
  }
  commits_->Perform(&effects);
}

ReplicaVerdict ReplicaCalls::Consider(const v1::ReplicateRequest& request,
                                      const ShardLink& link) const {
  const TableShard* held = state_->tables.Find(link.shard().key);
  const Position position = held != nullptr ? held->core().position() : Position(0);
  return link.replication().Consider(HeadOf(request), position);
}

// Returns an error if the request can never be carried out, or not yet; OK otherwise.
absl::Status ReplicaCalls::CheckVerdictLocked(const v1::ReplicateRequest& request,
                                              const ReplicaVerdict& verdict,
                                              const ShardLink& link) const {
  switch (verdict.kind) {
    case ReplicaVerdict::Kind::kFenced:
      return absl::FailedPreconditionError(
          absl::StrCat("term ", request.term(), " of ", request.sender(), " has ended: expected ",
                       link.replication().term().value(), " or higher"));
    case ReplicaVerdict::Kind::kNotYet:
      return absl::NotFoundError(absl::StrCat(
          "routing generation ", request.routing_generation(), ", term ", request.term(),
          ": this server has generation ", state_->routing.generation().value(), ", term ",
          link.replication().term().value(), "; send again"));
    default:
      return CheckSender(request, link.replication());
  }
}

absl::Status ReplicaCalls::InstallLocked(const v1::ReplicateRequest& request, ShardLink& link,
                                         std::optional<TableShard> made, JobEffects* effects) {
  using Kind = ReplicaVerdict::Kind;
  CAPSTAN_RETURN_IF_ERROR(state_->tables.failure());
  const ReplicaVerdict verdict = Consider(request, link);
  CAPSTAN_RETURN_IF_ERROR(CheckVerdictLocked(request, verdict, link));
  if (verdict.kind != Kind::kInstall) return absl::OkStatus();
  // The table may have been cut anew since `made` was prepared without the lock.
  if (!made.has_value() || made->elements() != link.shard().elements) {
    return CheckVerdictLocked(request, {.kind = Kind::kNotYet}, link);
  }
  CAPSTAN_RETURN_IF_ERROR(CheckWhole(request.install(), *made));
  state_->snapshots.ShardGone(link.shard().key, state_->tables);
  effects->replaced = state_->tables.Put(link.shard().key, *std::move(made));
  link.TookInstall(Term(request.term()), &effects->ended);
  state_->tables.Fail(link.failure());
  return link.failure();
}

void ReplicaCalls::ReplayLocked(const v1::ReplicateRequest& request,
                                v1::ReplicateResponse* response, Done done, JobEffects* effects) {
  const absl::StatusOr<ShardEngine*> engine = EngineOfReplicaLocked(KeyOf(request));
  absl::Status status = engine.status();
  if (status.ok()) {
    absl::MutexLock shard_lock(&(*engine)->mutex);
    status = ReplayRecordsLocked(request, (*engine)->link);
  }
  AnswerLocked(request, status, response, std::move(done), effects);
}

absl::Status ReplicaCalls::ReplayRecordsLocked(const v1::ReplicateRequest& request,
                                               ShardLink& link) {
  CAPSTAN_RETURN_IF_ERROR(state_->tables.failure());
  ReplicaVerdict verdict = Consider(request, link);
  // A whole shard comes in a call of its own.
  if (verdict.kind == ReplicaVerdict::Kind::kInstall) verdict.kind = ReplicaVerdict::Kind::kNotYet;
  CAPSTAN_RETURN_IF_ERROR(CheckVerdictLocked(request, verdict, link));
  if (verdict.kind != ReplicaVerdict::Kind::kReplay) return absl::OkStatus();
  for (int i = static_cast<int>(verdict.skip); i < request.records_size(); ++i) {
    CAPSTAN_RETURN_IF_ERROR(state_->tables.Replay(link.shard().key, request.records(i)));
    link.TookRecord(request.records(i));
  }
  state_->tables.Fail(link.failure());
  return link.failure();
}

}  // namespace capstan::server
