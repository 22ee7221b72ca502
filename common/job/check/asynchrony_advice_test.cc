#include "common/job/check/asynchrony_advice.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

namespace capstan::asynchrony_advice_test {
namespace {

// Three epochs of 1000 samples in batches of 64: 48 pushes.
std::optional<std::string> Advice(const std::string& optimizer, const std::string& mode,
                                  int workers, int64_t iterations_max = 0) {
  v1::JobSpec spec;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(
      "optimizer { " + optimizer + " learning_rate: 0.1 } " + "consistency { " + mode + " }",
      &spec));
  spec.mutable_training()->set_epochs(3);
  spec.mutable_training()->set_batch_size(64);
  spec.mutable_training()->set_iterations_max(iterations_max);
  spec.mutable_resources()->set_workers(workers);
  const std::vector<std::string> advice = AdviseOnAsynchrony(spec, 1000);
  REQUIRE(advice.size() <= 1);
  if (advice.empty()) return std::nullopt;
  return advice.front();
}

TEST_CASE("AdviseOnAsynchrony: names field, value, workers, mode and the number to use", "[job]") {
  CHECK(Advice("momentum { momentum: 0.9 }", "asp {}", 2) ==
        "optimizer.momentum.momentum: 0.9 is too high for 2 workers in asp, where late gradients "
        "act like more momentum; use 0.8 at the rate that fits bsp "
        "(--set optimizer.momentum.momentum=0.8)");
  CHECK(Advice("nesterov {}", "ssp { staleness_bound: 1 }", 4) ==
        "optimizer.nesterov.momentum: 0.9 is too high for 4 workers in ssp, where late gradients "
        "act like more momentum; use 0.6 at the rate that fits bsp "
        "(--set optimizer.nesterov.momentum=0.6)");
}

TEST_CASE("AdviseOnAsynchrony: the momentum of lars counts like any", "[job]") {
  CHECK(Advice("lars {}", "asp {}", 2)->ends_with("(--set optimizer.lars.momentum=0.8)"));
  CHECK(Advice("lars {}", "asp {}", 16)->ends_with("use 0 and a lower rate"));
}

TEST_CASE("AdviseOnAsynchrony: ten workers and more are told to use no momentum", "[job]") {
  const std::string sentence =
      "optimizer.momentum.momentum: 0.5 is too high for 16 workers in asp, where late gradients "
      "act like more momentum; use sgd at 0.625 times the rate that fits bsp";
  CHECK(Advice("momentum { momentum: 0.5 }", "asp {}", 16) == sentence);
  CHECK(Advice("momentum { momentum: 0.1 }", "asp {}", 10).has_value());
  CHECK_FALSE(Advice("momentum { momentum: 0.1 }", "asp {}", 9).has_value());
}

TEST_CASE("AdviseOnAsynchrony: a rate by staleness leaves more of the momentum", "[job]") {
  const std::string mode = "asp { rate_by_staleness: true }";
  CHECK(Advice("momentum {}", mode, 2)->ends_with("momentum=0.8)"));
  CHECK(Advice("momentum {}", mode, 3)->ends_with("momentum=0.85)"));
  CHECK(Advice("momentum {}", mode, 4) ==
        "optimizer.momentum.momentum: 0.9 is too high for 4 workers in asp with "
        "rate_by_staleness, where late gradients act like more momentum; use 0.86 at the rate "
        "that fits bsp (--set optimizer.momentum.momentum=0.86)");
  CHECK(Advice("momentum {}", "ssp { rate_by_staleness: true }", 4000)->ends_with("=0.89)"));
  CHECK_FALSE(Advice("momentum { momentum: 0.86 }", mode, 4).has_value());
}

TEST_CASE("AdviseOnAsynchrony: is silent once it is followed", "[job]") {
  for (const int workers : {2, 3, 4, 5, 6, 7, 8, 9}) {
    const std::string value = "0." + std::to_string(10 - workers);
    CHECK_FALSE(Advice("momentum { momentum: " + value + " }", "asp {}", workers).has_value());
    CHECK(Advice("momentum { momentum: " + value + "1 }", "asp {}", workers).has_value());
  }
  CHECK_FALSE(Advice("momentum { momentum: 0 }", "asp {}", 1000).has_value());
}

TEST_CASE("AdviseOnAsynchrony: is silent where no gradient is late, or no momentum is used",
          "[job]") {
  CHECK_FALSE(Advice("momentum {}", "bsp {}", 4).has_value());
  CHECK_FALSE(Advice("momentum {}", "", 4).has_value());
  CHECK_FALSE(Advice("momentum {}", "asp {}", 1).has_value());
  CHECK_FALSE(Advice("sgd {}", "asp {}", 4).has_value());
  CHECK_FALSE(Advice("adam {}", "asp {}", 4).has_value());
}

TEST_CASE("AdviseOnAsynchrony: a cosine of a BSP job's length is to be that of the pushes",
          "[job]") {
  CHECK(
      Advice("sgd {} schedule { cosine { steps: 12 } }", "asp {}", 4) ==
      "optimizer.schedule.cosine.steps: 12 updates are over before three quarters of the job's 48 "
      "pushes, each of which is an update in asp (in bsp those of all workers are one); use 48 "
      "(--set optimizer.schedule.cosine.steps=48)");
  CHECK(Advice("adam {} schedule { cosine { steps: 36 } }", "ssp {}", 2).has_value());
  CHECK_FALSE(Advice("adam {} schedule { cosine { steps: 37 } }", "ssp {}", 2).has_value());
  CHECK_FALSE(Advice("sgd {} schedule { cosine { steps: 12 } }", "asp {}", 1).has_value());
  CHECK_FALSE(Advice("sgd {} schedule { cosine { steps: 12 } }", "bsp {}", 4).has_value());
  CHECK_FALSE(Advice("sgd {} schedule { step { every: 1 factor: 0.1 } }", "asp {}", 4).has_value());
  CHECK_FALSE(Advice("sgd {} schedule { cosine { steps: 12 } }", "asp {}", 4, 15).has_value());
}

TEST_CASE("AdviseOnAsynchrony: a cosine of BSP is noticed if its last iterations are not full",
          "[job]") {
  // 3 epochs of 3 batches: 6 iterations of two workers, of which 3 have one batch.
  v1::JobSpec spec;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(
      "optimizer { sgd {} learning_rate: 0.1 schedule { cosine { steps: 6 } } }"
      "training { epochs: 3 batch_size: 64 } consistency { asp {} } resources { workers: 2 }",
      &spec));
  CHECK(AdviseOnAsynchrony(spec, 192).size() == 1);
}

TEST_CASE("AdviseOnAsynchrony: both numbers are named", "[job]") {
  v1::JobSpec spec;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(
      "optimizer { momentum {} learning_rate: 0.1 schedule { cosine { steps: 12 } } }"
      "training { epochs: 3 batch_size: 64 } consistency { asp {} } resources { workers: 4 }",
      &spec));
  const std::vector<std::string> advice = AdviseOnAsynchrony(spec, 1000);
  REQUIRE(advice.size() == 2);
  CHECK_THAT(advice[0], Catch::EndsWith("(--set optimizer.momentum.momentum=0.6)"));
  CHECK_THAT(advice[1], Catch::EndsWith("(--set optimizer.schedule.cosine.steps=48)"));
}

}  // namespace
}  // namespace capstan::asynchrony_advice_test
