#include "common/sparse_models/multiply_add.h"

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstring>
#include <vector>

#include "common/random/philox.h"
#include "common/types/instruction_set.h"

namespace capstan::multiply_add_test {
namespace {

std::vector<float> Draw(uint64_t seed, int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(2 * ToUnitFloat(PhiloxWord(seed, static_cast<uint64_t>(i))) - 1);
  }
  return values;
}

// One addition after the other. Volatile, so that the compiler cannot change what is rounded.
std::vector<float> Naive(int64_t m, int64_t n, int64_t k, StridedMatrix a,
                         const std::vector<float>& b, std::vector<float> c) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float& sum = c[static_cast<size_t>(i * n + j)];
      for (int64_t p = 0; p < k; ++p) {
        volatile float product =
            a.data[i * a.row + p * a.column] * b[static_cast<size_t>(p * n + j)];
        volatile float next = sum + product;
        sum = next;
      }
    }
  }
  return c;
}

TEST_CASE("Multiply-add: every form has the bits of the naive loops, whatever the sizes",
          "[sparse_models]") {
  constexpr int64_t kSizes[] = {0, 1, 2, 3, 4, 7, 17, 70};
  for (const int64_t m : kSizes) {
    for (const int64_t n : kSizes) {
      for (const int64_t k : kSizes) {
        const std::vector<float> a = Draw(1, m * k), b = Draw(2, k * n), c = Draw(3, m * n);
        for (const StridedMatrix view :
             {StridedMatrix{a.data(), k, 1}, StridedMatrix{a.data(), 1, m}}) {
          const std::vector<float> expected = Naive(m, n, k, view, b, c);
          for (const InstructionSet set :
               {InstructionSet::kBaseline, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
            if (!IsSupported(set)) continue;
            std::vector<float> actual = c;
            MultiplyAddWith(set, m, n, k, view, b.data(), actual.data());
            INFO(m << " x " << k << " x " << n << ", form " << static_cast<int>(set));
            REQUIRE((actual.empty() || std::memcmp(actual.data(), expected.data(),
                                                   actual.size() * sizeof(float)) == 0));
          }
          std::vector<float> actual = c;
          MultiplyAdd(m, n, k, view, b.data(), actual.data());
          REQUIRE(actual == expected);
        }
      }
    }
  }
}

TEST_CASE("Multiply-add: the baseline is always there", "[sparse_models]") {
  CHECK(IsSupported(InstructionSet::kBaseline));
}

}  // namespace
}  // namespace capstan::multiply_add_test
