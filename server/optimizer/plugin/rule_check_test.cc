#include "server/optimizer/plugin/rule_check.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <string>

#include "common/testing/status_matchers.h"

namespace capstan::server::rule_check_test {
namespace {

constexpr double kNumbers[] = {0.5, 2.0};

void Sgd(const double* numbers, uint64_t, double learning_rate, int64_t n, const float* in,
         const float* gradient, float* const* state, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    state[0][i] += gradient[i] * static_cast<float>(numbers[0]);
    out[i] = in[i] - static_cast<float>(learning_rate) * state[0][i];
  }
}

CapstanRule Fine() {
  return {.name = "fine_2",
          .state_count = 1,
          .initial_state = {1.0f},
          .number_count = 2,
          .default_numbers = kNumbers,
          .apply = Sgd};
}

void Refuse(const CapstanRule& rule, const std::string& text) {
  CHECK_STATUS(CheckRule(rule), absl::StatusCode::kInvalidArgument, text);
}

TEST_CASE("Rule check: a rule of single elements is accepted", "[server][optimizer]") {
  CHECK(CheckRule(Fine()).ok());
  CapstanRule bare = Fine();
  bare.state_count = 0;
  bare.number_count = 0;
  bare.default_numbers = nullptr;
  bare.apply = [](const double*, uint64_t, double lr, int64_t n, const float* in, const float* g,
                  float* const*, float* out) {
    for (int64_t i = 0; i < n; ++i) out[i] = in[i] - static_cast<float>(lr) * g[i];
  };
  CHECK(CheckRule(bare).ok());
}

TEST_CASE("Rule check: a wrong value in the table is named", "[server][optimizer]") {
  CapstanRule rule = Fine();
  SECTION("name") {
    rule.name = nullptr;
    Refuse(rule, "name: NULL");
    for (const char* name : {"", "Sign", "9a", "a-b", "\x1b[2J"}) {
      rule.name = name;
      Refuse(rule, "expected 1 to 64 letters a-z, digits and '_', a letter first");
    }
    const std::string longest(64, 'a');
    rule.name = longest.c_str();
    CHECK(CheckRule(rule).ok());
    const std::string longer(65, 'a');
    rule.name = longer.c_str();
    Refuse(rule, "expected 1 to 64 letters");
  }
  SECTION("state") {
    rule.state_count = 4;
    Refuse(rule, "rule fine_2: state_count: 4, expected 0 to 3");
    rule.state_count = -1;
    Refuse(rule, "state_count: -1");
    rule.state_count = 2;
    rule.initial_state[1] = std::numeric_limits<float>::infinity();
    Refuse(rule, "initial_state[1]: inf, expected a finite number");
  }
  SECTION("numbers") {
    rule.number_count = 17;
    Refuse(rule, "number_count: 17, expected 0 to 16");
    rule.number_count = 2;
    rule.default_numbers = nullptr;
    Refuse(rule, "default_numbers: NULL, expected 2 numbers");
    const double bad[] = {1.0, std::numeric_limits<double>::quiet_NaN()};
    rule.default_numbers = bad;
    Refuse(rule, "default_numbers[1]: nan, expected a finite one");
    rule.default_numbers = kNumbers;
    rule.check = [](const double*) { return "beta: expected [0, 1)"; };
    Refuse(rule, "its own check says \"beta: expected [0, 1)\"");
  }
  SECTION("function") {
    rule.apply = nullptr;
    Refuse(rule, "apply: NULL, expected a function");
  }
}

TEST_CASE("Rule check: a rule whose bits depend on the range is refused", "[server][optimizer]") {
  CapstanRule rule = Fine();
  SECTION("on the element before") {
    rule.apply = [](const double*, uint64_t, double, int64_t n, const float* in, const float* g,
                    float* const*, float* out) {
      float before = 0;
      for (int64_t i = 0; i < n; ++i) {
        out[i] = in[i] - before;
        before = g[i];
      }
    };
    Refuse(rule, "the weight of element ");
  }
  SECTION("on the place in the range") {
    rule.apply = [](const double*, uint64_t, double, int64_t n, const float* in, const float* g,
                    float* const* state, float* out) {
      for (int64_t i = 0; i < n; ++i) {
        state[0][i] = i < n / 4 * 4 ? g[i] : g[i] * 1.0000001f;
        out[i] = in[i];
      }
    };
    Refuse(rule, "state 0 of element ");
  }
  SECTION("on the place in memory") {
    rule.apply = [](const double*, uint64_t, double, int64_t n, const float* in, const float* g,
                    float* const*, float* out) {
      const bool aligned = reinterpret_cast<uintptr_t>(g) % 16 == 0;
      for (int64_t i = 0; i < n; ++i) out[i] = in[i] - (aligned ? g[i] : g[i] * 1.0000001f);
    };
    Refuse(rule, "expected the same bits for any range; apply must treat each element by itself");
  }
  SECTION("on the order of `in` and `out`") {
    rule.apply = [](const double*, uint64_t, double, int64_t n, const float* in, const float* g,
                    float* const*, float* out) {
      for (int64_t i = 0; i < n; ++i) out[i] = g[i];
      for (int64_t i = 0; i < n; ++i) out[i] = in[i] - out[i];
    };
    Refuse(rule, "over the weights");
  }
  SECTION("on the calls before") {
    static float calls = 0;
    rule.apply = [](const double*, uint64_t, double, int64_t n, const float* in, const float* g,
                    float* const*, float* out) {
      calls += 1;
      for (int64_t i = 0; i < n; ++i) out[i] = in[i] - g[i] / calls;
    };
    Refuse(rule, "the weight of element ");
  }
}

TEST_CASE("Rule check: a rule that writes where it may not is refused", "[server][optimizer]") {
  CapstanRule rule = Fine();
  SECTION("behind the range") {
    rule.apply = [](const double*, uint64_t, double, int64_t n, const float* in, const float*,
                    float* const*, float* out) {
      for (int64_t i = 0; i < n; ++i) out[i] = in[i];
      out[n] = 0;
    };
    Refuse(rule, "apply writes beside the n elements that it is given");
  }
  SECTION("into the gradient") {
    rule.apply = [](const double*, uint64_t, double, int64_t n, const float* in, const float* g,
                    float* const*, float* out) {
      for (int64_t i = 0; i < n; ++i) out[i] = in[i];
      const_cast<float*>(g)[0] = 0.125f;
    };
    Refuse(rule, "apply changes the gradient");
  }
  SECTION("into the weights before the update") {
    rule.apply = [](const double*, uint64_t, double, int64_t n, const float* in, const float* g,
                    float* const*, float* out) {
      for (int64_t i = 0; i < n; ++i) {
        const_cast<float*>(in)[i] -= g[i];
        out[i] = in[i];
      }
    };
    Refuse(rule, "apply changes `in`, expected that it writes to `out` alone");
  }
}

}  // namespace
}  // namespace capstan::server::rule_check_test
