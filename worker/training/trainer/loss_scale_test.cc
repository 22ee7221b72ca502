#include "worker/training/trainer/loss_scale.h"

#include <catch2/catch.hpp>

namespace capstan::worker::loss_scale_test {
namespace {

using Start = LossScale::Options::Start;

TEST_CASE("Loss scale: it begins, falls and grows as PyTorch's", "[worker][training]") {
  LossScale scale({});
  CHECK(scale.scale() == 65536);
  scale.Begin();
  CHECK(scale.Overflowed());
  CHECK(scale.Overflowed());
  CHECK(scale.scale() == 16384);
  for (int i = 0; i < 1999; ++i) {
    scale.Good();
    scale.Begin();
  }
  CHECK(scale.scale() == 16384);
  scale.Good();
  CHECK(scale.scale() == 32768);
}

TEST_CASE("Loss scale: only good batches in a row count", "[worker][training]") {
  LossScale scale({.initial = 4, .growth_interval = 3});
  scale.Good();
  scale.Good();
  REQUIRE(scale.Overflowed());  // 2
  scale.Good();
  scale.Good();
  CHECK(scale.scale() == 2);
  scale.Good();
  CHECK(scale.scale() == 4);
  scale.Good();
  scale.Good();
  CHECK(scale.scale() == 4);  // The count starts anew when the scale grows.
  scale.Good();
  CHECK(scale.scale() == 8);
}

TEST_CASE("Loss scale: it stays within its bounds, below which a batch is not tried again",
          "[worker][training]") {
  LossScale scale({.initial = 4, .growth_interval = 1, .min = 2, .max = 8});
  scale.Good();
  scale.Good();
  CHECK(scale.scale() == 8);
  CHECK(scale.Overflowed());
  CHECK(scale.Overflowed());
  CHECK(scale.scale() == 2);
  CHECK_FALSE(scale.Overflowed());
  CHECK(scale.scale() == 2);
}

TEST_CASE("Loss scale: under BSP a batch's scale does not depend on those before it",
          "[worker][training]") {
  LossScale scale({.start = Start::kInitial, .initial = 16, .growth_interval = 1});
  scale.Begin();
  scale.Good();
  scale.Begin();
  CHECK(scale.scale() == 16);
  scale.Overflowed();
  CHECK(scale.scale() == 8);
  scale.Begin();
  CHECK(scale.scale() == 16);
}

}  // namespace
}  // namespace capstan::worker::loss_scale_test
