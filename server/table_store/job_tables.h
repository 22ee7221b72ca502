// JobTables: the shards of one job on this server, each a core and its numbers.
//
// Makes the shards that a routing table gives this server, with their initial values, and carries
// every core's actions out in their order. Answers go to a ReplySink, with the values in view.
// Thread safety: thread-compatible; HeldJob serializes all calls.
#ifndef CAPSTAN_SERVER_TABLE_STORE_JOB_TABLES_H_
#define CAPSTAN_SERVER_TABLE_STORE_JOB_TABLES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"
#include "server/core/consistency_policy.h"
#include "server/core/membership.h"
#include "server/core/messages.h"
#include "server/core/shard_core.h"
#include "server/optimizer/optimizer.h"
#include "server/table_store/shard_store.h"

namespace capstan::server {

// A shard that this server holds: elements of its table.
struct HeldShard {
  ShardKey key;
  Range elements;
};

struct JobTablesConfig {
  std::vector<v1::TableSpec> tables;  // In the order of their index.
  OptimizerConfig optimizer;          // Of tables whose rule is OPTIMIZER.
  ConsistencyConfig consistency;
  uint64_t seed = 0;
  std::vector<HeldShard> shards;  // Each key at most once.
};

// Takes answers in. `values` is what the reply reads (empty if nothing) and valid during the call
// only.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  virtual void OnPush(const ShardKey& key, const ReplyPush& reply) = 0;
  virtual void OnPull(const ShardKey& key, const ReplyPull& reply,
                      absl::Span<const float> values) = 0;
};

class JobTables {
 public:
  // Elements of the largest shard: 4 MiB of fp32.
  static constexpr int64_t kShardElementsMax = 1 << 20;

  // Errors: kInvalidArgument    a table, range or rule that cannot be; names it.
  //         kResourceExhausted  no memory for the shards.
  static absl::StatusOr<std::unique_ptr<JobTables>> Make(const JobTablesConfig& config);

  // Errors: kNotFound  the shard is not held here; says which are.
  absl::StatusOr<int64_t> ElementsOf(const ShardKey& key) const;

  // As ShardCore's methods of the same names. REQUIRES: the shard is held; `gradient` has its
  // elements.
  // Errors: also kResourceExhausted once memory for a gradient has run out (see failure()).
  absl::Status CheckPush(const ShardKey& key, const PushHead& push) const;
  absl::Status CheckPull(const ShardKey& key, const PullHead& pull) const;
  absl::Status Push(const ShardKey& key, const PushHead& push, absl::Span<const float> gradient,
                    ReplySink& sink);
  absl::Status Pull(const ShardKey& key, const PullHead& pull, Instant now, ReplySink& sink);
  void CancelPull(const ShardKey& key, PullToken token);
  void SetMembership(const Membership& membership, ReplySink& sink);
  void Tick(Instant now, ReplySink& sink);
  Instant NextDeadline() const;

  // Not OK: these tables have lost a push for want of memory and refuse everything.
  const absl::Status& failure() const { return failure_; }

  std::vector<HeldShard> shards() const;  // Ordered by key.
  // One entry a table that has shards here; job_id is left empty.
  std::vector<v1::HeldTable> Describe() const;

 private:
  struct Shard {
    Range elements;
    ShardCore core;
    ShardStore store;
  };
  JobTables() = default;

  static absl::StatusOr<Shard> MakeShard(const JobTablesConfig& config, const v1::TableSpec& table,
                                         const HeldShard& held);
  absl::Status CarryOut(const ShardKey& key, Shard& shard, const Actions& actions,
                        absl::Span<const float> payload, ReplySink& sink);

  absl::btree_map<TableId, std::string> table_names_;
  absl::btree_map<ShardKey, Shard> shards_;
  absl::Status failure_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_TABLE_STORE_JOB_TABLES_H_
