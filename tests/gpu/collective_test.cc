// GPUs that work together: one alone in a loop with itself, and all that the machine has.
#include "kernels/collective.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/model/initial_values.h"
#include "common/model/tables.h"
#include "common/testing/status_matchers.h"
#include "kernels/backend_group.h"
#include "kernels/cuda/loader.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/test_gpu.h"
#include "worker/training/network.h"
#include "worker/training/testing/small_nets.h"

namespace capstan::gpu::collective_test {
namespace {

using kernels::BackendGroup;
using kernels::Stream;
using kernels::cuda::Compute;

constexpr int kGpusMax = 8;

// GPUs 0 to count - 1, or as many of them as there are.
std::vector<std::unique_ptr<kernels::DeviceBackend>> OpenSome(int count) {
  std::vector<std::unique_ptr<kernels::DeviceBackend>> gpus;
  for (int i = 0; i < count; ++i) {
    auto gpu = kernels::cuda::OpenCudaBackend(
        {.device = i, .plan_choice = kernels::cuda::PlanChoice::kHeuristic});
    if (!gpu.ok()) break;
    gpus.push_back(*std::move(gpu));
  }
  return gpus;
}

// Whole numbers, whose sums are exact in any order.
std::vector<float> WholeNumbers(int64_t n, size_t member) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) {
    values.push_back(static_cast<float>((i + 7 * static_cast<int64_t>(member)) % 1000));
  }
  return values;
}

void CheckTogether(const BackendGroup& group, int64_t n, Stream stream) {
  const int64_t part = n / static_cast<int64_t>(group.size());
  const int64_t bytes = n * 4;
  std::vector<float*> arrays;
  std::vector<std::vector<float>> values;
  std::vector<float> sum(static_cast<size_t>(n));
  for (size_t i = 0; i < group.size(); ++i) {
    REQUIRE_OK_AND_ASSIGN(void* const memory, group[i].device()->TryAllocate(bytes));
    arrays.push_back(static_cast<float*>(memory));
    values.push_back(WholeNumbers(n, i));
    for (size_t k = 0; k < sum.size(); ++k) sum[k] += values[i][k];
  }
  const auto upload = [&] {
    for (size_t i = 0; i < group.size(); ++i) {
      REQUIRE_OK(group[i].Copy(arrays[i], values[i].data(), bytes));
    }
  };
  const auto read = [&](size_t member) {
    std::vector<float> seen(sum.size());
    REQUIRE_OK(group[member].Synchronize());
    REQUIRE_OK(group[member].Copy(seen.data(), arrays[member], bytes));
    return seen;
  };
  upload();
  REQUIRE_OK(group.collective()->AllReduce(stream, arrays, n));
  for (size_t i = 0; i < group.size(); ++i) CHECK(read(i) == sum);

  upload();
  REQUIRE_OK(group.collective()->ReduceScatter(stream, arrays, part));
  REQUIRE_OK(group.collective()->AllGather(stream, arrays, part));
  for (size_t i = 0; i < group.size(); ++i) {
    std::vector<float> gathered = values[i];  // Elements behind all parts stay.
    std::copy_n(sum.begin(), part * static_cast<int64_t>(group.size()), gathered.begin());
    CHECK(read(i) == gathered);
  }

  upload();
  REQUIRE_OK(group.collective()->Reduce(stream, arrays, n));
  for (size_t i = 0; i < group.size(); ++i) CHECK(read(i) == (i == 0 ? sum : values[i]));
  REQUIRE_OK(group.collective()->Broadcast(stream, arrays, n));
  for (size_t i = 0; i < group.size(); ++i) {
    CHECK(read(i) == sum);
    group[i].Free(arrays[i]);
  }
}

TEST_CASE("GPU collective: adds up and hands on, one GPU with itself, and all there are",
          "[gpu][own][library]") {
  if (TestGpu(Compute::kFp32) == nullptr) return;
  const int there = static_cast<int>(OpenSome(kGpusMax).size());
  if (there == 1) std::printf("SKIPPED: several GPUs: this machine has one\n");
  for (int count = 1; count <= there; ++count) {
    INFO(count << " GPUs");
    auto group = BackendGroup::Join(OpenSome(count));
    REQUIRE_OK(group);
    for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{1003}, int64_t{1} << 20}) {
      for (const Stream stream : {Stream::kCompute, Stream::kUpload, Stream::kDownload}) {
        CheckTogether(*group, n, stream);
      }
    }
  }
}

TEST_CASE("GPU collective: a GPU twice, or of another group's order, is refused",
          "[gpu][own][library]") {
  if (TestGpu(Compute::kFp32) == nullptr) return;
  auto gpus = OpenSome(1);
  auto again = OpenSome(1);
  CHECK_STATUS(gpus[0]->Join({gpus[0].get(), again[0].get()}), absl::StatusCode::kInvalidArgument,
               "GPU 0 is joined twice");
  CHECK_STATUS(gpus[0]->Join({again[0].get()}), absl::StatusCode::kInvalidArgument,
               "expected it first");
}

struct Trained {
  std::vector<float> gradient, statistics;
  double loss = 0;
};

// Steps until they are recorded and launched; the last one's outcome.
Trained Train(const ModelPlan& plan, const BackendGroup& group) {
  constexpr int64_t kSamples = 24;
  REQUIRE_OK_AND_ASSIGN(const auto network, worker::Network::Create(plan, group, kSamples));
  std::vector<float> parameters(static_cast<size_t>(plan.parameter_count));
  FillInitialValues(MakeTables(plan)[0], 3, 0, absl::MakeSpan(parameters));
  const worker::Batch batch = worker::RandomBatch(plan, kSamples);
  Trained trained;
  trained.gradient.resize(parameters.size());
  trained.statistics.resize(static_cast<size_t>(plan.statistic_count));
  for (int step = 0; step < 3; ++step) {
    REQUIRE_OK_AND_ASSIGN(
        const worker::BatchResult result,
        network->Train(batch.view(), parameters, 1.0f / kSamples, 1,
                       absl::MakeSpan(trained.gradient), absl::MakeSpan(trained.statistics)));
    trained.loss = result.loss_sum;
  }
  for (size_t i = 0; i < group.size(); ++i) CHECK(group[i].device()->captures_refused() == 0);
  return trained;
}

TEST_CASE(
    "GPU collective: a network on one GPU joined to itself has that GPU's bits; on several "
    "they agree where no layer takes moments",
    "[gpu][own][library]") {
  if (TestGpu(Compute::kFp32) == nullptr) return;
  for (const size_t net : {0, 2}) {
    const worker::SmallNet& small = worker::kSmallNets[net];
    INFO(small.name);
    const ModelPlan plan = worker::PlanSmallNet(small.text, small.input);
    const Trained alone = Train(plan, BackendGroup(std::move(OpenSome(1)[0])));
    const int there = static_cast<int>(OpenSome(kGpusMax).size());
    for (int count = 1; count <= there; ++count) {
      INFO(count << " GPUs");
      auto group = BackendGroup::Join(OpenSome(count));
      REQUIRE_OK(group);
      const Trained shared = Train(plan, *group);
      if (count == 1) {
        CHECK(shared.gradient == alone.gradient);
        CHECK(shared.statistics == alone.statistics);
        CHECK(shared.loss == alone.loss);
      } else if (plan.statistic_count == 0) {
        // Sums of 24 samples in another order.
        for (size_t i = 0; i < alone.gradient.size(); ++i) {
          CHECK(shared.gradient[i] == Approx(alone.gradient[i]).epsilon(1e-4).margin(1e-6));
        }
      }
    }
  }
}

}  // namespace
}  // namespace capstan::gpu::collective_test
