#include "worker/training/step/host_copies.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "common/wire/number_format.h"

namespace capstan::worker::host_copies_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<char> Encoded(NumberFormat format, const std::vector<float>& values) {
  std::vector<char> bytes(values.size() * static_cast<size_t>(BytesOf(format)));
  EncodeNumbers(format, values, bytes.data());
  return bytes;
}

// Finite numbers, among them the largest and the smallest.
std::vector<float> Numbers(int64_t count, NumberFormat format) {
  const float largest = format == NumberFormat::kFp16 ? 65504.0f : 3.3e38f;
  std::vector<float> numbers;
  for (int64_t i = 0; i < count; ++i) {
    numbers.push_back(i % 7 == 0 ? largest : i % 7 == 1 ? -largest : 1e-7f * static_cast<float>(i));
  }
  return numbers;
}

TEST_CASE("Host copies: all bytes arrive, whatever the size and the number of threads",
          "[worker][training]") {
  const int threads = GENERATE(1, 2, 4);
  HostCopies copies(threads);
  for (const int64_t bytes : {0, 1, 1003, 511 << 10, 512 << 10, (1 << 20) + 17, 3 << 20}) {
    INFO(threads << " threads, " << bytes << " bytes");
    std::vector<char> from;
    for (int64_t i = 0; i < bytes; ++i) from.push_back(static_cast<char>(i * 31 + i / 251));
    std::vector<char> to(from.size() + 1, 'x');
    copies.Copy(from.data(), bytes, to.data());
    CHECK(std::memcmp(from.data(), to.data(), from.size()) == 0);
    CHECK(to.back() == 'x');
  }
}

TEST_CASE("Host copies: a number that is not finite is noticed wherever it is",
          "[worker][training]") {
  const auto format = GENERATE(NumberFormat::kFp32, NumberFormat::kBf16, NumberFormat::kFp16);
  const int threads = GENERATE(1, 3);
  HostCopies copies(threads);
  for (const int64_t count : {0, 1, 31, 32, 33, 100, 600'001}) {
    INFO("format " << static_cast<int>(format) << ", " << threads << " threads, " << count);
    std::vector<float> values = Numbers(count, format);
    std::vector<char> from = Encoded(format, values), to(from.size());
    CHECK(copies.CopyChecked(format, from.data(), count, to.data()));
    CHECK(to == from);
    for (const int64_t at : {int64_t{0}, count / 2, count - 1}) {
      if (count == 0) continue;
      for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
        std::vector<float> broken = values;
        broken[static_cast<size_t>(at)] = bad;
        from = Encoded(format, broken);
        CHECK_FALSE(copies.CopyChecked(format, from.data(), count, to.data()));
        CHECK(to == from);
      }
    }
    from = Encoded(format, values);
    CHECK(copies.CopyChecked(format, from.data(), count, to.data()));  // Bad copies have no effect.
  }
}

}  // namespace
}  // namespace capstan::worker::host_copies_test
