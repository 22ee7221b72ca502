#include "kernels/cuda/loader.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>

#include "common/testing/status_matchers.h"
#include "kernels/cuda/plugin_abi.h"

namespace capstan::kernels::cuda::loader_test {
namespace {

// The paths of this test's libraries under Bazel.
constexpr char kOldPlugin[] = "kernels/cuda/testing/libold_plugin.so";
constexpr char kNoPlugin[] = "kernels/cuda/testing/libno_plugin.so";
constexpr char kPlugin[] = "kernels/cuda/libcapstan_cuda.so";

TEST_CASE("CUDA loader: a plugin that is not there is named", "[kernels][cuda]") {
  CHECK_STATUS(OpenCudaBackend({}, {.path = "/no/such/plugin.so"}), absl::StatusCode::kNotFound,
               "/no/such/plugin.so");
}

TEST_CASE("CUDA loader: the environment names the plugin", "[kernels][cuda]") {
  REQUIRE(setenv("CAPSTAN_CUDA_PLUGIN", "/named/by/the/environment.so", 1) == 0);
  CHECK_STATUS(OpenCudaBackend(), absl::StatusCode::kNotFound, "/named/by/the/environment.so");
  REQUIRE(unsetenv("CAPSTAN_CUDA_PLUGIN") == 0);
}

TEST_CASE("CUDA loader: a file that is no library is refused with the loader's words",
          "[kernels][cuda]") {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/text.so";
  std::ofstream(path) << "no library\n";
  CHECK_STATUS(OpenCudaBackend({}, {.path = path}), absl::StatusCode::kNotFound, "text.so");
}

TEST_CASE("CUDA loader: a library that is no plugin is refused", "[kernels][cuda]") {
  CHECK_STATUS(OpenCudaBackend({}, {.path = kNoPlugin}), absl::StatusCode::kFailedPrecondition,
               "has no CapstanCudaOpen");
}

TEST_CASE("CUDA loader: a plugin of another version is refused, naming both", "[kernels][cuda]") {
  const std::string wanted = "expected " + std::to_string(kPluginVersion);
  CHECK_STATUS(OpenCudaBackend({}, {.path = kOldPlugin}), absl::StatusCode::kFailedPrecondition,
               "version 4294967295, " + wanted);
  CHECK_STATUS(CheckCudaPlugin({.path = kOldPlugin}), absl::StatusCode::kFailedPrecondition,
               wanted);
}

TEST_CASE("CUDA loader: the plugin opens a GPU, or says why not", "[kernels][cuda]") {
#if defined(__SANITIZE_ADDRESS__) || defined(CAPSTAN_TSAN)
  WARN("SKIPPED: CUDA's libraries are not made for sanitizers");
#else
  if (!std::ifstream(kPlugin).good()) {
    WARN("SKIPPED: built without a CUDA toolkit");
    return;
  }
  REQUIRE_OK(CheckCudaPlugin({.path = kPlugin}));
  const auto backend = OpenCudaBackend({}, {.path = kPlugin});
  if (backend.ok()) {
    CHECK((*backend)->Name() == "cuda");
    return;
  }
  const absl::Status& status = backend.status();
  INFO(status.ToString());
  CHECK((absl::IsUnavailable(status) || absl::IsFailedPrecondition(status)));
  const std::string message(status.message());
  CHECK((message.find("CUDA driver") != std::string::npos ||
         message.find("GPU") != std::string::npos));
#endif
}

}  // namespace
}  // namespace capstan::kernels::cuda::loader_test
