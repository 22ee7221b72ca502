// NcclLibrary::Load for the library that is installed on the machine.
#include <dlfcn.h>

#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "kernels/cuda/plugin/nccl_library.h"

namespace capstan::kernels::cuda {
namespace {

// All functions that the collective calls exist since this version, and have not changed.
constexpr int kVersionMin = NCCL_VERSION(2, 18, 0);

std::string LoaderWords() {
  const char* const words = dlerror();
  return words == nullptr ? "no reason given" : words;
}

}  // namespace

absl::StatusOr<NcclLibrary> NcclLibrary::Load(const char* file) {
  void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::NotFoundError(absl::StrCat(
        "several GPUs work together by NCCL, and it could not be loaded: ", LoaderWords()));
  }
  NcclLibrary nccl;
  const auto find = [library, file](const char* name, auto* function) -> absl::Status {
    void* const symbol = dlsym(library, name);
    if (symbol == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat(file, " has no ", name));
    }
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(symbol);
    return absl::OkStatus();
  };
  CAPSTAN_RETURN_IF_ERROR(find("ncclGetVersion", &nccl.get_version));
  CAPSTAN_RETURN_IF_ERROR(find("ncclGetErrorString", &nccl.get_error_string));
  CAPSTAN_RETURN_IF_ERROR(find("ncclGetLastError", &nccl.get_last_error));
  CAPSTAN_RETURN_IF_ERROR(find("ncclCommInitAll", &nccl.comm_init_all));
  CAPSTAN_RETURN_IF_ERROR(find("ncclCommDestroy", &nccl.comm_destroy));
  CAPSTAN_RETURN_IF_ERROR(find("ncclCommAbort", &nccl.comm_abort));
  CAPSTAN_RETURN_IF_ERROR(find("ncclCommGetAsyncError", &nccl.comm_get_async_error));
  CAPSTAN_RETURN_IF_ERROR(find("ncclGroupStart", &nccl.group_start));
  CAPSTAN_RETURN_IF_ERROR(find("ncclGroupEnd", &nccl.group_end));
  CAPSTAN_RETURN_IF_ERROR(find("ncclBroadcast", &nccl.broadcast));
  CAPSTAN_RETURN_IF_ERROR(find("ncclReduce", &nccl.reduce));
  CAPSTAN_RETURN_IF_ERROR(find("ncclAllReduce", &nccl.all_reduce));
  CAPSTAN_RETURN_IF_ERROR(find("ncclReduceScatter", &nccl.reduce_scatter));
  CAPSTAN_RETURN_IF_ERROR(find("ncclAllGather", &nccl.all_gather));
  int version = 0;
  CAPSTAN_RETURN_IF_ERROR(nccl.StatusOf(nccl.get_version(&version), "asking for NCCL's version"));
  if (version < kVersionMin) {
    return absl::FailedPreconditionError(
        absl::StrCat(file, " is NCCL ", version, ", expected at least ", kVersionMin));
  }
  return nccl;
}

}  // namespace capstan::kernels::cuda
