// KeptMoments: what a server held when it kept a moment for readers; every answer to a reader is
// held against it.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_WORLD_KEPT_MOMENTS_H_
#define CAPSTAN_TESTS_SIMULATION_WORLD_KEPT_MOMENTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "proto/snapshot.pb.h"
#include "server/engine/job/held_job.h"

namespace capstan::sim {

class KeptMoments {
 public:
  // `buckets`: of the sparse table, if the job has one.
  explicit KeptMoments(int32_t buckets) : buckets_(buckets) {}

  // `server`: the number of its endpoint. To be called as soon as a callback of the server is over
  // that may have kept one: nothing has come in between. An id that was not open at the last look
  // is a new snapshot, also where the scheduler has given the id out before.
  void Look(int server, server::HeldJob& job);
  // Keys of rows that the shard had then.
  std::vector<uint64_t> KeysOf(int server, uint64_t snapshot, const ShardKey& shard) const;
  // The error of the answer; empty: none.
  std::string Check(int server, const v1::ReadSnapshotRequest& request,
                    const v1::ReadSnapshotResponse& response) const;

 private:
  using Moment = std::map<ShardKey, v1::ShardSnapshot>;
  static constexpr size_t kMomentsMax = 32;  // Moments of a server; the oldest are forgotten.

  const v1::ShardSnapshot* Find(int server, uint64_t snapshot, const ShardKey& shard) const;

  const int32_t buckets_;
  std::map<int, std::map<uint64_t, Moment>> kept_;  // Keyed by server, then by snapshot.
  std::map<int, std::vector<CheckpointId>>
      open_;  // Keyed by server: open snapshots at the last look.
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_WORLD_KEPT_MOMENTS_H_
