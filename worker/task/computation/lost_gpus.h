// Lost GPUs: an error's status carries the indices of the task's GPUs that have failed.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_WORKER_TASK_COMPUTATION_LOST_GPUS_H_
#define CAPSTAN_WORKER_TASK_COMPUTATION_LOST_GPUS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace capstan::worker {

// Adds these GPUs, by index, to the error. An OK status, or one with no GPUs, stays as it is.
absl::Status WithLostGpus(absl::Status status, absl::Span<const int> gpus);

// The GPUs that the status names. Empty: it names none.
std::vector<int> LostGpusOf(const absl::Status& status);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_COMPUTATION_LOST_GPUS_H_
