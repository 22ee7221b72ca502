// NcclLibrary: NCCL's functions, out of the library that the machine has.
//
// It is opened when devices are first joined, not linked: one GPU alone needs no NCCL. Looked for
// where the plugin's libraries are (its run path, LD_LIBRARY_PATH), as libnccl.so.2.
// (Load is defined in nccl_dlopen.cc; for emulated GPUs in emulation/nccl.cc.)
// Thread safety: constant after it was loaded.
#ifndef CAPSTAN_KERNELS_CUDA_NCCL_LIBRARY_H_
#define CAPSTAN_KERNELS_CUDA_NCCL_LIBRARY_H_

#include <nccl.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace capstan::kernels::cuda {

inline constexpr char kNcclFile[] = "libnccl.so.2";

struct NcclLibrary {
  // Of a library that stays loaded until the process ends.
  // Errors: kNotFound            no such library; the loader's words.
  //         kFailedPrecondition  it lacks a function, or is too old.
  static absl::StatusOr<NcclLibrary> Load(const char* file = kNcclFile);

  // "reducing: unhandled cuda error (run with NCCL_DEBUG=INFO for details): ...".
  //   kUnavailable      an error of CUDA, the system or another member: here devices do not work
  //                     together, on another machine they may
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

#endif  // CAPSTAN_KERNELS_CUDA_NCCL_LIBRARY_H_
