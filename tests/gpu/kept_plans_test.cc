// Plans that one backend has measured are taken by the next, which times none.
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/cuda/loader.h"
#include "kernels/op.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/test_gpu.h"

namespace capstan::gpu::kept_plans_test {
namespace {

using kernels::OpDesc;
using kernels::OpKind;

// Ops of which the libraries offer several plans.
std::vector<OpDesc> Ops() {
  OpDesc convolution;
  convolution.n = IsSmall() ? 1 : 32;
  convolution.h = convolution.w = convolution.out_h = convolution.out_w = IsSmall() ? 7 : 28;
  convolution.c = convolution.out_c = IsSmall() ? 16 : 64;
  convolution.kernel = 3;
  convolution.padding = 1;
  OpDesc product;
  product.n = IsSmall() ? 16 : 256;
  product.c = product.out_c = IsSmall() ? 64 : 512;
  product.has_bias = true;
  std::vector<OpDesc> ops;
  for (const OpKind kind : {OpKind::kConvolutionForward, OpKind::kConvolutionBackwardData,
                            OpKind::kConvolutionBackwardWeights}) {
    ops.push_back(convolution);
    ops.back().kind = kind;
  }
  convolution.kind = OpKind::kConvolutionForward;
  for (const bool relu : {false, true}) {
    ops.push_back(convolution);
    ops.back().has_bias = true;
    ops.back().fuse_relu = relu;
  }
  for (const OpKind kind : {OpKind::kFullyConnectedForward, OpKind::kFullyConnectedBackwardData,
                            OpKind::kFullyConnectedBackwardWeights}) {
    ops.push_back(product);
    ops.back().kind = kind;
  }
  return ops;
}

std::string Contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Whether a plan of less work is the faster one for certain (kernels/cuda/emulation/README.md).
bool CountsWork() {
  const char* const clock = std::getenv("CAPSTAN_EMULATED_CLOCK");
  return clock != nullptr && std::string(clock) == "work";
}

// The file of plans in a folder, which has it and that of all times.
std::string PlansIn(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  REQUIRE(paths.size() == 2);
  CHECK(paths[1] == paths[0] + ".times");
  return paths[0];
}

TEST_CASE("GPU plans: the next backend takes what one has measured, and times nothing",
          "[gpu][own][library]") {
  const auto compute = GENERATE(kernels::cuda::Compute::kFp32, kernels::cuda::Compute::kTf32,
                                kernels::cuda::Compute::kBf16, kernels::cuda::Compute::kFp16);
  if (TestGpu(compute) == nullptr) return;
  const std::string folder =
      std::filesystem::temp_directory_path() / ("capstan-plans-" + std::to_string(getpid()) + "-" +
                                                std::to_string(static_cast<int>(compute)));
  std::vector<std::string> said;
  const auto prepare_all = [&] {
    kernels::cuda::CudaOptions options;
    options.compute = compute;
    options.plans_folder = folder;
    options.warm_up_seconds = 0;
    options.say = [&said](const std::string& text) { said.push_back(text); };
    auto backend = kernels::cuda::OpenCudaBackend(options);
    REQUIRE_OK(backend);
    for (const OpDesc& op : Ops()) {
      INFO(ToString(op));
      REQUIRE_OK((*backend)->Prepare(op));
    }
  };
  prepare_all();
  REQUIRE(std::filesystem::exists(folder));
  const std::string file = PlansIn(folder);
  const std::string measured = Contents(file);
  const std::string times = Contents(file + ".times");
  CHECK_THAT(times, Catch::Contains("\tengine ") && Catch::Contains(" ms\n"));
  CHECK_THAT(measured, Catch::Contains("engine "));
  CHECK_THAT(measured, Catch::Contains("fully_connected_forward"));
  if (CountsWork()) {
    CHECK_THAT(measured, Catch::Contains(" bias\tfused engine "));
    CHECK_THAT(measured, Catch::Contains(" bias relu\tfused engine "));
  }
  // The measured plans are in the file, so the next backend writes nothing.
  const auto written = std::filesystem::last_write_time(file);
  prepare_all();
  CHECK(std::filesystem::last_write_time(file) == written);
  CHECK(Contents(file) == measured);
  CHECK(Contents(file + ".times") == times);
  CHECK(said.empty());

  std::ofstream(file) << "no plans";
  prepare_all();
  REQUIRE(said.size() == 1);
  CHECK_THAT(said[0], Catch::Contains("timed again"));
  CHECK_THAT(Contents(file), Catch::Contains("engine "));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace capstan::gpu::kept_plans_test
