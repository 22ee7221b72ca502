#include "common/sparse_models/losses.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

namespace capstan::losses_test {
namespace {

TEST_CASE("Losses: the log loss is its formula, and its slope its derivative", "[sparse_models]") {
  for (const bool clicked : {false, true}) {
    for (const double z : {-3.0, -0.5, 0.0, 0.1, 2.0}) {
      const double p = 1 / (1 + std::exp(-z));
      const LossAndSlope loss = LogLoss(z, clicked);
      CHECK(loss.loss == Approx(-std::log(clicked ? p : 1 - p)).epsilon(1e-14));
      CHECK(loss.slope == Approx(clicked ? p - 1 : p).epsilon(1e-14));
      const double difference = LogLoss(z + 1e-6, clicked).loss - LogLoss(z - 1e-6, clicked).loss;
      CHECK(loss.slope == Approx(difference / 2e-6).epsilon(1e-8));
    }
  }
}

TEST_CASE("Losses: the log loss of a large logit neither overflows nor loses its tail",
          "[sparse_models]") {
  CHECK(LogLoss(1000, false).loss == 1000);
  CHECK(LogLoss(-1000, true).loss == 1000);
  CHECK(LogLoss(1000, true).loss == 0);
  CHECK(LogLoss(40, true).loss == Approx(std::exp(-40.0)).epsilon(1e-14));
  CHECK(LogLoss(40, true).slope == Approx(-std::exp(-40.0)).epsilon(1e-14));
  CHECK(LogLoss(-1e300, false).slope == 0);
  CHECK(LogLoss(1e300, false).slope == 1);
}

TEST_CASE("Losses: NaN is not hidden", "[sparse_models]") {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const SparseLoss loss : {SparseLoss::kLogLoss, SparseLoss::kSquared}) {
    CHECK(std::isnan(LossOf(loss, kNan, 1).loss));
    CHECK(std::isnan(LossOf(loss, kNan, 0).slope));
    CHECK(std::isnan(LossOf(loss, 1, kNan).loss));
    CHECK(std::isnan(LossOf(loss, 1, kNan).slope));
  }
}

TEST_CASE("Losses: labels above 0 are clicks, -1 and 0 are none", "[sparse_models]") {
  CHECK(LossOf(SparseLoss::kLogLoss, 2, 0.5).loss == LogLoss(2, true).loss);
  CHECK(LossOf(SparseLoss::kLogLoss, 2, 0).loss == LogLoss(2, false).loss);
  CHECK(LossOf(SparseLoss::kLogLoss, 2, -1).loss == LogLoss(2, false).loss);
  CHECK(LossOf(SparseLoss::kSquared, 2, -1).loss == 9);
  CHECK(LossOf(SparseLoss::kSquared, 2, -1).slope == 6);
}

}  // namespace
}  // namespace capstan::losses_test
