#include "common/job/momentum_advice.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <string>

namespace capstan {
namespace {

std::optional<std::string> Advice(const std::string& optimizer, const std::string& mode,
                                  int workers) {
  v1::JobSpec spec;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(
      "optimizer { " + optimizer + " learning_rate: 0.1 } " + "consistency { " + mode + " }",
      &spec));
  spec.mutable_resources()->set_workers(workers);
  return AdviseOnMomentum(spec);
}

TEST_CASE("AdviseOnMomentum: names field, value, workers, mode and the number to use", "[job]") {
  CHECK(Advice("momentum { momentum: 0.9 }", "asp {}", 2) ==
        "optimizer.momentum.momentum: 0.9 is too high for 2 workers in asp, where late gradients "
        "act like more momentum; use 0.8 at the rate that fits bsp "
        "(--set optimizer.momentum.momentum=0.8)");
  CHECK(Advice("nesterov {}", "ssp { staleness_bound: 1 }", 4) ==
        "optimizer.nesterov.momentum: 0.9 is too high for 4 workers in ssp, where late gradients "
        "act like more momentum; use 0.6 at the rate that fits bsp "
        "(--set optimizer.nesterov.momentum=0.6)");
}

TEST_CASE("AdviseOnMomentum: ten workers and more are told to use no momentum", "[job]") {
  const std::string sentence =
      "optimizer.momentum.momentum: 0.5 is too high for 16 workers in asp, where late gradients "
      "act like more momentum; use sgd at 0.625 times the rate that fits bsp";
  CHECK(Advice("momentum { momentum: 0.5 }", "asp {}", 16) == sentence);
  CHECK(Advice("momentum { momentum: 0.1 }", "asp {}", 10).has_value());
  CHECK_FALSE(Advice("momentum { momentum: 0.1 }", "asp {}", 9).has_value());
}

TEST_CASE("AdviseOnMomentum: is silent once it is followed", "[job]") {
  for (const int workers : {2, 3, 4, 5, 6, 7, 8, 9}) {
    const std::string value = "0." + std::to_string(10 - workers);
    CHECK_FALSE(Advice("momentum { momentum: " + value + " }", "asp {}", workers).has_value());
    CHECK(Advice("momentum { momentum: " + value + "1 }", "asp {}", workers).has_value());
  }
  CHECK_FALSE(Advice("momentum { momentum: 0 }", "asp {}", 1000).has_value());
}

TEST_CASE("AdviseOnMomentum: is silent where no gradient is late, or no momentum is used",
          "[job]") {
  CHECK_FALSE(Advice("momentum {}", "bsp {}", 4).has_value());
  CHECK_FALSE(Advice("momentum {}", "", 4).has_value());
  CHECK_FALSE(Advice("momentum {}", "asp {}", 1).has_value());
  CHECK_FALSE(Advice("sgd {}", "asp {}", 4).has_value());
  CHECK_FALSE(Advice("adam {}", "asp {}", 4).has_value());
}

}  // namespace
}  // namespace capstan
