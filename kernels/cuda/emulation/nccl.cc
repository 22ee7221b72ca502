// NCCL on the host, as far as the backend calls it: GPUs of one process that broadcast and reduce
// fp32. It takes the place of the library that kernels/cuda/nccl_dlopen.cc opens.
//
// A collective is a piece of work on each member's stream, ordered no more than NCCL promises: who
// sends, copies what it sends and goes on; who receives, waits for those that send. So after a
// reduction only the root has waited, and after a broadcast all but the root have. Sums are fp32,
// in the order of ranks.
//
// Stricter than NCCL where that would wait for ever: the calls of a group have to come from all
// members, alike. Wrong usage is said in ncclGetLastError.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/emulation/runtime.h"
#include "kernels/cuda/nccl_library.h"

namespace capstan::kernels::cuda::emulation {
namespace {

// What the communicators that were made together share, also with work that is enqueued.
struct Clique {
  size_t size = 0;
  std::atomic<bool> aborted = false;
  std::atomic<ncclResult_t> error = ncclSuccess;
};

}  // namespace
}  // namespace capstan::kernels::cuda::emulation

struct ncclComm {
  std::shared_ptr<capstan::kernels::cuda::emulation::Clique> clique;
  size_t rank = 0;
  int device = 0;
};

namespace capstan::kernels::cuda::emulation {
namespace {

enum class Kind { kBroadcast, kReduce };

// What one member asks for.
struct Call {
  Kind kind;
  const void* send;
  void* receive;
  size_t count;
  size_t root;
  ncclComm_t communicator;
  cudaStream_t stream;
};

thread_local int group_depth = 0;
thread_local std::vector<Call> group_calls;
thread_local ncclResult_t group_error = ncclSuccess;
thread_local std::string last_error;

ncclResult_t Refuse(ncclResult_t result, std::string why) {
  last_error = std::move(why);
  return result;
}

// Makes a device the thread's, for as long as it lives.
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

// What `first` has enqueued so far comes before what `then` enqueues from now on.
cudaError_t Order(const Call& first, const Call& then) {
  cudaEvent_t event = nullptr;
  {
    const OnDevice device(first.communicator->device);
    cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (error == cudaSuccess) error = cudaEventRecord(event, first.stream);
    if (error != cudaSuccess) return error;
  }
  const OnDevice device(then.communicator->device);
  const cudaError_t error = cudaStreamWaitEvent(then.stream, event, 0);
  cudaEventDestroy(event);
  return error;
}

// What members have sent, by rank, until those who receive have taken it.
using Sent = std::vector<std::vector<float>>;

bool Sends(const Call& call) {
  return call.kind == Kind::kReduce || call.communicator->rank == call.root;
}
bool Receives(const Call& call) {
  return call.kind == Kind::kBroadcast || call.communicator->rank == call.root;
}

// What the root has sent, or the sum of what all have.
std::vector<float> ResultOf(const Call& call, const Sent& sent) {
  if (call.kind == Kind::kBroadcast) return sent[call.root];
  std::vector<float> sums = sent[0];
  for (size_t rank = 1; rank < sent.size(); ++rank) {
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += sent[rank][i];
  }
  return sums;
}

// Enqueues work on a member's array; none of it runs once the clique is aborted.
cudaError_t EnqueueOn(const Call& call, const void* array, std::function<void()> work) {
  const OnDevice on_device(call.communicator->device);
  return Enqueue(call.stream, [array, bytes = 4 * call.count, device = call.communicator->device,
                               clique = call.communicator->clique, work = std::move(work)] {
    if (clique->aborted) return cudaSuccess;
    if (!IsDeviceMemory(device, array, bytes)) {
      clique->error = ncclUnhandledCudaError;
      return cudaErrorIllegalAddress;
    }
    work();
    return cudaSuccess;
  });
}

cudaError_t EnqueueTogether(const std::vector<Call>& calls) {
  const auto sent = std::make_shared<Sent>(calls.size(), std::vector<float>(calls[0].count));
  cudaError_t error = cudaSuccess;
  for (const Call& call : calls) {
    if (!Sends(call) || error != cudaSuccess) continue;
    error = EnqueueOn(call, call.send, [sent, call, rank = call.communicator->rank] {
      std::memcpy((*sent)[rank].data(), call.send, 4 * call.count);
    });
  }
  for (const Call& to : calls) {
    if (!Receives(to)) continue;
    for (const Call& from : calls) {
      const bool waits = Sends(from) && &from != &to;
      if (waits && error == cudaSuccess) error = Order(from, to);
    }
    if (error != cudaSuccess) break;
    error = EnqueueOn(to, to.receive, [sent, to] {
      std::memcpy(to.receive, ResultOf(to, *sent).data(), 4 * to.count);
    });
  }
  return error;
}

// Takes each member's first call of the first call's clique out of the group. By rank.
ncclResult_t TakeTogether(std::vector<Call>& waiting, std::vector<Call>* together) {
  const Call first = waiting.front();
  const Clique& clique = *first.communicator->clique;
  for (size_t rank = 0; rank < clique.size; ++rank) {
    const auto found = std::find_if(waiting.begin(), waiting.end(), [&](const Call& call) {
      return call.communicator->clique.get() == &clique && call.communicator->rank == rank;
    });
    if (found == waiting.end()) {
      return Refuse(ncclInvalidUsage, "a member has no part in a group: it would wait for ever");
    }
    if (found->kind != first.kind || found->count != first.count || found->root != first.root) {
      return Refuse(ncclInvalidUsage, "members of a collective have different calls");
    }
    together->push_back(*found);
    waiting.erase(found);
  }
  return ncclSuccess;
}

ncclResult_t RunGroup(std::vector<Call> waiting) {
  while (!waiting.empty()) {
    std::vector<Call> together;
    const ncclResult_t taken = TakeTogether(waiting, &together);
    if (taken != ncclSuccess) return taken;
    if (together[0].count == 0) continue;
    const cudaError_t error = EnqueueTogether(together);
    if (error != cudaSuccess) return Refuse(ncclUnhandledCudaError, cudaGetErrorString(error));
  }
  return ncclSuccess;
}

ncclResult_t Add(const Call& call, ncclDataType_t type, int root) {
  const auto check = [&] {
    if (call.communicator == nullptr) return Refuse(ncclInvalidArgument, "no communicator");
    if (root < 0 || static_cast<size_t>(root) >= call.communicator->clique->size) {
      return Refuse(ncclInvalidArgument, "no such root");
    }
    if (type != ncclFloat32) return Refuse(ncclInvalidArgument, "only fp32 is emulated");
    return ncclSuccess;
  };
  const ncclResult_t checked = check();
  if (group_depth > 0) {
    if (checked != ncclSuccess) {
      group_error = checked;
    } else {
      group_calls.push_back(call);
    }
    return checked;
  }
  return checked == ncclSuccess ? RunGroup({call}) : checked;
}

// The communicator is freed, what it shares with work that is enqueued is not.
ncclResult_t Free(ncclComm_t communicator, bool abort) {
  if (communicator == nullptr) return ncclSuccess;
  if (abort) communicator->clique->aborted = true;
  delete communicator;
  return ncclSuccess;
}

}  // namespace
}  // namespace capstan::kernels::cuda::emulation

// ---------------------------------------------------------------- nccl.h

namespace emulation = capstan::kernels::cuda::emulation;

ncclResult_t ncclGetVersion(int* version) {
  if (version == nullptr) return ncclInvalidArgument;
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t) { return emulation::last_error.c_str(); }

ncclResult_t ncclCommInitAll(ncclComm_t* made, int count, const int* devices) {
  if (made == nullptr || count < 1) {
    return emulation::Refuse(ncclInvalidArgument, "no room for communicators, or none wanted");
  }
  int there = 0;
  if (cudaGetDeviceCount(&there) != cudaSuccess) return ncclUnhandledCudaError;
  std::set<int> taken;
  for (int i = 0; i < count; ++i) {
    const int device = devices == nullptr ? i : devices[i];
    if (device < 0 || device >= there) {
      return emulation::Refuse(ncclInvalidArgument, "no such device");
    }
    if (!taken.insert(device).second) {
      return emulation::Refuse(ncclInvalidUsage, "a device is there twice");
    }
  }
  auto clique = std::make_shared<emulation::Clique>();
  clique->size = static_cast<size_t>(count);
  for (int i = 0; i < count; ++i) {
    made[i] = new ncclComm{clique, static_cast<size_t>(i), devices == nullptr ? i : devices[i]};
  }
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  return emulation::Free(communicator, /*abort=*/false);
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  return emulation::Free(communicator, /*abort=*/true);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error) {
  if (communicator == nullptr || error == nullptr) return ncclInvalidArgument;
  *error = communicator->clique->error;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++emulation::group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (emulation::group_depth == 0) return emulation::Refuse(ncclInvalidUsage, "no group is open");
  if (--emulation::group_depth > 0) return ncclSuccess;
  std::vector<emulation::Call> calls = std::exchange(emulation::group_calls, {});
  const ncclResult_t error = std::exchange(emulation::group_error, ncclSuccess);
  return error == ncclSuccess ? emulation::RunGroup(std::move(calls)) : error;
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t communicator, cudaStream_t stream) {
  return emulation::Add({emulation::Kind::kBroadcast, send, receive, count,
                         static_cast<size_t>(root), communicator, stream},
                        type, root);
}

ncclResult_t ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                        ncclRedOp_t operation, int root, ncclComm_t communicator,
                        cudaStream_t stream) {
  if (operation != ncclSum) {
    return emulation::Refuse(ncclInvalidArgument, "only sums are emulated");
  }
  return emulation::Add({emulation::Kind::kReduce, send, receive, count, static_cast<size_t>(root),
                         communicator, stream},
                        type, root);
}

// ---------------------------------------------------------------- nccl_library.h

namespace capstan::kernels::cuda {

absl::StatusOr<NcclLibrary> NcclLibrary::Load(const char*) {
  return NcclLibrary{.get_version = &ncclGetVersion,
                     .get_error_string = &ncclGetErrorString,
                     .get_last_error = &ncclGetLastError,
                     .comm_init_all = &ncclCommInitAll,
                     .comm_destroy = &ncclCommDestroy,
                     .comm_abort = &ncclCommAbort,
                     .comm_get_async_error = &ncclCommGetAsyncError,
                     .group_start = &ncclGroupStart,
                     .group_end = &ncclGroupEnd,
                     .broadcast = &ncclBroadcast,
                     .reduce = &ncclReduce};
}

}  // namespace capstan::kernels::cuda
