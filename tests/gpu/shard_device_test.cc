// A server's shards on the card: the bits of the host's updates, also where arrays are odd.
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/testing/status_matchers.h"
#include "common/types/unaligned_float.h"
#include "kernels/cuda/element_rules.h"
#include "kernels/testing/op_cases.h"
#include "server/device/cuda_shard_device.h"
#include "server/optimizer/optimizer.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/test_gpu.h"

namespace capstan::gpu::shard_device_test {
namespace {

using kernels::Uniform;

TEST_CASE("GPU shards: updates and state have the host's bits", "[gpu][own]") {
  if (TestGpu(kernels::cuda::Compute::kFp32) == nullptr) return;
  auto backend = Open(kernels::cuda::Compute::kFp32);
  REQUIRE_OK(backend);
  auto device = server::MakeCudaShardDevice("cuda", *std::move(backend));
  REQUIRE_OK(device);
  for (const kernels::cuda::UpdateRuleTraits& traits : kernels::cuda::kUpdateRules) {
    if (!traits.on_device) continue;
    server::OptimizerConfig rule;
    rule.kind = traits.rule;
    rule.learning_rate = 0.1f;
    rule.weight_decay = 0.01f;
    rule.clip_value = 0.75f;
    const auto slots = static_cast<size_t>(StateSlots(rule));
    for (const int64_t n : {int64_t{1}, int64_t{1003}, server::ShardDevice::kElementsMax}) {
      if (IsSmall() && n > 2000) continue;
      INFO("rule " << traits.name << " n " << n);
      const auto bytes = static_cast<size_t>(n) * sizeof(float);
      std::vector<float> weights = Uniform(1, n), values(weights.size());
      std::vector<std::vector<float>> state(slots, std::vector<float>(weights.size()));
      auto shard = (*device)->Make(n, rule);
      REQUIRE_OK(shard);
      REQUIRE_OK((*shard)->Write(weights,
                                 std::vector<absl::Span<const float>>(state.begin(), state.end())));
      std::vector<float*> on_host;
      for (std::vector<float>& slot : state) on_host.push_back(slot.data());
      for (int64_t step = 0; step < 3; ++step) {
        const std::vector<float> gradient = Uniform(10 + static_cast<uint64_t>(step), n);
        REQUIRE_OK((*shard)->Update(
            step, [&](float* to) { std::memcpy(to, gradient.data(), bytes); },
            absl::MakeSpan(values)));
        REQUIRE_OK((*shard)->Finish());
        server::Apply(rule, step, n, weights.data(),
                      reinterpret_cast<const UnalignedFloat*>(gradient.data()), on_host,
                      weights.data());
        REQUIRE(std::memcmp(values.data(), weights.data(), bytes) == 0);
      }
      for (size_t slot = 0; slot < slots; ++slot) {
        REQUIRE_OK((*shard)->ReadState(static_cast<int>(slot), absl::MakeSpan(values)));
        REQUIRE(std::memcmp(values.data(), state[slot].data(), bytes) == 0);
      }
    }
  }
}

}  // namespace
}  // namespace capstan::gpu::shard_device_test
