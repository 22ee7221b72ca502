#include "worker/data/epoch_order.h"

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "common/random/permutation.h"
#include "common/random/philox.h"

namespace capstan::worker::epoch_order_test {
namespace {

TEST_CASE("Epoch order: the permutation of (seed, epoch)", "[worker][data]") {
  EpochOrder order(7, 1000);
  CHECK(*order.Get(0) == MakePermutation(MixKey(MixKey(7, 1), 0), 1000));
  CHECK(*order.Get(3) == MakePermutation(MixKey(MixKey(7, 1), 3), 1000));
  CHECK(*order.Get(0) != *order.Get(3));
  CHECK(*order.Get(0) != *EpochOrder(8, 1000).Get(0));
}

TEST_CASE("Epoch order: an epoch is computed once and outlives the cache", "[worker][data]") {
  EpochOrder order(7, 1000);
  const auto first = order.Get(0);
  CHECK(order.Get(0) == first);  // The same object.
  CHECK(order.Get(1) != first);
  CHECK(*first == *EpochOrder(7, 1000).Get(0));
}

TEST_CASE("Epoch order: threads of different epochs each get their own", "[worker][data]") {
  EpochOrder order(7, 200);
  std::vector<int> right(4, 0);
  std::vector<std::thread> threads;
  for (int32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&order, &right, t] {
      const auto expected = MakePermutation(MixKey(MixKey(7, 1), static_cast<uint64_t>(t)), 200);
      for (int i = 0; i < 200; ++i) right[static_cast<size_t>(t)] += *order.Get(t) == expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right == std::vector<int>(4, 200));
}

}  // namespace
}  // namespace capstan::worker::epoch_order_test
