// ShardEngine: one shard that a server is to hold, and the lock under which it changes: its link to
// replicas and the log, and its core and numbers in the job's JobTables.
//
// Operations of a job run at the same time, each with the lock of one shard after another, so that
// the shards of one job keep all cores busy. A thread that waits for a lock holds no other shard's:
// an operation with several locks has taken all but the first by TryLock.
// Thread safety: the members are guarded by the mutex, with those of JobTables for this shard.
#ifndef CAPSTAN_SERVER_ENGINE_SHARD_ENGINE_H_
#define CAPSTAN_SERVER_ENGINE_SHARD_ENGINE_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/shard_link.h"
#include "server/store/tables/shard_factory.h"

namespace capstan::server {

struct ShardEngine {
  ShardEngine(const ShardLink::Options* options, HeldShard shard, uint64_t number)
      : link(options, shard, number) {}

  mutable absl::Mutex mutex;
  ShardLink link ABSL_GUARDED_BY(mutex);
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_SHARD_ENGINE_H_
