#include "server/engine/shard_link.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/store/state_codec.h"

namespace capstan::server {
namespace {

// A message that borrows its records, or its snapshot, which others share, instead of copying them.
struct LentRecords {
  LentRecords() = default;
  LentRecords(const LentRecords&) = delete;
  LentRecords& operator=(const LentRecords&) = delete;
  ~LentRecords() {
    while (request.records_size() > 0) request.mutable_records()->UnsafeArenaReleaseLast();
    if (request.has_install()) request.unsafe_arena_release_install();
  }
  void Lend(std::shared_ptr<const v1::ShardSnapshot> shard) {
    request.unsafe_arena_set_allocated_install(const_cast<v1::ShardSnapshot*>(shard.get()));
    snapshot = std::move(shard);
  }
  void Lend(std::shared_ptr<const v1::ShardRecord> record) {
    // Nobody changes a message that is sent, and it releases the record before the owner does.
    request.mutable_records()->UnsafeArenaAddAllocated(const_cast<v1::ShardRecord*>(record.get()));
    owners.push_back(std::move(record));
  }

  v1::ReplicateRequest request;
  std::vector<std::shared_ptr<const v1::ShardRecord>> owners;
  std::shared_ptr<const v1::ShardSnapshot> snapshot;
};

}  // namespace

void ShardLink::SetRole(const RoleRoute& route, std::map<FollowerKey, v1::ServerAddress> servers,
                        const TableShard* held, EndedCalls* ended) {
  const Term term_before = replication_.held_term();
  const bool kept_records = replication_.primary().keeps_records();
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
    if (options_->log != nullptr) StartLog(route.term, position);
  }
  if (!options_->safe_replies && !kept_records && held->core().has_partial()) {
    filled_from_ = version.Next();
  }
}

void ShardLink::OnRecord(const MakeRecord& made, const Gradient& gradient) {
  if (!holds_replies()) return;
  const Position position = made.record.position;
  const int64_t bytes = gradient.bytes();
  if (replication_.primary().keeps_records()) {
    auto record = std::make_shared<const v1::ShardRecord>(EncodeRecord(made.record, gradient));
    if (options_->log != nullptr) AppendLog(record);
    kept_.push_back(std::move(record));
  }
  if (made.record.kind == ShardRecord::Kind::kBarrier) {
    replication_.primary().AppendBarrier(position, bytes);
  } else {
    replication_.primary().Append(position, made.version_after, bytes);
  }
}

ReplicaRequest ShardLink::MessageFor(const ReplicaMessage& message, Generation routing) {
  auto lent = std::make_shared<LentRecords>();
  v1::ReplicateRequest& request = lent->request;
  request.set_job_id(options_->job);
  request.set_table(shard_.key.table.value());
  request.set_shard(shard_.key.shard.value());
  request.set_term(replication_.term().value());
  request.set_sender(options_->node);
  request.set_routing_generation(routing.value());
  ReplicaRequest made;
  if (message.install) {
    absl::StatusOr<CapturedShard> captured = options_->capture(shard_.key);
    if (!captured.ok()) return failure_ = captured.status(), made;
    lent->Lend(std::move(captured->snapshot));
    made.rows = std::move(captured->rows);
    made.bytes = captured->bytes;
  } else {
    for (Position position = message.begin; position < message.end; ++position) {
      const int64_t index = position.value() - kept_.front()->position();
      const std::shared_ptr<const v1::ShardRecord>& record = kept_[static_cast<size_t>(index)];
      made.bytes += static_cast<int64_t>(record->values().size());
      lent->Lend(record);
    }
  }
  made.message = {lent, &lent->request};  // The pointer also owns what was lent.
  return made;
}

void ShardLink::Settle() {
  while (!kept_.empty() &&
         Position(kept_.front()->position()) < replication_.primary().oldest_kept()) {
    kept_.pop_front();
  }
  if (LogWantsSnapshot()) BeginLog();
}

std::vector<ReplicaReport> ShardLink::ReplicaReports() const {
  std::vector<ReplicaReport> reports;
  if (is_primary()) reports = replication_.primary().Reports();
  std::erase_if(reports, [&](const ReplicaReport& report) {
    return report.filled && replication_.primary().committed_version() < filled_from_;
  });
  return reports;
}

std::vector<v1::ReplicaState> ShardLink::Reports() const {
  std::vector<v1::ReplicaState> states;
  for (const ReplicaReport& report : ReplicaReports()) {
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
  std::vector<ReplicaReport> reports = ReplicaReports();
  if (reports == reported_) return false;
  reported_ = std::move(reports);
  return true;
}

void ShardLink::TookInstall(Term term, EndedCalls* ended) {
  Close(absl::NotFoundError(absl::StrCat(NameOf(shard_.key), ": it was installed anew")), ended);
  replication_.TookInstall(term);
  if (options_->log == nullptr) return;
  SetLogDue();
  Settle();
}

void ShardLink::TookRecord(const v1::ShardRecord& record) {
  if (options_->log == nullptr) return;
  AppendLog(std::make_shared<v1::ShardRecord>(record));
  Settle();
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
  if (log_snapshot_.has_value() &&
      std::pair(log_snapshot_->term, log_snapshot_->position) <= std::pair(term, position)) {
    SetLogSnapshot(std::nullopt);
  }
  // While the log is due a snapshot, its content belongs to an earlier state of the shard.
  if (term != replication_.held_term() || log_due_) return;
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

void ShardLink::StartLog(Term term, Position position) {
  if (log_has_ != position) return SetLogDue();
  options_->log->Continue(options_->job, shard_.key, term, position);
}

void ShardLink::SetLogDue() {
  log_due_ = true;
  MadeAnew(std::nullopt);
}

void ShardLink::BeginLog() {
  absl::StatusOr<CapturedShard> captured = options_->capture(shard_.key);
  if (!captured.ok()) {
    failure_ = captured.status();
    return;
  }
  log_due_ = false;
  log_snapshot_bytes_ = captured->bytes;
  log_record_bytes_ = 0;
  log_has_ = Position(captured->snapshot->position());
  SetLogSnapshot(LogSnapshot{
      .term = replication_.held_term(), .position = *log_has_, .bytes = captured->bytes});
  options_->log->Begin(options_->job, shard_.key, replication_.held_term(),
                       std::move(captured->snapshot), std::move(captured->rows));
}

void ShardLink::AppendLog(std::shared_ptr<const v1::ShardRecord> record) {
  if (log_due_) return;  // The snapshot will contain the record.
  log_record_bytes_ += static_cast<int64_t>(record->values().size());
  log_has_ = Position(record->position());
  options_->log->Append(options_->job, shard_.key, replication_.held_term(), std::move(record));
}

void ShardLink::SetLogSnapshot(std::optional<LogSnapshot> snapshot) {
  const auto bytes = [](const std::optional<LogSnapshot>& of) { return of ? of->bytes : 0; };
  *options_->log_bytes += bytes(snapshot) - bytes(log_snapshot_);
  log_snapshot_ = snapshot;
}

bool ShardLink::LogWantsSnapshot() const {
  if (options_->log == nullptr || *options_->log_bytes >= options_->log_snapshot_bytes_max) {
    return false;
  }
  return log_due_ || log_record_bytes_ > std::max(kLogBytesMin, 8 * log_snapshot_bytes_);
}

}  // namespace capstan::server
