// ServerAgent: how a job and its shards are made.
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/spec/consistency_of.h"
#include "common/security/capability.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "server/agent/server_agent.h"
#include "server/engine/record_sink.h"
#include "server/optimizer/config/optimizer_from_proto.h"
#include "server/store/tables/shard_factory.h"

namespace capstan::server {
namespace {

// Makes a shard out of what a log holds.
class ShardFromLog final : public ShardReader {
 public:
  ShardFromLog(const ShardFactory& factory, const HeldShard& held)
      : factory_(factory), held_(held) {}

  absl::Status Install(const v1::ShardSnapshot& snapshot) override {
    CAPSTAN_ASSIGN_OR_RETURN(TableShard made, factory_.FromSnapshot(held_, snapshot));
    shard_.emplace(std::move(made));
    return absl::OkStatus();
  }
  absl::Status Replay(const v1::ShardRecord& record) override {
    if (!shard_.has_value()) {
      return absl::DataLossError(absl::StrCat("the log begins with record ", record.position(),
                                              ": expected a whole state first"));
    }
    return shard_->Replay(held_.key, record);
  }

  std::optional<TableShard> Take() { return std::exchange(shard_, std::nullopt); }

 private:
  const ShardFactory& factory_;
  const HeldShard held_;
  std::optional<TableShard> shard_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<HeldJob>> ServerAgent::MakeJob(const v1::TableAssignment& desired) {
  const bool logs = desired.durability() == v1::LOG;
  if (!IsUniqueId(desired.unique_id())) {
    return absl::InvalidArgumentError(absl::StrCat("unique_id: \"", desired.unique_id(),
                                                   "\", expected at most ", kUniqueIdBytesMax,
                                                   " characters of [0-9a-f-]"));
  }
  if (logs && options_.log == nullptr) {
    return absl::InvalidArgumentError(
        "durability LOG: this server keeps no log; start it with a folder for its logs");
  }
  JobTablesConfig config;
  config.tables.assign(desired.tables().begin(), desired.tables().end());
  CAPSTAN_ASSIGN_OR_RETURN(config.optimizer,
                           OptimizerFromProto(desired.optimizer(), options_.plugins));
  config.consistency = ConsistencyOf(desired.consistency(), desired.slots());
  config.seed = desired.seed();
  config.job = desired.job_id();
  config.budget = options_.budget;
  config.disks = options_.row_disks;
  config.device = options_.device;
  config.plugins = options_.plugins;
  CAPSTAN_ASSIGN_OR_RETURN(auto factory, ShardFactory::Make(std::move(config)));
  std::optional<CapabilityKey> key;  // A scheduler of an earlier version sends none.
  if (!desired.capability_key().empty()) {
    CAPSTAN_ASSIGN_OR_RETURN(key, CapabilityKey::FromBytes(desired.capability_key()));
  }
  HeldJob::Options options{.job = desired.job_id(),
                           .unique_id = desired.unique_id(),
                           .node = {},
                           .incarnation = {},
                           .capability_key = std::move(key),
                           .owner = desired.owner(),
                           .safe_replies = logs || desired.replicas() > 0,
                           .clock = options_.clock,
                           .transport = options_.transport,
                           .log = logs ? options_.log : nullptr,
                           .snapshots = options_.snapshots,
                           .schedule_tick = options_.schedule_tick,
                           .on_report = options_.on_change};
  {
    absl::MutexLock lock(&mutex_);
    options.node = node_id_;
    options.incarnation = incarnation_;
  }
  if (logs) options_.log->Identify(desired.job_id(), desired.unique_id());
  return std::make_shared<HeldJob>(std::move(options), std::move(factory));
}

absl::StatusOr<std::vector<MadeShard>> ServerAgent::MakeShards(const Order& order,
                                                               const v1::TableAssignment& desired,
                                                               const HeldJob& job) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<ShardOrder> missing,
                           job.assignment().MissingShards(desired.routing(), SourcesOf(desired)));
  if (options_.source != nullptr) options_.source->BeginMaking();
  std::vector<MadeShard> made;
  for (const ShardOrder& each : missing) {
    CAPSTAN_RETURN_IF_ERROR(NoteMade(order, desired, made.size(), missing.size()));
    absl::StatusOr<TableShard> shard = MakeShard(desired, job, each);
    if (!shard.ok()) return Annotate(shard.status(), "making tables");
    made.push_back({.order = each, .shard = *std::move(shard)});
  }
  CAPSTAN_RETURN_IF_ERROR(NoteMade(order, desired, made.size(), missing.size()));
  return made;
}

absl::Status ServerAgent::NoteMade(const Order& order, const v1::TableAssignment& desired,
                                   size_t made, size_t to_make) {
  absl::MutexLock lock(&mutex_);
  ++making_progress_;
  Entry* entry = FindEntry(order);
  if (stopping_ || entry == nullptr || HaveOtherSources(entry->desired, desired)) {
    return absl::CancelledError("the shards in the making are wanted no more");
  }
  entry->made = static_cast<int>(made);
  entry->to_make = static_cast<int>(to_make);
  return absl::OkStatus();
}

absl::StatusOr<TableShard> ServerAgent::MakeShard(const v1::TableAssignment& desired,
                                                  const HeldJob& job, const ShardOrder& order) {
  if (order.from == ShardOrder::From::kInitialValues) return job.factory().Initial(order.shard);
  const ShardKey& key = order.shard.key;
  const bool begins_anew =
      order.from == ShardOrder::From::kCheckpoint && desired.restore_folder().empty();
  if (begins_anew) return job.factory().Initial(order.shard);
  if (options_.source == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(key), " is to be restored: this server has no folder for its state"));
  }
  if (order.from == ShardOrder::From::kCheckpoint) {
    const absl::StatusOr<v1::ShardSnapshot> snapshot =
        options_.source->FromCheckpoint(desired.restore_folder(), key);
    if (!snapshot.ok()) return Annotate(snapshot.status(), NameOf(key));
    return job.factory().FromSnapshot(order.shard, *snapshot);
  }
  ShardFromLog reader(job.factory(), order.shard);
  CAPSTAN_RETURN_IF_ERROR(Annotate(options_.source->FromLog(job.job(), key, reader), NameOf(key)));
  std::optional<TableShard> shard = reader.Take();
  if (!shard.has_value()) {
    return absl::DataLossError(absl::StrCat(NameOf(key), ": its log holds no whole state"));
  }
  return *std::move(shard);
}

}  // namespace capstan::server
