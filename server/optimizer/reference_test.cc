#include "server/optimizer/testing/reference.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "server/optimizer/optimizer.h"

namespace capstan::server::reference_test {
namespace {

constexpr int64_t kElements = 5;

struct Expected {
  int64_t updates;
  std::vector<double> weights;  // [kElements], after that many updates.
};

struct PyTorchCase {
  std::string name;
  OptimizerConfig config;
  std::vector<Expected> expected;  // Ordered by number of updates.
};

const std::vector<PyTorchCase>& PyTorchCases() {
  static const std::vector<PyTorchCase> cases = {
#include "server/optimizer/testdata/expected.inc"
  };
  return cases;
}

// The formulas of testdata/make_expected.py; exact in fp32.
float FirstWeight(int64_t i) { return static_cast<float>(i - 2) / 4; }

float Gradient(int64_t step, int64_t i) {
  return i == 3 ? 0.0f : static_cast<float>((step * 7 + i * 5) % 17 - 8) / 8;
}

// An update rounds at most twelve times (Adam), each time by at most 2^-24 of a number that is at
// most about max(1, |w|) here and mostly far smaller, and the rules do not make errors grow. Bias
// corrections or warm-up off by one update and a misplaced epsilon or decay all exceed it.
double Tolerance(int64_t updates, double expected) {
  return static_cast<double>(updates) * 12 * 0x1p-24 * std::max(1.0, std::abs(expected));
}

TEST_CASE("Reference: every rule and schedule follows PyTorch, update by update",
          "[server][optimizer]") {
  REQUIRE(PyTorchCases().size() >= 20);
  for (const PyTorchCase& c : PyTorchCases()) {
    std::vector<float> w;
    for (int64_t i = 0; i < kElements; ++i) w.push_back(FirstWeight(i));
    std::vector<std::vector<float>> slots;
    std::vector<float*> state;
    for (int slot = 0; slot < StateSlots(c.config); ++slot) {
      slots.emplace_back(kElements, InitialState(c.config, slot));
    }
    for (std::vector<float>& slot : slots) state.push_back(slot.data());
    int64_t step = 0;
    for (const Expected& expected : c.expected) {
      INFO(c.name << ", after " << expected.updates << " updates");
      for (; step < expected.updates; ++step) {
        std::vector<float> g;
        for (int64_t i = 0; i < kElements; ++i) g.push_back(Gradient(step, i));
        ApplyReference(c.config, step, kElements, w.data(), g.data(), absl::MakeSpan(state),
                       w.data());
      }
      REQUIRE(expected.weights.size() == kElements);
      for (size_t i = 0; i < kElements; ++i) {
        INFO("element " << i);
        const double difference = std::abs(static_cast<double>(w[i]) - expected.weights[i]);
        CHECK(difference <= Tolerance(expected.updates, expected.weights[i]));
      }
    }
  }
}

}  // namespace
}  // namespace capstan::server::reference_test
