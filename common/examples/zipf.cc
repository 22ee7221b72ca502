#include "common/examples/zipf.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace capstan {
namespace {

constexpr double kRanksMax = 0x1p48;
constexpr double kNearZero = 1e-8;  // Below it a second-order series is exact in double.

// These compute log(1 + x) / x and (e^x - 1) / x, also for x near 0.
double LogRatio(double x) { return std::abs(x) > kNearZero ? std::log1p(x) / x : 1 - x / 2; }
double ExpRatio(double x) { return std::abs(x) > kNearZero ? std::expm1(x) / x : 1 + x / 2; }

}  // namespace

Zipf::Zipf(uint64_t n, double exponent)
    : n_(static_cast<double>(n)),
      exponent_(exponent),
      begin_(Integral(1.5) - 1),
      end_(Integral(n_ + 0.5)),
      distance_(2 - InverseIntegral(Integral(2.5) - Height(2))) {
  assert(n >= 1 && n_ <= kRanksMax && exponent >= 0 && std::isfinite(exponent));
}

double Zipf::Height(double x) const { return std::exp(-exponent_ * std::log(x)); }

double Zipf::Integral(double x) const {
  const double log_x = std::log(x);
  return ExpRatio((1 - exponent_) * log_x) * log_x;
}

double Zipf::InverseIntegral(double y) const {
  // Rounding may give a value below -1, where the logarithm is not defined.
  const double t = std::max(y * (1 - exponent_), -1.0);
  return std::exp(LogRatio(t) * y);
}

std::optional<uint64_t> Zipf::Try(double u) const {
  const double y = end_ + u * (begin_ - end_);
  const double x = InverseIntegral(y);
  const double rank = std::clamp(std::floor(x + 0.5), 1.0, n_);
  const bool taken = rank - x <= distance_ || y >= Integral(rank + 0.5) - Height(rank);
  return taken ? std::optional<uint64_t>(static_cast<uint64_t>(rank)) : std::nullopt;
}

}  // namespace capstan
