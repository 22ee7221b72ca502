// Workload: a job that a simulated world trains, and its trainer.
//
// SSP, ASP: gradients are whole numbers that depend on the samples alone, and the rule is SGD with
// a learning rate of 1: sums are exact in fp32 in any order, so that the final table says which
// pushes it contains (checkers/exactly_once_ledger.h).
// BSP: gradients are floats computed from the pulled parameters, each element from all of them, so
// that one wrong or torn read changes the bits of everything after it (checkers/reference_bits.h).
// BSP with backups: a gradient names its slot and whether its iteration is even
// (checkers/backup_slots.h).
// Thread safety: thread-compatible; constant after construction.
#ifndef CAPSTAN_TESTS_SIMULATION_WORLD_WORKLOAD_H_
#define CAPSTAN_TESTS_SIMULATION_WORLD_WORKLOAD_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "common/types/ids.h"
#include "scheduler/admission/admission.h"
#include "tests/simulation/world/checker.h"
#include "tests/simulation/world/job_options.h"
#include "worker/client/messages/message_codec.h"

namespace capstan::sim {

using Arrays = std::vector<std::vector<float>>;  // One array a table.

class Workload {
 public:
  explicit Workload(const JobOptions& options);

  const std::shared_ptr<const scheduler::AdmittedJob>& job() const { return job_; }
  const std::vector<v1::TableSpec>& tables() const { return job_->tables; }
  // Every element of the gradient of a slot, in jobs with backups. The sums of all iterations are
  // exact in fp32.
  static float SlotGradient(Iteration iteration, int64_t slot);
  const JobOptions& options() const { return options_; }

  // Table 0 is sparse, and its specification says that keys wait for rows, or that rows leave.
  bool rows_come_and_go() const { return options_.row_lifetime != RowLifetime(); }

  // Sparse tables: the rows of all keys, in the order of messages.
  Arrays InitialValues() const;
  Arrays Zeros() const;

  // The keys of the sparse table, if there is one.
  const worker::AllTableKeys& keys() const { return keys_; }
  // The place of a shard's values in its table's array.
  Range PartOf(const ShardKey& shard, const Range& elements) const;
  // The part of a gradient that a push sends: all rows, or, where a row without gradient stays as
  // it is, only the rows that have one.
  struct Named {
    std::shared_ptr<const Arrays> values;
    worker::AllTableKeys keys;
  };
  Named NamedRows(std::shared_ptr<const Arrays> gradient) const;

  // The forward pass's result for the backward pass. Reads all of `parameters`.
  float Forward(const Batch& batch, const Arrays& parameters) const;
  // Elements [begin, end) of a table's gradient. Reads these elements of `parameters` only.
  // `samples`: by which the gradient is divided (BSP).
  void Backward(const Batch& batch, float forward, int64_t samples, const Arrays& parameters,
                int table, int64_t begin, int64_t end, Arrays* gradient) const;

 private:
  // BSP without backups: gradients depend on the parameters.
  bool reads_parameters() const {
    return options_.mode == ConsistencyMode::kBsp && options_.backups == 0;
  }
  float SampleTerm(const Batch& batch, int64_t position, int table, int64_t element) const;
  bool Touches(const Batch& batch, int table, int64_t element) const;

  const JobOptions options_;
  std::shared_ptr<const scheduler::AdmittedJob> job_;
  worker::AllTableKeys keys_;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_WORLD_WORKLOAD_H_
