// ShardFactory: makes shards of one job: with their initial values, or from a snapshot.
//
// Thread safety: thread-safe (constant after construction), so that shards can be made while others
// are in use.
#ifndef CAPSTAN_SERVER_STORE_TABLES_SHARD_FACTORY_H_
#define CAPSTAN_SERVER_STORE_TABLES_SHARD_FACTORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"
#include "server/core/consistency/consistency_policy.h"
#include "server/core/replication/held_shard.h"
#include "server/device/shard_device.h"
#include "server/optimizer/optimizer.h"
#include "server/optimizer/plugin/plugin_rules.h"
#include "server/store/dense/dense_store.h"
#include "server/store/memory_budget.h"
#include "server/store/row_disk.h"
#include "server/store/shard_store.h"
#include "server/store/tables/table_shard.h"

namespace capstan::server {

struct JobTablesConfig {
  std::vector<v1::TableSpec> tables;  // Ordered by index.
  OptimizerConfig optimizer;          // Updates tables that have none of their own.
  ConsistencyRule consistency;
  uint64_t seed = 0;
  JobId job;
  std::shared_ptr<MemoryBudget> budget;  // Shared with the server. Null: no limit.
  // Outlives the shards. Null: no table may limit its memory.
  RowDisks* disks = nullptr;
  // Outlives the shards. Null: dense shards are the host's.
  ShardDevice* device = nullptr;
  const PluginRules* plugins = nullptr;  // Outlives the factory. Null: none.
};

class ShardFactory {
 public:
  // Errors: kInvalidArgument    a table that cannot be, or is given twice; names it. Corrections of
  //         late gradients of rows, or rate_by_staleness with a rule that it does not fit.
  //         kFailedPrecondition a table is to keep rows on disk, and there is none.
  static absl::StatusOr<std::shared_ptr<const ShardFactory>> Make(JobTablesConfig config);

  // Errors: kInvalidArgument    no such table, or a range that cannot be; names the shard.
  absl::Status Check(const HeldShard& shard) const;

  // Makes the shard with its initial values, at version 0. Errors: as Check; also
  //         kResourceExhausted  no memory, or beyond the budget.
  absl::StatusOr<TableShard> Initial(const HeldShard& shard) const;
  // Errors: as Initial; kDataLoss  the snapshot does not fit the shard, or cannot be.
  absl::StatusOr<TableShard> FromSnapshot(const HeldShard& shard,
                                          const v1::ShardSnapshot& snapshot) const;

  // Opens an empty account in the job's budget for memory that belongs to no shard. One of each
  // kind. Errors: those of MemoryBudget::Reserve.
  enum class Account { kKeyLists, kSnapshots, kInstalls };
  absl::StatusOr<MemoryBudget::Reservation> OpenAccount(Account of) const;

  bool MayKeepRowsOnDisk() const;  // A table has a limit of memory.
  const std::string& NameOfTable(TableId table) const { return tables_.at(table).spec.name(); }

 private:
  struct Table {
    v1::TableSpec spec;
    OptimizerConfig optimizer;  // Its own, or the job's.
  };
  explicit ShardFactory(JobTablesConfig config) : config_(std::move(config)) {}

  absl::StatusOr<std::vector<UpdateSegment>> MakeSegments(const HeldShard& shard) const;
  // Whether shards of the table hold tensors whole.
  static bool HoldsWholeTensors(const Table& table);
  absl::Status AddTable(const v1::TableSpec& spec);
  absl::Status CheckCorrections(const Table& table) const;
  // REQUIRES for these two: Check is OK.
  ConsistencyRule ConsistencyOf(const HeldShard& shard) const;
  int64_t TtlSecondsOf(const HeldShard& shard) const;
  absl::Status CheckDisks() const;
  enum class Contents { kInitialValues, kToBeRestored };
  absl::StatusOr<std::unique_ptr<ShardStore>> MakeStore(const HeldShard& shard,
                                                        Contents contents) const;
  // The numbers of a new shard, and the reservation of their memory.
  struct Room {
    std::unique_ptr<ShardStore> store;
    MemoryBudget::Reservation memory;
  };
  absl::StatusOr<Room> MakeRoom(const HeldShard& shard, Contents contents) const;

  const JobTablesConfig config_;
  std::map<TableId, Table> tables_;  // The tables of config_, keyed by index.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_TABLES_SHARD_FACTORY_H_
