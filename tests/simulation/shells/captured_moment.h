// CapturedMoment: every part of a checkpoint that has all of its shard is what the server held when
// it was captured, whatever was pushed until it was written.
//
// Stands before a server's CheckpointWriter. Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_SHELLS_CAPTURED_MOMENT_H_
#define CAPSTAN_TESTS_SIMULATION_SHELLS_CAPTURED_MOMENT_H_

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "server/agent/table_source.h"
#include "server/engine/job/held_job.h"
#include "tests/simulation/world/world.h"

namespace capstan::sim {

class CapturedMoment final : public server::CheckpointSink {
 public:
  using Held = std::function<std::shared_ptr<server::HeldJob>(const JobId&)>;
  // `held` finds the server's copy of a job, or null. `writer` is of the same incarnation of the
  // server.
  CapturedMoment(World* world, CheckpointSink* writer, Held held)
      : world_(world), writer_(writer), held_(std::move(held)) {}

  void Write(const JobId& job, const v1::CheckpointOrder& order,
             std::vector<server::CapturedShard> shards, Done done) override;

 private:
  void Check(const std::string& folder, const JobId& job, const v1::CheckpointPart& part,
             const std::vector<server::HeldCopy>& copies);

  World* const world_;
  CheckpointSink* const writer_;
  const Held held_;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_SHELLS_CAPTURED_MOMENT_H_
