// Lost GPUs: which of a task's GPUs an error is of, carried by its status on the way up.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_WORKER_TASK_LOST_GPUS_H_
#define CAPSTAN_WORKER_TASK_LOST_GPUS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace capstan::worker {

// The error with these GPUs, by index; with none of them it stays as it is, as OK does.
absl::Status WithLostGpus(absl::Status status, absl::Span<const int> gpus);

// Empty: the status does not say which.
std::vector<int> LostGpusOf(const absl::Status& status);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_LOST_GPUS_H_
