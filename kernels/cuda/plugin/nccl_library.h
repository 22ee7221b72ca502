// NcclLibrary: NCCL's functions, from the library that is installed on the machine.
//
// The plugin loads NCCL when devices are joined, and does not link it: a single GPU needs no NCCL.
// The loader looks for libnccl.so.2 where it looks for the plugin's libraries (its run path,
// LD_LIBRARY_PATH). nccl_dlopen.cc defines Load, for emulated GPUs emulation/libraries/nccl.cc.
// Thread safety: constant after Load.
#ifndef CAPSTAN_KERNELS_CUDA_PLUGIN_NCCL_LIBRARY_H_
#define CAPSTAN_KERNELS_CUDA_PLUGIN_NCCL_LIBRARY_H_

#include <nccl.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace capstan::kernels::cuda {

inline constexpr char kNcclFile[] = "libnccl.so.2";

struct NcclLibrary {
  // Loads the library, which stays loaded until the process ends.
  // Errors: kNotFound            no such library; the message is the loader's.
  //         kFailedPrecondition  it lacks a function, or is too old.
  static absl::StatusOr<NcclLibrary> Load(const char* file = kNcclFile);

  // Makes for example "reducing: unhandled cuda error (run with NCCL_DEBUG=INFO for details): ...".
  //   kUnavailable      an error of CUDA, the system or another member: the devices do not work
  //                     together on this machine; on another one they may
  //   kInvalidArgument  wrong arguments
  //   kInternal         all others
  absl::Status StatusOf(ncclResult_t result, absl::string_view what) const;

  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
  decltype(&ncclCommInitAll) comm_init_all = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclReduce) reduce = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
};

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_PLUGIN_NCCL_LIBRARY_H_
