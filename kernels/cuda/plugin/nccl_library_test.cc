// Tests of NcclLibrary that need no GPU.
#include "kernels/cuda/plugin/nccl_library.h"

#include <catch2/catch.hpp>

#include "common/testing/status_matchers.h"

namespace capstan::kernels::cuda::nccl_library_test {
namespace {

TEST_CASE("NCCL library: one that is not there is named, with what it is for", "[kernels][cuda]") {
  CHECK_STATUS(NcclLibrary::Load("/none/libnccl.so.2"), absl::StatusCode::kNotFound,
               "several GPUs work together by NCCL, and it could not be loaded: /none/");
}

TEST_CASE("NCCL library: one that is another library is refused", "[kernels][cuda]") {
  CHECK_STATUS(NcclLibrary::Load("libm.so.6"), absl::StatusCode::kFailedPrecondition,
               "libm.so.6 has no ncclGetVersion");
}

TEST_CASE("NCCL library: has all functions, of a version that is new enough, and names errors",
          "[kernels][cuda]") {
#if defined(__SANITIZE_ADDRESS__) || defined(CAPSTAN_TSAN)
  WARN("SKIPPED: CUDA's libraries are not made for sanitizers");
#else
  const auto nccl = NcclLibrary::Load();
  if (absl::IsNotFound(nccl.status())) {
    WARN("SKIPPED: " << nccl.status().message());
    return;
  }
  REQUIRE_OK(nccl);
  int version = 0;
  REQUIRE_OK(nccl->StatusOf(nccl->get_version(&version), "version"));
  CHECK(version / 10000 == NCCL_MAJOR);
  CHECK_STATUS(nccl->StatusOf(ncclUnhandledCudaError, "reducing"), absl::StatusCode::kUnavailable,
               "reducing: unhandled cuda error");
  CHECK_STATUS(nccl->StatusOf(ncclRemoteError, "reducing"), absl::StatusCode::kUnavailable,
               "reducing: remote");
  CHECK_STATUS(nccl->StatusOf(ncclInvalidUsage, "reducing"), absl::StatusCode::kInvalidArgument,
               "reducing: invalid usage");
  CHECK_STATUS(nccl->StatusOf(ncclInternalError, "reducing"), absl::StatusCode::kInternal,
               "reducing: internal error");
#endif
}

}  // namespace
}  // namespace capstan::kernels::cuda::nccl_library_test
