#include "worker/task/computation/backend.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "common/testing/status_matchers.h"
#include "worker/task/computation/lost_gpus.h"

namespace capstan::worker::backend_test {
namespace {

using kernels::cuda::Compute;
using kernels::cuda::PlanChoice;

v1::JobSpec Job(const std::string& text) {
  v1::JobSpec job;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &job));
  return job;
}

TEST_CASE("Task backend: the job's choice of numbers, and the same bits under BSP",
          "[worker][task]") {
  const DeviceChoice plain = DeviceChoiceOf(Job(""), {3});
  CHECK(plain.gpus == std::vector<int>{3});
  CHECK(plain.threads == 1);
  CHECK(plain.cuda.compute == Compute::kFp32);
  CHECK(plain.cuda.plan_choice == PlanChoice::kHeuristic);
  const DeviceChoice other = DeviceChoiceOf(
      Job("training { compute: BF16 } consistency { ssp {} } resources { threads: 2 }"), {});
  CHECK(other.gpus.empty());
  CHECK(other.threads == 2);
  CHECK(other.cuda.compute == Compute::kBf16);
  CHECK(other.cuda.plan_choice == PlanChoice::kMeasured);
  CHECK(DeviceChoiceOf(Job("training { compute: TF32 }"), {}).cuda.compute == Compute::kTf32);
  CHECK(DeviceChoiceOf(Job("training { compute: FP16 }"), {}).cuda.compute == Compute::kFp16);
}

TEST_CASE("Task backend: the environment says where plans are kept", "[worker][task]") {
  CHECK(DeviceChoiceOf(Job(""), {0}).cuda.plans_folder.empty());
  REQUIRE(setenv("CAPSTAN_CUDA_PLANS", "/var/plans", 1) == 0);
  CHECK(DeviceChoiceOf(Job(""), {0}).cuda.plans_folder == "/var/plans");
  REQUIRE(unsetenv("CAPSTAN_CUDA_PLANS") == 0);
}

TEST_CASE("Task backend: without a GPU it is the CPU's", "[worker][task]") {
  REQUIRE_OK_AND_ASSIGN(const kernels::BackendGroup backends, MakeBackends({.threads = 1}));
  REQUIRE(backends.size() == 1);
  CHECK(backends[0].Name() == "cpu");
  CHECK(backends[0].device() == nullptr);
  CHECK(backends.collective() == nullptr);
}

TEST_CASE("Task backend: a GPU that cannot be opened is named with the reason", "[worker][task]") {
  setenv("CAPSTAN_CUDA_PLUGIN", "/none/libcapstan_cuda.so", 1);
  CHECK_STATUS(MakeBackends({.gpus = {2}}), absl::StatusCode::kUnavailable,
               "GPU 2 cannot be opened: no CUDA plugin could be loaded: /none/libcapstan_cuda.so");
  CHECK_THAT(GpuBackendProblem(), Catch::StartsWith("no CUDA plugin could be loaded"));
  CHECK_STATUS(MakeBackends({.gpus = {1, 0}}), absl::StatusCode::kUnavailable,
               "GPU 1 cannot be opened");
  // The error names both: the next choice need not try them one by one.
  CHECK(LostGpusOf(MakeBackends({.gpus = {1, 0}}).status()) == std::vector<int>{1, 0});
}

TEST_CASE("Task backend: a trainer without servers takes as many GPUs as a task gets",
          "[worker][task]") {
  const auto asked = [](const std::string& resources) {
    return GpusAsked(Job("resources { " + resources + " }").resources());
  };
  CHECK(asked("").empty());
  CHECK(asked("device: 'auto'").empty());
  CHECK(asked("device: 'cuda'") == std::vector<int>{0});
  CHECK(asked("device: 'cuda:2'") == std::vector<int>{2});
  CHECK(asked("gpus: 3") == std::vector<int>{0, 1, 2});
}

}  // namespace
}  // namespace capstan::worker::backend_test
