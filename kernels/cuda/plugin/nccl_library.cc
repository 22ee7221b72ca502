#include "kernels/cuda/plugin/nccl_library.h"

#include "absl/strings/str_cat.h"

namespace capstan::kernels::cuda {

absl::Status NcclLibrary::StatusOf(ncclResult_t result, absl::string_view what) const {
  if (result == ncclSuccess) return absl::OkStatus();
  absl::StatusCode code = absl::StatusCode::kInternal;
  if (result == ncclUnhandledCudaError || result == ncclSystemError || result == ncclRemoteError) {
    code = absl::StatusCode::kUnavailable;
  } else if (result == ncclInvalidArgument || result == ncclInvalidUsage) {
    code = absl::StatusCode::kInvalidArgument;
  }
  const char* const last = get_last_error(nullptr);
  return absl::Status(
      code, absl::StrCat(what, ": ", get_error_string(result),
                         last == nullptr || *last == 0 ? "" : ": ", last == nullptr ? "" : last));
}

}  // namespace capstan::kernels::cuda
