// Convolutions on a card that has no memory left for the workspace of the plans that they would
// have: they take smaller ones.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/cuda/loader.h"
#include "kernels/op_check.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/testing/op_cases.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/test_gpu.h"

namespace capstan::gpu::full_memory_test {
namespace {

using kernels::OpDesc;
using kernels::Operands;
using kernels::OpSignature;
using kernels::TensorView;
using kernels::cuda::CudaBackend;
using kernels::cuda::PlanChoice;

// cuDNN's first plans for it in fp32 copy x and y to another layout: 1.7 MB. What the device has
// reserved from the start is 1 MiB.
const OpDesc kWantsWorkspace =
    kernels::WindowDesc(kernels::OpKind::kConvolutionForward, {1, 56, 56, 64, 64, 3, 1, 1},
                        /*bias=*/true, /*relu=*/true);
// Its weights alone have 2.4 MB, for which there must be room where they are not aligned.
const OpDesc kWantsMore =
    kernels::WindowDesc(kernels::OpKind::kConvolutionForward, {1, 7, 7, 256, 256, 3, 1, 1},
                        /*bias=*/true, /*relu=*/true);

// Operands in the GPU's memory; fp32.
class Arrays {
 public:
  Arrays(CudaBackend& gpu, const Operands& operands) {
    for (const std::vector<float>& values : operands.values) {
      arrays_.push_back(std::make_unique<Array>(gpu, static_cast<int64_t>(values.size()) * 4));
      arrays_.back()->Upload(values.data());
      views_.push_back({arrays_.back()->data(), static_cast<int64_t>(values.size())});
    }
  }
  const std::vector<TensorView>& views() const { return views_; }
  void Download(size_t i, std::vector<float>& to) const { arrays_[i]->Download(to.data()); }

 private:
  std::vector<std::unique_ptr<Array>> arrays_;
  std::vector<TensorView> views_;
};

// On a card the libraries' code needs memory when it is first run.
bool IsEmulated() {
  if (std::getenv("CAPSTAN_EMULATED_GPUS") != nullptr) return true;
  std::printf("SKIPPED: a card's memory cannot be filled to the last byte\n");
  return false;
}

double ErrorOf(const std::vector<float>& expected, const std::vector<float>& actual) {
  double largest = 0.0;
  double error = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::fmax(largest, std::fabs(double{expected[i]}));
    const double one = std::fabs(double{expected[i]} - double{actual[i]});
    if (std::isnan(one)) return one;
    error = std::fmax(error, one);
  }
  return error / largest;
}

TEST_CASE("GPU convolution: where memory is full, a plan that needs less of it is taken",
          "[gpu][own][library]") {
  if (TestGpu(kernels::cuda::Compute::kFp32) == nullptr) return;
  if (!IsEmulated()) return;
  std::vector<std::string> said;
  kernels::cuda::CudaOptions options;
  options.say = [&said](const std::string& text) { said.push_back(text); };
  REQUIRE_OK_AND_ASSIGN(const auto gpu, kernels::cuda::OpenCudaBackend(options));
  REQUIRE_OK_AND_ASSIGN(const OpSignature signature, kernels::MakeSignature(kWantsWorkspace));
  Operands inputs = kernels::MakeInputs(signature);
  Operands outputs = kernels::MakeOutputs(signature);
  const Arrays in(*gpu, inputs);
  const Arrays out(*gpu, outputs);
  REQUIRE_OK_AND_ASSIGN(const auto info, gpu->Info());
  {
    const Array all(*gpu, info.memory_free_bytes);
    REQUIRE_OK_AND_ASSIGN(const auto plan, gpu->Prepare(kWantsWorkspace));
    REQUIRE(said.size() == 1);
    CHECK_THAT(said[0], Catch::Contains("no memory for the workspace"));
    CHECK_STATUS(gpu->Prepare(kWantsMore), absl::StatusCode::kResourceExhausted, "the workspace");
    REQUIRE_OK(gpu->Run(*plan, in.views(), out.views(), {}));
    REQUIRE_OK(gpu->Synchronize());
  }
  out.Download(0, outputs.values[0]);
  const auto reference = kernels::MakeReferenceBackend();
  REQUIRE_OK_AND_ASSIGN(const auto plan, reference->Prepare(kWantsWorkspace));
  Operands expected = kernels::MakeOutputs(signature);
  REQUIRE_OK(reference->Run(*plan, inputs.Views(), expected.Views(), {}));
  CHECK(ErrorOf(expected.values[0], outputs.values[0]) <= 1e-5);
  // There is memory again.
  said.clear();
  REQUIRE_OK(gpu->Prepare(kWantsMore));
  CHECK(said.empty());
}

TEST_CASE("GPU convolution: the library's own choice does not depend on the memory that is left",
          "[gpu][own][library]") {
  if (TestGpu(kernels::cuda::Compute::kFp32) == nullptr) return;
  if (!IsEmulated()) return;
  kernels::cuda::CudaOptions options;
  options.plan_choice = PlanChoice::kHeuristic;
  REQUIRE_OK_AND_ASSIGN(const auto gpu, kernels::cuda::OpenCudaBackend(options));
  REQUIRE_OK_AND_ASSIGN(const auto info, gpu->Info());
  const Array all(*gpu, info.memory_free_bytes);
  CHECK_STATUS(gpu->Prepare(kWantsWorkspace), absl::StatusCode::kResourceExhausted,
               "the workspace");
}

TEST_CASE("GPU workspace: what there was stays, where there is no memory for more",
          "[gpu][own][library]") {
  if (TestGpu(kernels::cuda::Compute::kFp32) == nullptr) return;
  if (!IsEmulated()) return;
  REQUIRE_OK_AND_ASSIGN(const auto gpu, kernels::cuda::OpenCudaBackend({}));
  REQUIRE_OK_AND_ASSIGN(const OpSignature signature, kernels::MakeSignature(kWantsWorkspace));
  const Arrays in(*gpu, kernels::MakeInputs(signature));
  Operands outputs = kernels::MakeOutputs(signature);
  const Arrays out(*gpu, outputs);
  REQUIRE_OK_AND_ASSIGN(const auto plan, gpu->Prepare(kWantsWorkspace));
  // A graph holds on to the workspace that it was recorded with.
  REQUIRE_OK(gpu->BeginCapture());
  REQUIRE_OK(gpu->Run(*plan, in.views(), out.views(), {}));
  REQUIRE_OK_AND_ASSIGN(const auto graph, gpu->EndCapture());
  REQUIRE_OK_AND_ASSIGN(const auto info, gpu->Info());
  const Array all(*gpu, info.memory_free_bytes);
  CHECK_STATUS(gpu->Prepare(kWantsMore), absl::StatusCode::kResourceExhausted, "the workspace");
  REQUIRE_OK(gpu->Run(*plan, in.views(), out.views(), {}));
  REQUIRE_OK(graph->Launch());
  REQUIRE_OK(gpu->Synchronize());
  out.Download(0, outputs.values[0]);
  CHECK(std::isfinite(outputs.values[0][0]));
}

}  // namespace
}  // namespace capstan::gpu::full_memory_test
