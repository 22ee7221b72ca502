#include "server/service/shard_link.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/table_store/state_codec.h"

namespace capstan::server {
namespace {

// A message whose records are shared with others: they are lent to it, not copied.
struct LentRecords {
  LentRecords() = default;
  LentRecords(const LentRecords&) = delete;
  LentRecords& operator=(const LentRecords&) = delete;
  ~LentRecords() {
    while (request.records_size() > 0) request.mutable_records()->UnsafeArenaReleaseLast();
  }
  void Lend(std::shared_ptr<const v1::ShardRecord> record) {
    // Nobody changes a message that is sent, and it gives the record back before its owner goes.
    request.mutable_records()->UnsafeArenaAddAllocated(const_cast<v1::ShardRecord*>(record.get()));
    owners.push_back(std::move(record));
  }

  v1::ReplicateRequest request;
  std::vector<std::shared_ptr<const v1::ShardRecord>> owners;
};

int64_t BytesIn(const v1::ShardSnapshot& snapshot) {
  size_t bytes = snapshot.values().size() + snapshot.previous().size();
  for (const std::string& state : snapshot.optimizer_state()) bytes += state.size();
  bytes += snapshot.bucket().stamps().size() + snapshot.bucket().admission().size();
  return static_cast<int64_t>(bytes);
}

}  // namespace

void ShardLink::SetRole(const RoleRoute& route,
                        absl::btree_map<FollowerKey, v1::ServerAddress> servers,
                        const TableShard* held, EndedCalls* ended) {
  const Term term_before = replication_.held_term();
  const bool kept_records = replication_.keeps_records();
  const Position position = held != nullptr ? held->core().position() : Position(0);
  const Version version = held != nullptr ? held->core().version() : Version(0);
  replication_.SetRole(route, position, version);
  servers_ = std::move(servers);
  const bool new_term = replication_.held_term() != term_before;
  if (new_term || !is_primary()) kept_.clear();
  if (new_term) {
    Close(absl::NotFoundError(absl::StrCat(NameOf(shard_.key), ": its term has ended")), ended);
  }
  if (!is_primary()) return;
  if (new_term) {
    filled_from_ = Version(0);
    if (options_->log != nullptr) StartLog(route.term, *held);
  }
  if (!options_->safe_replies && !kept_records && held->core().has_partial()) {
    filled_from_ = version.Next();
  }
}

void ShardLink::OnRecord(const MakeRecord& made, const Gradient& gradient) {
  if (!holds_replies()) return;
  const Position position = made.record.position;
  const int64_t bytes = gradient.bytes();
  if (replication_.keeps_records()) {
    auto record = std::make_shared<const v1::ShardRecord>(EncodeRecord(made.record, gradient));
    if (options_->log != nullptr) AppendLog(record);
    kept_.push_back(std::move(record));
  }
  if (made.record.kind == ShardRecord::Kind::kBarrier) {
    replication_.AppendBarrier(position, bytes);
  } else {
    replication_.Append(position, made.version_after, bytes);
  }
}

std::shared_ptr<const v1::ReplicateRequest> ShardLink::MessageFor(const ReplicaMessage& message,
                                                                  Generation routing,
                                                                  const TableShard& held) {
  auto lent = std::make_shared<LentRecords>();
  v1::ReplicateRequest& request = lent->request;
  request.set_job_id(options_->job);
  request.set_table(shard_.key.table.value());
  request.set_shard(shard_.key.shard.value());
  request.set_term(replication_.term().value());
  request.set_sender(options_->node);
  request.set_routing_generation(routing.value());
  if (message.install) {
    absl::StatusOr<v1::ShardSnapshot> snapshot = held.Snapshot();
    if (!snapshot.ok()) return failure_ = snapshot.status(), nullptr;
    *request.mutable_install() = *std::move(snapshot);
  } else {
    for (Position position = message.begin; position < message.end; ++position) {
      const int64_t index = position.value() - kept_.front()->position();
      lent->Lend(kept_[static_cast<size_t>(index)]);
    }
  }
  return {lent, &lent->request};  // Owns the records as well.
}

void ShardLink::Settle(const TableShard& held) {
  while (!kept_.empty() && Position(kept_.front()->position()) < replication_.oldest_kept()) {
    kept_.pop_front();
  }
  if (LogWantsSnapshot()) {
    BeginLog(replication_.held_term(), held);
  }
}

std::vector<v1::ReplicaState> ShardLink::Reports() const {
  std::vector<v1::ReplicaState> states;
  if (!is_primary()) return states;
  for (const ReplicaReport& report : replication_.Reports()) {
    if (report.filled && replication_.committed_version() < filled_from_) continue;
    v1::ReplicaState& state = states.emplace_back();
    state.set_table(shard_.key.table.value());
    state.set_shard(shard_.key.shard.value());
    state.set_term(replication_.term().value());
    state.set_node_id(report.replica.node);
    state.set_incarnation(report.replica.incarnation.value());
    state.set_state(report.filled ? v1::ReplicaState::FILLED : v1::ReplicaState::UNREACHABLE);
  }
  return states;
}

bool ShardLink::ReportsChanged() {
  std::vector<ReplicaReport> reports;
  if (is_primary()) reports = replication_.Reports();
  std::erase_if(reports, [&](const ReplicaReport& report) {
    return report.filled && replication_.committed_version() < filled_from_;
  });
  if (reports == reported_) return false;
  reported_ = std::move(reports);
  return true;
}

void ShardLink::TookInstall(Term term, const v1::ShardSnapshot& snapshot, EndedCalls* ended) {
  Close(absl::NotFoundError(absl::StrCat(NameOf(shard_.key), ": it was installed anew")), ended);
  replication_.TookInstall(term);
  if (options_->log != nullptr) BeginLog(term, std::make_shared<v1::ShardSnapshot>(snapshot));
}

void ShardLink::TookRecord(const v1::ShardRecord& record, const TableShard& held) {
  if (options_->log == nullptr) return;
  AppendLog(std::make_shared<v1::ShardRecord>(record));
  Settle(held);
}

void ShardLink::Answer(const TableShard* held, v1::ReplicateResponse* response,
                       WaitingCalls::Done done, EndedCalls* ended) {
  if (held == nullptr || replication_.held_term() == Term(0)) {
    ended->emplace_back(std::move(done), absl::OkStatus());
    return;
  }
  const Position position = held->core().position();
  response->set_term(replication_.held_term().value());
  response->set_position(position.value());
  if (options_->log == nullptr || replication_.logged() >= position) {
    ended->emplace_back(std::move(done), absl::OkStatus());
  } else {
    answers_.push_back({.position = position, .done = std::move(done)});
  }
}

void ShardLink::OnLogged(Term term, Position position, EndedCalls* ended) {
  if (log_snapshot_ <= position) SetLogSnapshot(std::nullopt);
  if (term != replication_.held_term()) return;
  replication_.OnLogged(term, position);
  std::erase_if(answers_, [&](WaitingAnswer& answer) {
    if (answer.position > replication_.logged()) return false;
    ended->emplace_back(std::move(answer.done), absl::OkStatus());
    return true;
  });
}

void ShardLink::Close(const absl::Status& status, EndedCalls* ended) {
  for (WaitingAnswer& answer : answers_) ended->emplace_back(std::move(answer.done), status);
  answers_.clear();
}

void ShardLink::StartLog(Term term, const TableShard& held) {
  const Position position = held.core().position();
  if (log_has_ != position) return BeginLog(term, held);
  options_->log->Continue(options_->job, shard_.key, term, position);
}

void ShardLink::BeginLog(Term term, const TableShard& held) {
  absl::StatusOr<v1::ShardSnapshot> snapshot = held.Snapshot();
  if (!snapshot.ok()) {
    failure_ = snapshot.status();
    return;
  }
  BeginLog(term, std::make_shared<v1::ShardSnapshot>(*std::move(snapshot)));
}

void ShardLink::BeginLog(Term term, std::shared_ptr<const v1::ShardSnapshot> snapshot) {
  log_snapshot_bytes_ = BytesIn(*snapshot);
  log_record_bytes_ = 0;
  log_has_ = Position(snapshot->position());
  SetLogSnapshot(log_has_);
  options_->log->Begin(options_->job, shard_.key, term, std::move(snapshot));
}

void ShardLink::AppendLog(std::shared_ptr<const v1::ShardRecord> record) {
  log_record_bytes_ += static_cast<int64_t>(record->values().size());
  log_has_ = Position(record->position());
  options_->log->Append(options_->job, shard_.key, replication_.held_term(), std::move(record));
}

void ShardLink::SetLogSnapshot(std::optional<Position> position) {
  *options_->log_snapshots += position.has_value() - log_snapshot_.has_value();
  log_snapshot_ = position;
}

bool ShardLink::LogWantsSnapshot() const {
  return options_->log != nullptr && *options_->log_snapshots < kLogSnapshotsMax &&
         log_record_bytes_ > std::max(kLogBytesMin, 8 * log_snapshot_bytes_);
}

}  // namespace capstan::server
