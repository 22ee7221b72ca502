#include "common/random/permutation.h"

#include <cstddef>
#include <numeric>
#include <utility>

#include "common/random/philox.h"

namespace capstan {
namespace {

constexpr uint64_t kOrderStream = 1;  // worker/training/README.md has all streams of a seed.

}  // namespace

uint64_t EpochOrderKey(uint64_t seed, int32_t epoch) {
  return MixKey(MixKey(seed, kOrderStream), static_cast<uint64_t>(epoch));
}

std::vector<uint32_t> MakePermutation(uint64_t key, int64_t count) {
  std::vector<uint32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0u);
  for (uint64_t i = order.size(); i > 1; --i) {
    const auto words = Philox4x32(key, i);
    const uint64_t draw = (uint64_t{words[0]} << 32) | words[1];
    // The bias of multiply-shift is below count / 2^64, far too small to measure.
    const auto j = static_cast<size_t>((static_cast<unsigned __int128>(draw) * i) >> 64);
    std::swap(order[i - 1], order[j]);
  }
  return order;
}

}  // namespace capstan
