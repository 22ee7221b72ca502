// A replacement for NCCL on emulated GPUs: it implements the functions of NcclLibrary for fp32
// arrays.
//
// HostCollective (kernels/testing/host_collective.h) computes. Each member's stream gets its part
// of a call, with no more order than NCCL promises: a member that sends copies its values and goes
// on; a member that receives waits for those that send. After a reduction only the root has waited.
//
// It refuses calls for which NCCL would wait for ever: all members must be in a group, with equal
// calls. It also refuses a root other than member 0, operations other than sums and types other
// than fp32, which Capstan does not use.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/emulation/runtime.h"
#include "kernels/cuda/plugin/nccl_library.h"
#include "kernels/testing/host_collective.h"

namespace capstan::kernels::cuda {
namespace {

// The state that the communicators of one collective share, also with enqueued work.
struct Clique {
  size_t size = 0;
  std::atomic<bool> aborted = false;
  std::atomic<ncclResult_t> error = ncclSuccess;
};

}  // namespace
}  // namespace capstan::kernels::cuda

struct ncclComm {
  std::shared_ptr<capstan::kernels::cuda::Clique> clique;
  size_t rank = 0;
  int device = 0;
};

namespace capstan::kernels::cuda {
namespace {

// The call of one member.
struct Call {
  CollectiveKind kind;
  const void* send;
  void* receive;
  size_t count;
  ncclComm_t communicator;
  cudaStream_t stream;
};

thread_local bool group_is_open = false;
thread_local std::vector<Call> group_calls;
thread_local const char* last_error = "";

ncclResult_t Refuse(const char* why) {
  last_error = why;
  return ncclInvalidUsage;
}

// Makes a device the thread's current device, as long as it lives.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    cudaGetDevice(&before_);
    cudaSetDevice(device);
  }
  ~OnDevice() { cudaSetDevice(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
};

// Makes the later work of `then`'s stream wait for the work on `first`'s stream so far.
void Order(const Call& first, const Call& then) {
  cudaEvent_t event = nullptr;
  {
    const OnDevice device(first.communicator->device);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaEventRecord(event, first.stream);
  }
  const OnDevice device(then.communicator->device);
  cudaStreamWaitEvent(then.stream, event, 0);
  cudaEventDestroy(event);
}

// Enqueues work on a member's array. The work does not run once the clique is aborted.
cudaError_t EnqueueOn(const Call& call, const void* array, int64_t count,
                      std::function<void()> work) {
  const int device = call.communicator->device;
  const OnDevice on_device(device);
  return emulation::Enqueue(call.stream,
                            [array, bytes = 4 * static_cast<size_t>(count), device,
                             clique = call.communicator->clique, work = std::move(work)] {
                              if (clique->aborted) return cudaSuccess;
                              if (!emulation::IsDeviceMemory(device, array, bytes)) {
                                clique->error = ncclUnhandledCudaError;
                                return cudaErrorIllegalAddress;
                              }
                              work();
                              return cudaSuccess;
                            });
}

// Enqueues one call of a clique. REQUIRES: `calls` has the equal calls of all members, by rank.
cudaError_t EnqueueTogether(const std::vector<Call>& calls) {
  const auto shared = std::make_shared<HostCollective>(calls[0].kind, calls.size(),
                                                       static_cast<int64_t>(calls[0].count));
  cudaError_t error = cudaSuccess;
  for (size_t i = 0; i < calls.size() && error == cudaSuccess; ++i) {
    if (!shared->Sends(i)) continue;
    error = EnqueueOn(calls[i], calls[i].send, shared->sent_count(), [shared, i, call = calls[i]] {
      shared->Send(i, static_cast<const float*>(call.send));
    });
  }
  for (size_t i = 0; i < calls.size() && error == cudaSuccess; ++i) {
    if (!shared->Receives(i)) continue;
    for (size_t from = 0; from < calls.size(); ++from) {
      if (from != i && shared->Sends(from)) Order(calls[from], calls[i]);
    }
    error = EnqueueOn(
        calls[i], calls[i].receive, shared->received_count(),
        [shared, i, call = calls[i]] { shared->Receive(i, static_cast<float*>(call.receive)); });
  }
  return error;
}

ncclResult_t RunGroup(std::vector<Call> waiting) {
  while (!waiting.empty()) {
    const Call first = waiting.front();
    const Clique* const clique = first.communicator->clique.get();
    std::vector<Call> together;
    for (size_t rank = 0; rank < clique->size; ++rank) {
      const auto found = std::find_if(waiting.begin(), waiting.end(), [&](const Call& call) {
        return call.communicator->clique.get() == clique && call.communicator->rank == rank;
      });
      if (found == waiting.end() || found->kind != first.kind || found->count != first.count) {
        return Refuse("a member has no part in a call, or another one: it would wait for ever");
      }
      together.push_back(*found);
      waiting.erase(found);
    }
    if (EnqueueTogether(together) != cudaSuccess) return ncclUnhandledCudaError;
  }
  return ncclSuccess;
}

ncclResult_t Add(CollectiveKind kind, const void* send, void* receive, size_t count,
                 ncclDataType_t type, ncclComm_t communicator, cudaStream_t stream) {
  if (!group_is_open || type != ncclFloat32) return Refuse("no group is open, or not of fp32");
  group_calls.push_back({kind, send, receive, count, communicator, stream});
  return ncclSuccess;
}

// Frees the communicator, but not the state that it shares with enqueued work.
ncclResult_t Destroy(ncclComm_t communicator) {
  delete communicator;
  return ncclSuccess;
}

ncclResult_t Abort(ncclComm_t communicator) {
  communicator->clique->aborted = true;
  return Destroy(communicator);
}

ncclResult_t InitAll(ncclComm_t* made, int count, const int* devices) {
  auto clique = std::make_shared<Clique>();
  clique->size = static_cast<size_t>(count);
  for (int i = 0; i < count; ++i)
    made[i] = new ncclComm{clique, static_cast<size_t>(i), devices[i]};
  return ncclSuccess;
}

ncclResult_t GroupStart() {
  group_is_open = true;
  return ncclSuccess;
}

ncclResult_t GroupEnd() {
  group_is_open = false;
  return RunGroup(std::exchange(group_calls, {}));
}

ncclResult_t Broadcast(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                       ncclComm_t communicator, cudaStream_t stream) {
  if (root != 0) return Refuse("the root is not member 0");
  return Add(CollectiveKind::kBroadcast, send, receive, count, type, communicator, stream);
}

ncclResult_t Reduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                    ncclRedOp_t operation, int root, ncclComm_t communicator, cudaStream_t stream) {
  if (root != 0 || operation != ncclSum) return Refuse("the root is not member 0, or no sum");
  return Add(CollectiveKind::kReduce, send, receive, count, type, communicator, stream);
}

template <CollectiveKind kKind>
ncclResult_t Sum(const void* send, void* receive, size_t count, ncclDataType_t type,
                 ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream) {
  if (operation != ncclSum) return Refuse("not a sum");
  return Add(kKind, send, receive, count, type, communicator, stream);
}

ncclResult_t AllGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                       ncclComm_t communicator, cudaStream_t stream) {
  return Add(CollectiveKind::kAllGather, send, receive, count, type, communicator, stream);
}

}  // namespace

absl::StatusOr<NcclLibrary> NcclLibrary::Load(const char*) {
  return NcclLibrary{.get_version =
                         [](int* version) {
                           *version = NCCL_VERSION_CODE;
                           return ncclSuccess;
                         },
                     .get_error_string =
                         [](ncclResult_t result) {
                           return result == ncclUnhandledCudaError ? "unhandled cuda error"
                                                                   : "invalid usage";
                         },
                     .get_last_error = [](ncclComm_t) { return last_error; },
                     .comm_init_all = &InitAll,
                     .comm_destroy = &Destroy,
                     .comm_abort = &Abort,
                     .comm_get_async_error =
                         [](ncclComm_t communicator, ncclResult_t* error) {
                           *error = communicator->clique->error;
                           return ncclSuccess;
                         },
                     .group_start = &GroupStart,
                     .group_end = &GroupEnd,
                     .broadcast = &Broadcast,
                     .reduce = &Reduce,
                     .all_reduce = &Sum<CollectiveKind::kAllReduce>,
                     .reduce_scatter = &Sum<CollectiveKind::kReduceScatter>,
                     .all_gather = &AllGather};
}

}  // namespace capstan::kernels::cuda
