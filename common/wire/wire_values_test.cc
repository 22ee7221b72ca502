#include "common/wire/wire_values.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

namespace capstan::wire_values_test {
namespace {

std::vector<float> Numbers(int64_t count) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(0.5f + static_cast<float>(i));
  return numbers;
}

// `bytes` in pieces of these sizes, repeated; each begins `shift` bytes beyond an
// aligned address.
absl::Cord TornBytes(const std::string& bytes, const std::vector<size_t>& sizes, size_t shift) {
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

absl::Cord Torn(const std::vector<float>& numbers, const std::vector<size_t>& sizes, size_t shift) {
  const std::string bytes(reinterpret_cast<const char*>(numbers.data()),
                          numbers.size() * sizeof(float));
  return TornBytes(bytes, sizes, shift);
}

TEST_CASE("Wire values: any range reads the same, however it is torn and aligned", "[wire]") {
  const std::vector<float> numbers = Numbers(3000);
  const size_t shift = GENERATE(0, 1, 4, 6);
  const std::vector<size_t> sizes =
      GENERATE(std::vector<size_t>{1 << 20}, std::vector<size_t>{4}, std::vector<size_t>{1},
               std::vector<size_t>{700, 3, 5001}, std::vector<size_t>{8192, 1});
  const absl::Cord cord = Torn(numbers, sizes, shift);
  const WireValues gradient(cord);
  REQUIRE(gradient.size() == 3000);
  for (const int64_t begin : {0, 1, 17, 1024, 2999}) {
    for (const int64_t count : {0, 1, 2, 100, 3000}) {
      if (begin + count > 3000) continue;
      std::vector<float> block(static_cast<size_t>(count) + 1, -1.0f);
      const UnalignedFloat* read = gradient.Read(begin, count, block.data());
      CHECK(std::memcmp(read, numbers.data() + begin, static_cast<size_t>(count) * sizeof(float)) ==
            0);
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

TEST_CASE("Wire values: rows go to their places, however they are torn", "[wire]") {
  const int64_t dim = GENERATE(1, 3, 17, 4096);
  constexpr int64_t kRows = 300;
  const std::vector<float> numbers = Numbers(kRows * dim);
  const absl::Cord cord = Torn(numbers, {700, 3, 5001}, 1);
  std::vector<uint32_t> places;
  for (uint32_t i = 0; i < kRows; ++i) places.push_back(2 * i + i % 2);
  std::vector<float> table(static_cast<size_t>(2 * kRows * dim), -1.0f);
  std::vector<float> expected = table;
  WireValues(cord).CopyRowsTo(places, dim, table.data());
  for (size_t i = 0; i < places.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    std::copy_n(numbers.begin() + row * dim, dim, expected.begin() + int64_t{places[i]} * dim);
  }
  CHECK(table == expected);
}

TEST_CASE("Wire values: what stands in front of them is passed over, however it is torn",
          "[wire]") {
  const std::vector<float> numbers = Numbers(3);
  const size_t skip = GENERATE(0, 1, 8, 16);
  const std::vector<size_t> sizes =
      GENERATE(std::vector<size_t>{1 << 20}, std::vector<size_t>{1}, std::vector<size_t>{5, 8});
  const std::string bytes(reinterpret_cast<const char*>(numbers.data()),
                          numbers.size() * sizeof(float));
  const absl::Cord cord = TornBytes(std::string(skip, 'k') + bytes, sizes, 0);
  const WireValues values(cord, NumberFormat::kFp32, skip);
  REQUIRE(values.size() == 3);
  std::vector<float> copy(3);
  values.CopyTo(copy.data());
  CHECK(copy == numbers);
}

TEST_CASE("Wire values: halves read as the floats they mean, however they are torn", "[wire]") {
  const NumberFormat format = GENERATE(NumberFormat::kBf16, NumberFormat::kFp16);
  const std::vector<size_t> sizes =
      GENERATE(std::vector<size_t>{1 << 20}, std::vector<size_t>{3}, std::vector<size_t>{5001, 7});
  std::vector<float> numbers;
  for (int i = 0; i < 9000; ++i) numbers.push_back(static_cast<float>(i % 128) / 64.0f - 1.0f);
  std::string bytes(numbers.size() * 2, 0);
  EncodeNumbers(format, numbers, bytes.data());
  const absl::Cord cord = TornBytes(bytes, sizes, 1);
  const WireValues values(cord, format);
  REQUIRE(values.size() == 9000);
  std::vector<float> copy(9000), block(WireValues::kBlockElements);
  values.CopyTo(copy.data());
  CHECK(copy == numbers);
  const UnalignedFloat* read = values.Read(4999, 4001, block.data());
  CHECK(std::memcmp(read, numbers.data() + 4999, 4001 * sizeof(float)) == 0);
  std::string fp32;
  values.AppendTo(&fp32);
  CHECK(fp32.size() == 9000 * sizeof(float));
  CHECK(std::memcmp(fp32.data(), numbers.data(), fp32.size()) == 0);
}

TEST_CASE("Wire values: whole and aligned values are read where they lie", "[wire]") {
  const std::vector<float> numbers = Numbers(100);
  const WireValues gradient{absl::MakeConstSpan(numbers)};
  CHECK(gradient.Read(10, 50, nullptr) == numbers.data() + 10);
  CHECK(WireValues().size() == 0);
}

}  // namespace
}  // namespace capstan::wire_values_test
