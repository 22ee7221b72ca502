#include "worker/task/task_options.h"

#include <algorithm>

#include "common/model/tables.h"
#include "common/wire/number_format.h"
#include "worker/client/shared_lane.h"

namespace capstan::worker {
namespace {

constexpr int kOperationsMin = 64;  // Of the session's bound.

bool IsBsp(const v1::JobSpec& job) {
  return !job.consistency().has_ssp() && !job.consistency().has_asp();
}

int Slots(const v1::JobSpec& job) {
  return job.training().has_slots() ? job.training().slots() : job.resources().workers();
}

}  // namespace

Acknowledgement AcknowledgementOf(const v1::JobSpec& job) {
  const bool committed = job.resources().replicas() > 0 || job.durability() == v1::LOG;
  return IsBsp(job) && committed ? Acknowledgement::kWholeIteration : Acknowledgement::kEachPush;
}

PushPullSession::Options SessionOptions(const v1::JobSpec& job) {
  PushPullSession::Options options{.acknowledgement = AcknowledgementOf(job)};
  // A task may hold every slot of an iteration, be given slots of another one, and pull.
  options.operations_max = std::max(kOperationsMin, 2 * Slots(job) + 2);
  options.exact_snapshots = job.wire().parameters() != v1::FP32;
  return options;
}

Formats WireFormats(const v1::JobSpec& job) {
  Formats formats(static_cast<size_t>(kParametersTable) + 1);
  formats[static_cast<size_t>(kParametersTable)] = {
      .gradients = FormatOf(job.wire().gradients()),
      .parameters = FormatOf(job.wire().parameters())};
  return formats;
}

int64_t SharedMemoryBytes(const v1::JobSpec& job) {
  return job.wire().shared_memory() == v1::OFF ? 0 : SharedLane::kBytesDefault;
}

TaskBoard::Options BoardOptions(const v1::JobSpec& job, int64_t evaluation_batch_size) {
  return {.bsp = IsBsp(job),
          .slots = Slots(job),
          .batch_size = job.training().batch_size(),
          .evaluation_batch_size = evaluation_batch_size};
}

}  // namespace capstan::worker
