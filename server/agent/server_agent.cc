#include "server/agent/server_agent.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/observability/log.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "server/optimizer/optimizer_from_proto.h"
#include "server/service/codec.h"
#include "server/table_store/job_tables.h"

namespace capstan::server {
namespace {

v1::Failure::Reason ReasonOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return v1::Failure::OUT_OF_MEMORY;
    case absl::StatusCode::kInvalidArgument:
      return v1::Failure::USER_ERROR;
    default:
      return v1::Failure::INTERNAL;
  }
}

void FillFailure(const absl::Status& status, v1::Failure* failure) {
  failure->set_reason(ReasonOf(status));
  failure->set_message(std::string(status.message()));
}

absl::StatusOr<std::unique_ptr<JobTables>> MakeTables(const v1::TableAssignment& desired,
                                                      std::vector<HeldShard> shards) {
  JobTablesConfig config;
  config.tables.assign(desired.tables().begin(), desired.tables().end());
  CAPSTAN_ASSIGN_OR_RETURN(config.optimizer, OptimizerFromProto(desired.optimizer()));
  config.consistency = DecodeConsistency(desired.consistency(), desired.slots());
  config.seed = desired.seed();
  config.shards = std::move(shards);
  return JobTables::Make(config);
}

bool SameShard(const HeldShard& a, const HeldShard& b) {
  return a.key == b.key && a.elements == b.elements;
}

}  // namespace

ServerAgent::ServerAgent(HeldJobs* jobs, std::function<void()> on_change)
    : jobs_(jobs), on_change_(std::move(on_change)) {}

ServerAgent::~ServerAgent() { Stop(); }

void ServerAgent::Start() {
  maker_ = std::thread([this] { RunMaker(); });
}

void ServerAgent::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    ordered_.Signal();
  }
  if (maker_.joinable()) maker_.join();
}

void ServerAgent::Restarted(const NodeId& node_id, Incarnation incarnation) {
  absl::MutexLock lock(&mutex_);
  if (!entries_.empty()) {
    LogWarning({}, "a new life begins: {} jobs of the last one are dropped", entries_.size());
  }
  node_id_ = node_id;
  incarnation_ = incarnation;
  entries_.clear();
  orders_.clear();
  jobs_->DropAll(absl::NotFoundError(
      absl::StrCat(node_id, " has begun a new life and holds nothing of its last one")));
}

void ServerAgent::FillState(v1::SyncNodeRequest& request) {
  absl::MutexLock lock(&mutex_);
  for (const auto& [job, entry] : entries_) {
    if (entry.stage == Stage::kMaking) continue;
    v1::TableState* state = request.add_tables();
    state->set_job_id(job);
    absl::Status failure = entry.failure;
    if (const auto held = jobs_->Find(job); held.ok()) {
      state->set_routing_generation((*held)->routing_generation().value());
      state->set_membership_generation((*held)->membership_generation().value());
      if (failure.ok()) failure = (*held)->failure();
    }
    if (!failure.ok()) FillFailure(failure, state->mutable_failure());
  }
}

void ServerAgent::TakeDesired(const v1::SyncNodeResponse& response) {
  absl::MutexLock lock(&mutex_);
  absl::btree_map<JobId, const v1::TableAssignment*> desired;
  for (const v1::TableAssignment& each : response.tables()) desired[each.job_id()] = &each;
  for (auto it = entries_.begin(); it != entries_.end();) {
    if (desired.contains(it->first)) {
      ++it;
      continue;
    }
    LogInfo({.job = it->first}, "dropping its tables");
    jobs_->Drop(it->first);
    it = entries_.erase(it);
  }
  for (const auto& [job, assignment] : desired) {
    const auto it = entries_.find(job);
    if (it == entries_.end()) {
      AssignNew(*assignment);
      continue;
    }
    Entry& entry = it->second;
    entry.desired = *assignment;
    if (entry.stage != Stage::kHeld) continue;  // The maker applies the newest; a failure stays.
    if (const auto held = jobs_->Find(job); held.ok()) Apply(*assignment, **held, entry);
  }
}

void ServerAgent::AssignNew(const v1::TableAssignment& desired) {
  const uint64_t id = next_id_++;
  entries_[desired.job_id()] = {
      .id = id, .desired = desired, .stage = Stage::kMaking, .failure = {}};
  orders_.push_back({.job = desired.job_id(), .id = id});
  ordered_.Signal();
}

void ServerAgent::Apply(const v1::TableAssignment& desired, HeldJob& job, Entry& entry) {
  const std::vector<HeldShard> held = job.shards();
  for (const HeldShard& own : OwnShards(desired.routing())) {
    const bool is_held = std::any_of(held.begin(), held.end(),
                                     [&](const HeldShard& each) { return SameShard(each, own); });
    if (!is_held) {
      return Fail(entry, absl::InternalError(absl::StrCat(
                             "routing generation ", desired.routing().generation(),
                             " gives this server table ", own.key.table.value(), " shard ",
                             own.key.shard.value(), ", whose values it has never held")));
    }
  }
  const absl::StatusOr<Membership> membership = DecodeMembership(desired.membership());
  if (!membership.ok()) return Fail(entry, Annotate(membership.status(), "membership"));
  job.SetRouting(Generation(desired.routing().generation()));
  job.SetMembership(*membership);
}

void ServerAgent::Fail(Entry& entry, const absl::Status& status) {
  const std::string& job = entry.desired.job_id();
  LogError({.job = job}, "{}", std::string(status.message()));
  entry.stage = Stage::kFailed;
  entry.failure = status;
  jobs_->Drop(job);
}

std::vector<HeldShard> ServerAgent::OwnShards(const v1::RoutingTable& routing) const {
  std::vector<HeldShard> own;
  for (const v1::ShardRoute& route : routing.shards()) {
    if (route.server() < 0 || route.server() >= routing.servers_size()) continue;
    const v1::ServerAddress& server = routing.servers(route.server());
    if (server.node_id() != node_id_ || server.incarnation() != incarnation_.value()) continue;
    own.push_back({.key = {TableId(route.table()), ShardId(route.shard())},
                   .elements = {route.element_begin(), route.element_end()}});
  }
  return own;
}

void ServerAgent::RunMaker() {
  while (true) {
    Order order;
    {
      absl::MutexLock lock(&mutex_);
      while (!stopping_ && orders_.empty()) ordered_.Wait(&mutex_);
      if (stopping_) return;
      order = std::move(orders_.front());
      orders_.pop_front();
    }
    Make(order);
    on_change_();
  }
}

void ServerAgent::Make(const Order& order) {
  v1::TableAssignment desired;
  std::vector<HeldShard> shards;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = entries_.find(order.job);
    if (it == entries_.end() || it->second.id != order.id) return;
    desired = it->second.desired;
    shards = OwnShards(desired.routing());
  }
  const size_t shard_count = shards.size();
  absl::StatusOr<std::unique_ptr<JobTables>> tables = MakeTables(desired, std::move(shards));

  absl::MutexLock lock(&mutex_);
  const auto it = entries_.find(order.job);
  if (it == entries_.end() || it->second.id != order.id) return;  // Dropped meanwhile.
  Entry& entry = it->second;
  if (!tables.ok()) return Fail(entry, Annotate(tables.status(), "making tables"));
  auto job = std::make_shared<HeldJob>(order.job, Generation(entry.desired.routing().generation()),
                                       *std::move(tables));
  entry.stage = Stage::kHeld;
  Apply(entry.desired, *job, entry);
  if (entry.stage == Stage::kFailed) return;
  jobs_->Add(std::move(job));
  LogInfo({.job = order.job}, "holds {} shards", shard_count);
}

}  // namespace capstan::server
