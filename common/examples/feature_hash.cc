#include "common/examples/feature_hash.h"

#include <bit>
#include <cstddef>
#include <cstring>

namespace capstan {
namespace {

static_assert(std::endian::native == std::endian::little, "XXH64 reads little-endian words");

// The names are those of the specification.
constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87;
constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4F;
constexpr uint64_t kPrime3 = 0x165667B19E3779F9;
constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63;
constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5;
constexpr size_t kStripeBytes = 32;

template <typename T>
uint64_t Word(const char* p) {
  T word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

uint64_t Round(uint64_t accumulator, uint64_t lane) {
  return std::rotl(accumulator + lane * kPrime2, 31) * kPrime1;
}

uint64_t Merge(uint64_t hash, uint64_t accumulator) {
  return (hash ^ Round(0, accumulator)) * kPrime1 + kPrime4;
}

// Hashes all whole stripes and moves `*p` behind them.
uint64_t HashStripes(uint64_t seed, const char** p, const char* end) {
  uint64_t a = seed + kPrime1 + kPrime2;
  uint64_t b = seed + kPrime2;
  uint64_t c = seed;
  uint64_t d = seed - kPrime1;
  for (; static_cast<size_t>(end - *p) >= kStripeBytes; *p += kStripeBytes) {
    a = Round(a, Word<uint64_t>(*p));
    b = Round(b, Word<uint64_t>(*p + 8));
    c = Round(c, Word<uint64_t>(*p + 16));
    d = Round(d, Word<uint64_t>(*p + 24));
  }
  const uint64_t hash = std::rotl(a, 1) + std::rotl(b, 7) + std::rotl(c, 12) + std::rotl(d, 18);
  return Merge(Merge(Merge(Merge(hash, a), b), c), d);
}

}  // namespace

uint64_t HashFeature(int32_t field, absl::string_view bytes) {
  const auto seed = static_cast<uint64_t>(field);
  const char* p = bytes.data();
  const char* const end = p + bytes.size();
  uint64_t hash = bytes.size() >= kStripeBytes ? HashStripes(seed, &p, end) : seed + kPrime5;
  hash += bytes.size();
  for (; end - p >= 8; p += 8) {
    hash = std::rotl(hash ^ Round(0, Word<uint64_t>(p)), 27) * kPrime1 + kPrime4;
  }
  if (end - p >= 4) {
    hash = std::rotl(hash ^ (Word<uint32_t>(p) * kPrime1), 23) * kPrime2 + kPrime3;
    p += 4;
  }
  for (; p < end; ++p) hash = std::rotl(hash ^ (Word<uint8_t>(p) * kPrime5), 11) * kPrime1;
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace capstan
