// Zipf: draws ranks 1 to n with probability proportional to rank^-exponent, in constant memory.
//
// Rejection-inversion: inverts the integral of x^-exponent, which lies above a staircase of the
// probabilities, and rejects what falls between the two: under 1 draw in 5, whatever n is.
// Reference: Hörmann, Derflinger: "Rejection-inversion to generate variates from monotone discrete
// distributions" (ACM TOMACS 6(3), 1996). Thread safety: constant after construction.
#ifndef CAPSTAN_COMMON_EXAMPLES_ZIPF_H_
#define CAPSTAN_COMMON_EXAMPLES_ZIPF_H_

#include <cstdint>
#include <optional>

namespace capstan {

class Zipf {
 public:
  // REQUIRES: 1 <= n <= 2^48, exponent >= 0 and finite (asserted). Exponent 0: all alike.
  Zipf(uint64_t n, double exponent);

  // The rank that u in [0, 1) stands for. Nothing: u is rejected, draw another one.
  std::optional<uint64_t> Try(double u) const;

  // Draws by calling `uniform()`, which returns independent numbers in [0, 1), until one is taken.
  template <typename Uniform>
  uint64_t Draw(Uniform&& uniform) const {
    while (true) {
      if (const std::optional<uint64_t> rank = Try(uniform())) return *rank;
    }
  }

 private:
  double Height(double x) const;           // x^-exponent.
  double Integral(double x) const;         // Integral of the density from 1 to x.
  double InverseIntegral(double y) const;  // x with Integral(x) = y.

  const double n_;
  const double exponent_;
  const double begin_;     // Begin of the integral's range.
  const double end_;       // End of the integral's range.
  const double distance_;  // An x at most this far below its rank is accepted at once.
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_ZIPF_H_
