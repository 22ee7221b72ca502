// Ids and counters of the whole system: one word, one meaning (see the glossary in README.md).
//
// All are logical: none derives from a wall clock. Thread safety: values.
#ifndef CAPSTAN_COMMON_TYPES_IDS_H_
#define CAPSTAN_COMMON_TYPES_IDS_H_

#include <cstdint>
#include <string>

#include "common/types/strong_int.h"

namespace capstan {

// A job's name in the system, unique per scheduler store: "lenet-fashion-3".
using JobId = std::string;
// A daemon's name, unique among live daemons: "server-1".
using NodeId = std::string;

// One process lifetime, issued by the scheduler; a later one has a higher number. Never 0
// when issued.
using Incarnation = StrongInt<struct IncarnationTag, uint64_t>;
// Position of a worker task in its job: [0, workers). A restarted task keeps its rank.
using Rank = StrongInt<struct RankTag, int32_t>;
// A worker's step; the first is 0.
using Iteration = StrongInt<struct IterationTag, int64_t>;
// Count of updates applied to a shard; the initial values are version 0.
using Version = StrongInt<struct VersionTag, int64_t>;
// A pass over the data; the first is 0.
using Epoch = StrongInt<struct EpochTag, int32_t>;
// Number of a routing table, membership or assignment; a higher one replaces a lower one.
using Generation = StrongInt<struct GenerationTag, uint64_t>;
// Number of a push of one task incarnation to one shard, from 1 up without gaps.
using Sequence = StrongInt<struct SequenceTag, uint64_t>;
// Index of a table in its job.
using TableId = StrongInt<struct TableIdTag, int32_t>;
// Index of a shard in its table.
using ShardId = StrongInt<struct ShardIdTag, int32_t>;
// Index of a micro-batch in a BSP iteration: [0, slots).
using SlotId = StrongInt<struct SlotIdTag, int32_t>;
// Number of a shard's time under one primary: the routing generation that made it the primary. A
// higher term fences a lower one off.
using Term = StrongInt<struct TermTag, uint64_t>;
// Count of records (changes of state) that a shard has made since it was created.
using Position = StrongInt<struct PositionTag, int64_t>;
// A checkpoint, unique in its job, from 1 up.
using CheckpointId = StrongInt<struct CheckpointIdTag, uint64_t>;
// A sample lease, unique in its job.
using LeaseId = StrongInt<struct LeaseIdTag, uint64_t>;

// A shard of a job: the unit of placement, replication and versioning.
struct ShardKey {
  TableId table;
  ShardId shard;
  friend auto operator<=>(const ShardKey&, const ShardKey&) = default;
};

// "table 0 shard 3".
inline std::string NameOf(const ShardKey& key) {
  return "table " + std::to_string(key.table.value()) + " shard " +
         std::to_string(key.shard.value());
}

// A half-open range [begin, end); empty if begin == end.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
  friend auto operator<=>(const Range&, const Range&) = default;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TYPES_IDS_H_
