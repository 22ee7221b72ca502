#include "scheduler/codec/node_codec.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/devices/devices_codec.h"
#include "common/net/socket/host_port.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/types/message_limits.h"
#include "common/wire/store_revision_codec.h"
#include "scheduler/codec/shared_codec.h"
#include "scheduler/store/job_record.h"

namespace capstan::scheduler {
namespace {

constexpr size_t kLastLinesBytesMax = 4096;
constexpr size_t kNameBytesMax = 256;
constexpr size_t kErrorBytesMax = 4096;
constexpr int kStoredMax = 1 << 20;
constexpr int kPluginRulesMax = 1000;
constexpr size_t kDigestBytes = 64;
constexpr size_t kUniqueIdBytesMax = 64;  // proto/scheduler.proto.

void EncodeMembership(const JobMembership& membership, v1::Membership& out) {
  out.set_generation(membership.generation.value());
  out.set_incarnation_floor(membership.incarnation_floor.value());
  if (membership.learning_rate_factor != 1) {
    out.set_learning_rate_factor(membership.learning_rate_factor);
  }
  out.set_clock_seconds(membership.clock_seconds);
  for (const Member& member : membership.members) {
    v1::Member& m = *out.add_members();
    m.set_rank(member.rank.value());
    m.set_incarnation(member.incarnation.value());
    m.set_active(member.active);
    m.set_start_iteration(member.start_iteration.value());
  }
}

void EncodeTables(const TableAssignment& assignment, const AdmittedJob& job,
                  v1::TableAssignment& out) {
  out.set_job_id(assignment.routing->job);
  for (const v1::TableSpec& table : job.tables) *out.add_tables() = table;
  *out.mutable_optimizer() = job.spec.optimizer();
  *out.mutable_consistency() = job.spec.consistency();
  out.set_slots(job.plan.consistency.slots);
  out.set_seed(job.spec.training().seed());
  EncodeRouting(*assignment.routing, *out.mutable_routing());
  EncodeMembership(assignment.membership, *out.mutable_membership());
  out.set_durability(job.plan.log ? v1::LOG : v1::NONE);
  out.set_replicas(job.plan.replicas);
  out.set_restore_term(assignment.restore.restore_term.value());
  out.set_restore_folder(assignment.restore.restore_folder);
  out.set_log_term(assignment.restore.log_term.value());
  out.set_unique_id(job.plan.unique_id);
  if (job.capability_key.has_value()) out.set_capability_key(job.capability_key->bytes());
  out.set_owner(job.plan.owner);
  if (assignment.checkpoint.id == CheckpointId(0)) return;
  out.mutable_checkpoint()->set_checkpoint_id(assignment.checkpoint.id.value());
  out.mutable_checkpoint()->set_folder(assignment.checkpoint.folder);
  out.mutable_checkpoint()->set_base_id(assignment.checkpoint.base.value());
  const std::vector<uint64_t>& readers = assignment.checkpoint.readers;
  out.mutable_checkpoint()->mutable_readers()->Add(readers.begin(), readers.end());
  if (const auto version = assignment.checkpoint.version) {
    out.mutable_checkpoint()->set_version(version->value());
  }
}

// Skips a replica in a state that this program does not know: a newer program may have sent it.
void DecodeReplicas(const v1::TableState& table, TableReport& report) {
  for (const v1::ReplicaState& replica : table.replicas()) {
    ReplicaReport decoded{.shard = {TableId(replica.table()), ShardId(replica.shard())},
                          .term = Term(replica.term()),
                          .node = replica.node_id(),
                          .incarnation = Incarnation(replica.incarnation())};
    if (replica.state() == v1::ReplicaState::UNREACHABLE) {
      decoded.state = ReplicaReport::State::kUnreachable;
    } else if (replica.state() != v1::ReplicaState::FILLED) {
      continue;
    }
    report.replicas.push_back(std::move(decoded));
  }
}

// Skips a checkpoint in a state that this program does not know.
void DecodeCheckpoints(const v1::TableState& table, TableReport& report) {
  for (const v1::CheckpointState& state : table.checkpoints()) {
    CheckpointReport decoded{.id = CheckpointId(state.checkpoint_id()),
                             .state = CheckpointReport::State::kCaptured,
                             .parts = {},
                             .error = Cut(state.error(), kErrorBytesMax),
                             .not_kept = Cut(state.not_kept(), kErrorBytesMax)};
    if (state.state() == v1::CheckpointState::WRITTEN) {
      decoded.state = CheckpointReport::State::kWritten;
    } else if (state.state() == v1::CheckpointState::FAILED) {
      decoded.state = CheckpointReport::State::kFailed;
    } else if (state.state() != v1::CheckpointState::CAPTURED) {
      continue;
    }
    for (const v1::CheckpointPart& part : state.parts()) decoded.parts.push_back(DecodePart(part));
    report.checkpoints.push_back(std::move(decoded));
  }
}

absl::StatusOr<Making> DecodeMaking(const v1::Making& making) {
  const Making decoded{
      .made = making.made(), .total = making.total(), .progress = making.progress()};
  if (decoded.made >= 0 && decoded.made <= decoded.total) return decoded;
  return absl::InvalidArgumentError(
      absl::StrCat("making: ", decoded.made, " of ", decoded.total,
                   " shards, expected 0 or more of at least as many"));
}

absl::StatusOr<std::vector<StoredShard>> DecodeStored(const v1::RegisterRequest& request) {
  if (request.stored_size() > kStoredMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("stored: ", request.stored_size(), " shards, expected at most ", kStoredMax));
  }
  std::vector<StoredShard> stored;
  for (const v1::StoredShard& shard : request.stored()) {
    stored.push_back({.job = shard.job_id(),
                      .shard = {TableId(shard.table()), ShardId(shard.shard())},
                      .term = Term(shard.term()),
                      .position = Position(shard.position()),
                      .unique_id = Cut(shard.unique_id(), kNameBytesMax),
                      .incarnation = Incarnation(shard.incarnation()),
                      .seen = DecodeRevision(shard.seen())});
  }
  return stored;
}

absl::StatusOr<std::vector<PluginRule>> DecodePluginRules(const v1::RegisterRequest& request) {
  if (request.plugin_rules_size() > kPluginRulesMax) {
    return absl::InvalidArgumentError(absl::StrCat("plugin_rules: ", request.plugin_rules_size(),
                                                   ", expected at most ", kPluginRulesMax));
  }
  std::vector<PluginRule> rules;
  for (const v1::PluginRule& rule : request.plugin_rules()) {
    if (rule.name().size() > kNameBytesMax || rule.digest().size() != kDigestBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("plugin_rules: \"", Cut(rule.name(), kNameBytesMax), "\" with a digest of ",
                       rule.digest().size(), " characters, expected a name of at most ",
                       kNameBytesMax, " and ", kDigestBytes));
    }
    rules.push_back({.name = rule.name(), .digest = rule.digest()});
  }
  return rules;
}

absl::Status CheckAddress(const std::string& text) {
  const absl::StatusOr<HostPort> address = ParseHostPort(Cut(text, kNameBytesMax));
  if (!address.ok()) return address.status();
  if (text.size() <= kNameBytesMax && address->port != 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("address \"", Cut(text, kNameBytesMax), "\" of ",
                                                 text.size(), " bytes: expected at most ",
                                                 kNameBytesMax, " and a port above 0"));
}

}  // namespace

absl::StatusOr<NodeInfo> DecodeNodeInfo(const v1::RegisterRequest& request) {
  CAPSTAN_RETURN_IF_ERROR(CheckProtocolVersion(request.protocol_version()));
  if (request.role() != v1::SERVER && request.role() != v1::WORKER) {
    return absl::InvalidArgumentError(
        absl::StrCat("role: ", static_cast<int>(request.role()), ", expected SERVER or WORKER"));
  }
  CAPSTAN_RETURN_IF_ERROR(CheckAddress(request.address()));
  CAPSTAN_ASSIGN_OR_RETURN(std::vector<StoredShard> stored, DecodeStored(request));
  CAPSTAN_ASSIGN_OR_RETURN(Devices devices, DevicesFromProto(request.devices()));
  CAPSTAN_ASSIGN_OR_RETURN(std::vector<PluginRule> rules, DecodePluginRules(request));
  return NodeInfo{.name = request.name(),
                  .role = request.role() == v1::SERVER ? Role::kServer : Role::kWorker,
                  .address = request.address(),
                  .task_capacity = request.task_capacity(),
                  .hostname = Cut(request.hostname(), kNameBytesMax),
                  .pid = request.pid(),
                  .version = Cut(request.version(), kNameBytesMax),
                  .stored = std::move(stored),
                  .devices = std::move(devices),
                  .identity = Cut(request.identity(), kNameBytesMax),
                  .plugin_rules = std::move(rules)};
}

absl::Status CheckKeptLogs(const v1::RegisterRequest& request) {
  if (request.logs_size() > kLogsToldMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("logs: ", request.logs_size(), ", expected at most ", kLogsToldMax));
  }
  for (const v1::KeptLog& log : request.logs()) {
    const std::string& id = log.unique_id();
    if (id.empty() || id.size() > kUniqueIdBytesMax ||
        id.find_first_not_of("0123456789abcdef-") != std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat("logs: unique_id \"", Cut(id, kNameBytesMax),
                                                     "\", expected 1 to ", kUniqueIdBytesMax,
                                                     " characters of [0-9a-f-]"));
    }
    if (log.job_id().size() > kNameBytesMax || log.record().size() > kJobRecordBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          "logs: ", id, ": a job id of ", log.job_id().size(), " bytes, a record of ",
          log.record().size(), ", expected at most ", kNameBytesMax, " and ", kJobRecordBytesMax));
    }
  }
  return absl::OkStatus();
}

void EncodeRegistration(const Registration& registration, v1::RegisterResponse& out) {
  out.set_node_id(registration.node);
  out.set_incarnation(registration.incarnation.value());
  out.set_lease_ms(absl::ToInt64Milliseconds(registration.lease));
  out.set_sync_interval_ms(absl::ToInt64Milliseconds(registration.sync_interval));
  out.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
  out.set_read_lease_ms(absl::ToInt64Milliseconds(registration.read_lease));
  for (const std::string& log : registration.living_logs) out.add_living_logs(log);
}

absl::StatusOr<NodeReport> DecodeNodeReport(const v1::SyncNodeRequest& request) {
  NodeReport report{.node = request.node_id(),
                    .incarnation = Incarnation(request.incarnation()),
                    .generation_seen = Generation(request.generation_seen()),
                    .tables = {},
                    .tasks = {},
                    .leaving = request.leaving(),
                    .revision_seen = DecodeRevision(request.revision_seen())};
  for (const v1::TableState& table : request.tables()) {
    TableReport& decoded = report.tables.emplace_back();
    decoded.job = table.job_id();
    decoded.routing = Generation(table.routing_generation());
    decoded.membership = Generation(table.membership_generation());
    decoded.failure = DecodeFailure(table.failure());
    decoded.logs_begun = table.logs_begun();
    if (table.has_version_max()) decoded.version_max = Version(table.version_max());
    DecodeReplicas(table, decoded);
    DecodeCheckpoints(table, decoded);
    if (!table.has_making()) continue;
    absl::StatusOr<Making> making = DecodeMaking(table.making());
    if (!making.ok()) return Annotate(making.status(), absl::StrCat("tables: ", table.job_id()));
    decoded.making = *making;
  }
  for (const v1::TaskState& task : request.tasks()) {
    if (task.rank() < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("tasks: rank ", task.rank(), " of ", task.job_id(), ", expected 0 or more"));
    }
    report.tasks.push_back(
        {.task = {task.job_id(), Rank(task.rank()), Incarnation(task.incarnation())},
         .exited = task.exited(),
         .exit = {task.exit_code(), task.signal(), Cut(task.last_lines(), kLastLinesBytesMax)}});
  }
  return report;
}

void EncodeNodeReply(const NodeReply& reply, const AdmittedJobs& jobs, const JobRecords& records,
                     v1::SyncNodeResponse& out) {
  out.set_generation(reply.generation.value());
  out.set_may_stop(reply.may_stop);
  EncodeRevision(reply.revision, *out.mutable_revision());
  for (const TableAssignment& table : reply.tables) {
    EncodeTables(table, *jobs.at(table.routing->job), *out.add_tables());
    const auto record = records.find(table.routing->job);
    if (record == records.end() || table.record == 0) continue;
    out.mutable_tables()->rbegin()->set_record(*record->second);
  }
  auto gpus = reply.gpus.begin();  // Same order as the tasks.
  for (const TaskKey& task : reply.tasks) {
    v1::TaskAssignment& assignment = *out.add_tasks();
    assignment.set_job_id(task.job);
    assignment.set_rank(task.rank.value());
    assignment.set_incarnation(task.incarnation.value());
    *assignment.mutable_spec() = jobs.at(task.job)->spec;
    assignment.set_owner(jobs.at(task.job)->plan.owner);
    if (gpus == reply.gpus.end() || gpus->task != task) continue;
    assignment.mutable_gpus()->Add(gpus->gpus.begin(), gpus->gpus.end());
    ++gpus;
  }
}

}  // namespace capstan::scheduler
