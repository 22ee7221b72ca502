#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "common/random/permutation.h"
#include "common/random/philox.h"

namespace capstan::random_test {
namespace {

// Known answers of Random123's kat_vectors for philox4x32-10.
TEST_CASE("Philox: known answers of the published test vectors", "[common][random]") {
  CHECK(Philox4x32(0, 0, 0) ==
        std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(Philox4x32(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}) ==
        std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(Philox4x32(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e) ==
        std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("Philox: a word by index is the word of its block", "[common][random]") {
  for (uint64_t i = 0; i < 64; ++i) CHECK(PhiloxWord(7, i) == Philox4x32(7, i / 4)[i % 4]);
}

TEST_CASE("Philox: a key goes through two words, and its lower half is first", "[common][random]") {
  CHECK(WordsOfKey(0x12345678'00000001) == std::array<int32_t, 2>{1, 0x12345678});
  for (const uint64_t key : {uint64_t{0}, ~uint64_t{0}, uint64_t{1} << 63, uint64_t{1} << 31}) {
    const auto words = WordsOfKey(key);
    CHECK(KeyOfWords(words[0], words[1]) == key);
  }
}

TEST_CASE("Permutation: every index once, and keys differ", "[common][random]") {
  for (const int64_t count : {0, 1, 2, 17, 1000}) {
    std::vector<uint32_t> order = MakePermutation(3, count);
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < count; ++i) CHECK(order[static_cast<size_t>(i)] == i);
  }
  CHECK(MakePermutation(1, 1000) == MakePermutation(1, 1000));
  CHECK(MakePermutation(1, 1000) != MakePermutation(2, 1000));
}

}  // namespace
}  // namespace capstan::random_test
