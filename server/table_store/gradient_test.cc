#include "server/table_store/gradient.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

namespace capstan::server {
namespace {

std::vector<float> Numbers(int64_t count) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(0.5f + static_cast<float>(i));
  return numbers;
}

// The bytes of `numbers` in pieces of these sizes, repeated; each begins `shift` bytes beyond an
// aligned address.
absl::Cord Torn(const std::vector<float>& numbers, const std::vector<size_t>& sizes, size_t shift) {
  const std::string bytes(reinterpret_cast<const char*>(numbers.data()),
                          numbers.size() * sizeof(float));
  absl::Cord cord;
  size_t begin = 0;
  for (size_t i = 0; begin < bytes.size(); ++i) {
    const std::string part = bytes.substr(begin, sizes[i % sizes.size()]);
    auto* memory = new std::vector<double>(part.size() / sizeof(double) + 2);
    char* place = reinterpret_cast<char*>(memory->data()) + shift;
    std::memcpy(place, part.data(), part.size());
    cord.Append(absl::MakeCordFromExternal({place, part.size()}, [memory] { delete memory; }));
    begin += part.size();
  }
  return cord;
}

TEST_CASE("Gradient: any range reads the same, however it is torn and aligned", "[server]") {
  const std::vector<float> numbers = Numbers(3000);
  const size_t shift = GENERATE(0, 1, 4, 6);
  const std::vector<size_t> sizes =
      GENERATE(std::vector<size_t>{1 << 20}, std::vector<size_t>{4}, std::vector<size_t>{1},
               std::vector<size_t>{700, 3, 5001}, std::vector<size_t>{8192, 1});
  const absl::Cord cord = Torn(numbers, sizes, shift);
  const Gradient gradient(cord);
  REQUIRE(gradient.size() == 3000);
  for (const int64_t begin : {0, 1, 17, 1024, 2999}) {
    for (const int64_t count : {0, 1, 2, 100, 3000}) {
      if (begin + count > 3000) continue;
      std::vector<float> block(static_cast<size_t>(count) + 1, -1.0f);
      const float* read = gradient.Read(begin, count, block.data());
      CHECK(std::equal(read, read + count, numbers.begin() + begin));
      CHECK(block.back() == -1.0f);
    }
  }
  std::vector<float> copy(3000);
  gradient.CopyTo(copy.data());
  CHECK(copy == numbers);
  std::string bytes;
  gradient.AppendTo(&bytes);
  CHECK(bytes == cord);
}

TEST_CASE("Gradient: whole and aligned values are read where they lie", "[server]") {
  const std::vector<float> numbers = Numbers(100);
  const Gradient gradient{absl::MakeConstSpan(numbers)};
  CHECK(gradient.Read(10, 50, nullptr) == numbers.data() + 10);
  CHECK(Gradient().size() == 0);
}

}  // namespace
}  // namespace capstan::server
