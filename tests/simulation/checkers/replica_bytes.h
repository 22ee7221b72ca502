// ReplicaBytes: two servers that hold a shard of the same term at the same position hold the same
// bytes: values, the version before, optimizer state, clocks, duplicate marks, fences and
// membership.
//
// This holds at any time; the checker looks at quiet points (an epoch's end, the export) and a few
// times a second. Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_CHECKERS_REPLICA_BYTES_H_
#define CAPSTAN_TESTS_SIMULATION_CHECKERS_REPLICA_BYTES_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "server/engine/job/held_job.h"
#include "tests/simulation/world/checker.h"

namespace capstan::sim {

class ReplicaBytes final : public Checker {
 public:
  // All copies of all servers that live, each server's in a list of its own.
  using Copies = std::function<std::vector<std::vector<server::HeldCopy>>()>;

  explicit ReplicaBytes(Copies copies) : copies_(std::move(copies)) {}

  void Look();
  void Happened(const scheduler::Event& event) override;
  void Exported(const TaskKey& task_key, const std::vector<std::vector<float>>& tables,
                const std::map<TableId, Version>& versions) override;

  int64_t compared() const { return compared_; }  // Pairs of copies, so far.
  // Times that a bucket was looked at that had refused a key a row, or evicted one.
  int64_t refused() const { return refused_; }
  int64_t evicted() const { return evicted_; }

 private:
  void Count(const v1::RowCounts& rows);

  const Copies copies_;
  int64_t compared_ = 0;
  int64_t refused_ = 0;
  int64_t evicted_ = 0;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_CHECKERS_REPLICA_BYTES_H_
