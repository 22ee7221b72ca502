// A normal number from two uniform words, by Box and Muller ("A note on the generation of random
// normal deviates", 1958). Thread safety: a pure function.
#ifndef CAPSTAN_COMMON_RANDOM_NORMAL_H_
#define CAPSTAN_COMMON_RANDOM_NORMAL_H_

#include <cmath>
#include <cstdint>
#include <numbers>

namespace capstan {

// Mean 0, standard deviation 1.
inline double NormalOf(uint32_t a, uint32_t b) {
  const double u = (static_cast<double>(a) + 1.0) * 0x1p-32;  // (0, 1]
  const double v = static_cast<double>(b) * 0x1p-32;          // [0, 1)
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace capstan

#endif  // CAPSTAN_COMMON_RANDOM_NORMAL_H_
