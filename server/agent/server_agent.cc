#include "server/agent/server_agent.h"

#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/observability/log.h"
#include "common/status/annotate.h"
#include "common/types/message_limits.h"
#include "common/wire/store_revision_codec.h"
#include "server/store/state_codec.h"

namespace capstan::server {
namespace {

// The share of the scheduler's promise that is used. The rest allows for clocks that run at
// different speeds.
constexpr double kReadLeaseShare = 0.8;

v1::Failure::Reason ReasonOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return v1::Failure::OUT_OF_MEMORY;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:  // The job needs a server with a data folder.
      return v1::Failure::USER_ERROR;
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kNotFound:
      return v1::Failure::BAD_DATA;
    case absl::StatusCode::kUnavailable:  // The disk of a log failed, or the scheduler is away.
      return v1::Failure::SERVER_LOST;
    default:
      return v1::Failure::INTERNAL;
  }
}

void FillFailure(const absl::Status& status, v1::Failure* failure) {
  failure->set_reason(ReasonOf(status));
  failure->set_message(std::string(status.message()));
}

}  // namespace

bool ServerAgent::HaveOtherSources(const v1::TableAssignment& a, const v1::TableAssignment& b) {
  return a.restore_term() != b.restore_term() || a.log_term() != b.log_term();
}

ShardSources ServerAgent::SourcesOf(const v1::TableAssignment& desired) {
  return {.restore_term = Term(desired.restore_term()), .log_term = Term(desired.log_term())};
}

ServerAgent::ServerAgent(Options options)
    : options_(std::move(options)), handle_(std::make_shared<Handle>()) {
  absl::MutexLock lock(&handle_->mutex);
  handle_->agent = this;
}

ServerAgent::~ServerAgent() {
  Stop();
  absl::MutexLock lock(&handle_->mutex);
  handle_->agent = nullptr;
}

void ServerAgent::Start() {
  if (options_.execute) return;
  maker_ = std::thread([this] { RunAll(Order::Kind::kMake); });
  capturer_ = std::thread([this] { RunAll(Order::Kind::kCapture); });
}

void ServerAgent::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    ordered_.SignalAll();
  }
  if (maker_.joinable()) maker_.join();
  if (capturer_.joinable()) capturer_.join();
}

// The previous incarnation is over. What it holds is dropped now, so that nobody writes into the
// logs while they are read again.
void ServerAgent::FillRegistration(v1::RegisterRequest& request) {
  DropIncarnation();
  removed_logs_.clear();
  if (options_.stored) {
    for (v1::StoredShard& shard : options_.stored()) *request.add_stored() = std::move(shard);
  }
  if (options_.plugins != nullptr) {
    for (const auto& [name, rule] : options_.plugins->all()) {
      v1::PluginRule& reported = *request.add_plugin_rules();
      reported.set_name(name);
      reported.set_digest(rule.digest);
    }
  }
  if (options_.logs) {
    for (v1::KeptLog& log : options_.logs()) *request.add_logs() = std::move(log);
  }
}

void ServerAgent::Registered(const v1::RegisterResponse& response) {
  if (options_.unclaimed == nullptr) return;
  options_.unclaimed->OnLiving({response.living_logs().begin(), response.living_logs().end()});
}

void ServerAgent::DropIncarnation() {
  NodeId node;
  {
    absl::MutexLock lock(&mutex_);
    if (!entries_.empty()) {
      LogWarning({}, "a new incarnation begins: {} jobs of the last one are dropped",
                 entries_.size());
    }
    node = node_id_;
    incarnation_ = Incarnation(0);  // Shards still being made belong to no incarnation.
    entries_.clear();
    makes_.clear();
    captures_.clear();
    read_lease_ = Instant();
  }
  options_.jobs->DropAll(absl::NotFoundError(
      absl::StrCat(node, " has begun a new incarnation and holds nothing of its last one")));
}

void ServerAgent::Restarted(const NodeId& node_id, Incarnation incarnation) {
  DropIncarnation();
  {
    absl::MutexLock lock(&mutex_);
    node_id_ = node_id;
    incarnation_ = incarnation;
  }
  if (options_.log != nullptr) options_.log->BeginIncarnation(incarnation);
}

LogRecovery::Need ServerAgent::NeedOfNewIncarnation(bool log_waits) const {
  absl::MutexLock lock(&mutex_);
  bool failed = log_waits;
  bool alone = false;  // A job has neither a log nor a replica.
  for (const auto& [job, entry] : entries_) {
    const absl::Status failure = entry.job == nullptr ? entry.failure : entry.job->failure();
    if (absl::IsUnavailable(failure)) {
      failed = true;
    } else if (entry.stage != Stage::kFailed) {
      alone = alone || (entry.desired.durability() != v1::LOG && entry.desired.replicas() == 0);
    }
  }
  if (!failed) return LogRecovery::Need::kNone;
  return alone ? LogRecovery::Need::kLater : LogRecovery::Need::kNow;
}

void ServerAgent::FillState(v1::SyncNodeRequest& request) {
  state_filled_ = options_.clock->Now();
  // This is not done as soon as the answer arrives, because the answer may claim a log.
  if (std::exchange(collect_unclaimed_, false) && options_.unclaimed != nullptr) {
    for (std::string& log : options_.unclaimed->CollectDue()) {
      removed_logs_.push_back(std::move(log));
    }
    while (std::ssize(removed_logs_) > kLogsToldMax) removed_logs_.pop_front();
  }
  request.mutable_removed_logs()->Assign(removed_logs_.begin(), removed_logs_.end());
  absl::MutexLock lock(&mutex_);
  for (const auto& [job, entry] : entries_) {
    v1::TableState* state = request.add_tables();
    state->set_job_id(job);
    if (entry.making) {
      state->mutable_making()->set_made(entry.made);
      state->mutable_making()->set_total(entry.to_make);
      state->mutable_making()->set_progress(making_progress_);
    }
    if (entry.stage == Stage::kHeld) FillHeld(entry, state);
    if (!entry.failure.ok()) FillFailure(entry.failure, state->mutable_failure());
  }
}

void ServerAgent::FillHeld(const Entry& entry, v1::TableState* state) {
  state->set_routing_generation(entry.job->assignment().routing_generation().value());
  state->set_membership_generation(entry.job->assignment().membership_generation().value());
  state->set_logs_begun(entry.job->logs_begun());
  for (v1::ReplicaState& replica : entry.job->ReplicaStates()) {
    *state->add_replicas() = std::move(replica);
  }
  if (entry.checkpoint.state() != v1::CheckpointState::STATE_UNSPECIFIED) {
    *state->add_checkpoints() = entry.checkpoint;
  }
  if (entry.desired.log_term() > 0) state->set_version_max(entry.job->version_max().value());
  const absl::Status failure = entry.job->failure();
  if (!failure.ok()) FillFailure(failure, state->mutable_failure());
}

void ServerAgent::SyncAnswered(absl::Duration read_lease, const v1::StoreRevision& revision) {
  if (options_.log != nullptr) options_.log->Heard(DecodeRevision(revision));
  const Instant until = state_filled_ + kReadLeaseShare * read_lease;
  {
    absl::MutexLock lock(&mutex_);
    read_lease_ = until;
  }
  options_.jobs->SetReadLease(until);
  collect_unclaimed_ = true;
}

// Called before the routing table that comes with the record is applied. The log is claimed from
// now on.
void ServerAgent::KeepRecord(const Entry& entry, const v1::TableAssignment& desired) {
  if (options_.log == nullptr || desired.durability() != v1::LOG) return;
  if (!IsUniqueId(desired.unique_id())) return;  // It is refused when the tables are made.
  options_.log->Identify(desired.job_id(), desired.unique_id());
  if (desired.record().empty() || desired.record() == entry.desired.record()) return;
  options_.log->KeepRecord(desired.job_id(), desired.record());
}

void ServerAgent::TakeDesired(const v1::SyncNodeResponse& response) {
  std::map<JobId, const v1::TableAssignment*> desired;
  for (const v1::TableAssignment& each : response.tables()) desired[each.job_id()] = &each;
  Work work;
  {
    absl::MutexLock lock(&mutex_);
    for (auto it = entries_.begin(); it != entries_.end();) {
      const auto found = desired.find(it->first);
      // A job that was taken up from another cluster may have the id of one that was here.
      if (found != desired.end() && found->second->unique_id() == it->second.desired.unique_id()) {
        ++it;
        continue;
      }
      LogInfo({.job = it->first}, "dropping its tables");
      work.drop.push_back(it->first);
      if (options_.log != nullptr) options_.log->ForgetJob(it->first);
      it = entries_.erase(it);
    }
    for (const auto& [job, assignment] : desired) {
      const auto [it, is_new] = entries_.try_emplace(job);
      Entry& entry = it->second;
      const bool again =
          entry.stage == Stage::kFailed && HaveOtherSources(entry.desired, *assignment);
      if (again) entry = Entry();
      KeepRecord(entry, *assignment);
      entry.desired = *assignment;
      if (is_new || again) entry.id = next_id_++;
      Progress(entry, &work);
    }
  }
  Perform(std::move(work));
}

void ServerAgent::Progress(Entry& entry, Work* work) {
  if (entry.stage == Stage::kFailed || entry.making) return;
  const v1::TableAssignment& desired = entry.desired;
  const Order make{.kind = Order::Kind::kMake, .job = desired.job_id(), .id = entry.id};
  if (entry.job == nullptr) {
    entry.making = true;
    work->orders.push_back(make);
    return;
  }
  const absl::StatusOr<Membership> membership = DecodeMembership(desired.membership());
  if (!membership.ok()) return Fail(entry, Annotate(membership.status(), "membership"), work);
  const auto missing = entry.job->assignment().MissingShards(desired.routing(), SourcesOf(desired));
  if (!missing.ok()) return Fail(entry, missing.status(), work);
  if (!missing->empty()) {
    entry.making = true;
    work->orders.push_back(make);
    return;
  }
  work->apply.emplace_back(entry.job, desired);
  const uint64_t checkpoint = desired.checkpoint().checkpoint_id();
  if (checkpoint == entry.checkpoint.checkpoint_id()) return;
  entry.checkpoint.Clear();
  entry.checkpoint.set_checkpoint_id(checkpoint);
  if (checkpoint == 0) return;
  work->orders.push_back({.kind = Order::Kind::kCapture,
                          .job = desired.job_id(),
                          .id = entry.id,
                          .checkpoint = checkpoint});
}

void ServerAgent::Perform(Work work) {
  for (const JobId& job : work.drop) options_.jobs->Drop(job);
  for (const auto& [job, desired] : work.apply) {
    job->assignment().SetRouting(desired.routing(), {});
    job->assignment().SetMembership(
        DecodeMembership(desired.membership()).value());  // Checked before.
  }
  for (const Order& order : work.orders) {
    if (options_.execute) {
      options_.execute([this, order] { Run(order); });
      continue;
    }
    absl::MutexLock lock(&mutex_);
    OrdersOf(order.kind).push_back(order);
    ordered_.SignalAll();
  }
}

void ServerAgent::RunAll(Order::Kind kind) {
  while (true) {
    Order order;
    {
      absl::MutexLock lock(&mutex_);
      std::deque<Order>& orders = OrdersOf(kind);
      while (!stopping_ && orders.empty()) ordered_.Wait(&mutex_);
      if (stopping_) return;
      order = std::move(orders.front());
      orders.pop_front();
    }
    Run(order);
  }
}

void ServerAgent::Run(const Order& order) {
  if (order.kind == Order::Kind::kMake) {
    Make(order);
  } else {
    Capture(order);
  }
  options_.on_change();
}

void ServerAgent::Make(const Order& order) {
  v1::TableAssignment desired;
  std::shared_ptr<HeldJob> job;
  {
    absl::MutexLock lock(&mutex_);
    const Entry* entry = FindEntry(order);
    if (entry == nullptr) return;
    desired = entry->desired;
    job = entry->job;
  }
  absl::Status status;
  if (job == nullptr) {
    absl::StatusOr<std::shared_ptr<HeldJob>> made = MakeJob(desired);
    status = Annotate(made.status(), "making tables");
    if (made.ok()) job = *std::move(made);
  }
  std::vector<MadeShard> shards;
  if (status.ok()) {
    job->assignment().ForgetForRestore(desired.routing(), Term(desired.restore_term()));
    absl::StatusOr<std::vector<MadeShard>> made = MakeShards(order, desired, *job);
    status = made.status();
    if (made.ok()) shards = *std::move(made);
  }
  const size_t made_count = shards.size();
  const absl::StatusOr<Membership> membership = DecodeMembership(desired.membership());
  if (status.ok()) status = Annotate(membership.status(), "membership");
  if (status.ok()) {
    if (!Hold(order, job)) return;
    // The membership comes first, because shards of a checkpoint still know incarnations that are
    // fenced off by now.
    job->assignment().SetMembership(*membership);
    job->assignment().SetRouting(desired.routing(), std::move(shards));
  }

  Work work;
  {
    absl::MutexLock lock(&mutex_);
    Entry* entry = FindEntry(order);
    if (entry == nullptr) return Abandon(order.job, job.get());
    entry->making = false;
    entry->made = entry->to_make = 0;
    if (!status.ok() && !HaveOtherSources(entry->desired, desired)) {
      // Cancelled: this server stops, which is no fault of the job or of its checkpoint.
      if (!absl::IsCancelled(status)) Fail(*entry, status, &work);
    } else {
      if (status.ok() && entry->stage == Stage::kMaking) {
        entry->stage = Stage::kHeld;
        LogInfo({.job = order.job}, "holds {} shards", made_count);
      }
      Progress(*entry, &work);  // A newer desired state may have come.
    }
  }
  Perform(std::move(work));
}

// Called before the job's first routing table is applied, with which its log and its deadlines
// begin: both must find the job held. Returns false if the job was dropped while its shards
// were made.
bool ServerAgent::Hold(const Order& order, const std::shared_ptr<HeldJob>& job) {
  absl::MutexLock lock(&mutex_);
  Entry* entry = FindEntry(order);
  if (entry == nullptr) return false;
  if (entry->job != nullptr) return true;
  entry->job = job;
  job->assignment().SetReadLease(read_lease_);
  options_.jobs->Add(job);
  return true;
}

// Forgets the log of a job that was dropped while its routing table was applied: the log may have
// begun.
void ServerAgent::Abandon(const JobId& id, const HeldJob* job) {
  if (options_.log == nullptr || job == nullptr || entries_.contains(id)) return;
  if (job->incarnation() == incarnation_) options_.log->ForgetJob(id);
}

void ServerAgent::Capture(const Order& order) {
  std::shared_ptr<HeldJob> job;
  v1::CheckpointOrder checkpoint;
  {
    absl::MutexLock lock(&mutex_);
    const Entry* entry = FindEntry(order);
    if (entry == nullptr || entry->stage != Stage::kHeld) return;
    job = entry->job;
    checkpoint = entry->desired.checkpoint();
    // A checkpoint that was given up before its turn came is not written in place of the next.
    if (order.checkpoint != checkpoint.checkpoint_id()) return;
    if (order.checkpoint != entry->checkpoint.checkpoint_id()) return;
  }
  if (checkpoint.readers_size() > 0) {
    const absl::Status kept = job->snapshot_calls().Keep(checkpoint);
    if (!kept.ok()) LogWarning({.job = order.job}, "a snapshot: {}", kept.ToString());
    absl::MutexLock lock(&mutex_);
    Entry* entry = FindEntry(order);
    if (entry == nullptr || entry->checkpoint.checkpoint_id() != checkpoint.checkpoint_id()) return;
    entry->checkpoint.set_not_kept(std::string(kept.message()));
    if (checkpoint.folder().empty()) {
      return entry->checkpoint.set_state(v1::CheckpointState::CAPTURED);
    }
  }
  if (options_.checkpoints == nullptr) {
    return CheckpointWritten(order, checkpoint.checkpoint_id(),
                             absl::FailedPreconditionError("this server writes no checkpoints"));
  }
  absl::StatusOr<std::vector<CapturedShard>> shards = job->captures().Capture(checkpoint);
  if (!shards.ok()) {
    CheckpointWritten(order, checkpoint.checkpoint_id(), shards.status());
    return options_.on_change();
  }
  {
    absl::MutexLock lock(&mutex_);
    Entry* entry = FindEntry(order);
    if (entry == nullptr || entry->checkpoint.checkpoint_id() != checkpoint.checkpoint_id()) return;
    entry->checkpoint.set_state(v1::CheckpointState::CAPTURED);
  }
  options_.on_change();  // Training goes on while the checkpoint is written.
  options_.checkpoints->Write(order.job, checkpoint, *std::move(shards),
                              [handle = handle_, order, id = checkpoint.checkpoint_id()](
                                  const absl::StatusOr<std::vector<v1::CheckpointPart>>& parts) {
                                absl::MutexLock lock(&handle->mutex);
                                if (handle->agent == nullptr) return;
                                handle->agent->CheckpointWritten(order, id, parts);
                                handle->agent->options_.on_change();
                              });
}

void ServerAgent::CheckpointWritten(const Order& order, uint64_t checkpoint,
                                    const absl::StatusOr<std::vector<v1::CheckpointPart>>& parts) {
  absl::MutexLock lock(&mutex_);
  Entry* entry = FindEntry(order);
  if (entry == nullptr || entry->checkpoint.checkpoint_id() != checkpoint) return;
  if (!parts.ok()) {
    LogWarning({.job = order.job}, "checkpoint {}: {}", checkpoint, parts.status().ToString());
    entry->checkpoint.set_state(v1::CheckpointState::FAILED);
    entry->checkpoint.set_error(std::string(parts.status().message()));
    return;
  }
  entry->checkpoint.set_state(v1::CheckpointState::WRITTEN);
  for (const v1::CheckpointPart& part : *parts) *entry->checkpoint.add_parts() = part;
}

void ServerAgent::Fail(Entry& entry, const absl::Status& status, Work* work) {
  const std::string& job = entry.desired.job_id();
  LogError({.job = job}, "{}", std::string(status.message()));
  entry.stage = Stage::kFailed;
  entry.failure = status;
  if (entry.job != nullptr) work->drop.push_back(job);
  entry.job = nullptr;
}

ServerAgent::Entry* ServerAgent::FindEntry(const Order& order) {
  const auto it = entries_.find(order.job);
  return it == entries_.end() || it->second.id != order.id ? nullptr : &it->second;
}

}  // namespace capstan::server
