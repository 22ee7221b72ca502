#include "worker/task/computation/computation.h"

#include <memory>
#include <vector>

#include "worker/task/computation/dense_computation.h"
#include "worker/task/computation/sparse_computation.h"

namespace capstan::worker {

absl::StatusOr<std::unique_ptr<Computation>> Computation::Create(const v1::JobSpec& job,
                                                                 const std::vector<int>& gpus,
                                                                 const Progress& progress,
                                                                 StepObserver* observer) {
  if (job.model().has_sparse()) return SparseComputation::Create(job, progress);
  return DenseComputation::Create(job, gpus, observer);
}

}  // namespace capstan::worker
