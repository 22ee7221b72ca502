#include "server/optimizer/plugin/rule_check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/random/philox.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"

namespace capstan::server {
namespace {

constexpr size_t kNameBytesMax = 64;

template <typename... Parts>
absl::Status Wrong(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// ---------------------------------------------------------------- the table

bool IsRuleName(absl::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax || !absl::ascii_islower(name[0])) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_';
  });
}

absl::Status CheckName(const char* name) {
  if (name == nullptr) return Wrong("name: NULL, expected a text");
  const absl::string_view text(name, strnlen(name, kNameBytesMax + 1));
  if (IsRuleName(text)) return absl::OkStatus();
  return Wrong("name: \"", absl::CHexEscape(text), "\", expected 1 to ", kNameBytesMax,
               " letters a-z, digits and '_', a letter first");
}

absl::Status CheckNumbers(const CapstanRule& rule) {
  if (rule.number_count < 0 || rule.number_count > CAPSTAN_RULE_NUMBERS_MAX) {
    return Wrong("number_count: ", rule.number_count, ", expected 0 to ", CAPSTAN_RULE_NUMBERS_MAX);
  }
  if (rule.number_count > 0 && rule.default_numbers == nullptr) {
    return Wrong("default_numbers: NULL, expected ", rule.number_count, " numbers");
  }
  for (int i = 0; i < rule.number_count; ++i) {
    if (std::isfinite(rule.default_numbers[i])) continue;
    return Wrong("default_numbers[", i, "]: ", rule.default_numbers[i], ", expected a finite one");
  }
  const char* refusal = rule.check == nullptr ? nullptr : rule.check(rule.default_numbers);
  if (refusal == nullptr) return absl::OkStatus();
  return Wrong("default_numbers: its own check says \"", refusal, "\", expected no objection");
}

absl::Status CheckTable(const CapstanRule& rule) {
  if (rule.state_count < 0 || rule.state_count > CAPSTAN_RULE_STATES_MAX) {
    return Wrong("state_count: ", rule.state_count, ", expected 0 to ", CAPSTAN_RULE_STATES_MAX);
  }
  for (int i = 0; i < rule.state_count; ++i) {
    if (std::isfinite(rule.initial_state[i])) continue;
    return Wrong("initial_state[", i, "]: ", rule.initial_state[i], ", expected a finite number");
  }
  if (rule.apply == nullptr) return Wrong("apply: NULL, expected a function");
  return CheckNumbers(rule);
}

// ---------------------------------------------------------------- the updates

constexpr int64_t kElements = 331;
constexpr int64_t kGuard = 16;  // Floats before and behind an array, one cache line.
constexpr float kGuardValue = -12345.75f;
constexpr uint64_t kSteps[] = {0, 1, 2, 1'000'000};
constexpr double kLearningRate = 0.0625;

// An array of kElements floats, `place` floats behind a cache line, between guards.
class Array {
 public:
  Array(int64_t place, const std::vector<float>& values)
      : begin_(kGuard + place), floats_(static_cast<size_t>(kElements + 4 * kGuard), kGuardValue) {
    std::copy(values.begin(), values.end(), floats_.begin() + begin_);
  }
  float* at(int64_t element) { return floats_.data() + begin_ + element; }
  std::vector<float> values() const {
    return {floats_.begin() + begin_, floats_.begin() + begin_ + kElements};
  }
  bool GuardsAreWhole() const {
    const auto whole = [](float value) { return value == kGuardValue; };
    return std::all_of(floats_.begin(), floats_.begin() + begin_, whole) &&
           std::all_of(floats_.begin() + begin_ + kElements, floats_.end(), whole);
  }

 private:
  int64_t begin_;
  std::vector<float> floats_;
};

// How the updates are made: in pieces of `piece` elements, the last one first or last, each array
// `place` floats behind a cache line, over the weights or apart from them.
struct Way {
  int64_t piece = kElements;
  bool backwards = false;
  int64_t place = 0;
  bool in_place = false;
};

std::string NameOf(const Way& way) {
  return absl::StrCat("in pieces of ", way.piece, way.backwards ? ", the last one first" : "",
                      way.in_place ? ", over the weights" : "", ", at ", way.place * 4,
                      " bytes behind a cache line");
}

// Draws kElements numbers of all sizes, with a few special ones.
std::vector<float> Draw(uint64_t key) {
  std::vector<float> values;
  for (int64_t i = 0; i < kElements; ++i) {
    const float unit = 2 * ToUnitFloat(PhiloxWord(key, static_cast<uint64_t>(2 * i))) - 1;
    const int exponent = static_cast<int>(PhiloxWord(key, static_cast<uint64_t>(2 * i + 1)) % 24);
    values.push_back(std::ldexp(unit, 8 - exponent));
  }
  const float infinity = std::numeric_limits<float>::infinity();
  const float special[] = {0.0f, -0.0f, 1e-40f, 3e38f, infinity, -infinity, std::nanf("")};
  for (size_t i = 0; i < std::size(special); ++i) values[41 * i + key % 41] = special[i];
  return values;
}

struct Result {
  std::vector<float> weights;
  std::vector<std::vector<float>> state;
};

bool Same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

bool Same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return Same(x, y); });
}

// Makes one update of `result` and checks what it has written.
absl::Status Update(const CapstanRule& rule, const Way& way, uint64_t step, Result* result) {
  const std::vector<float> drawn = Draw(100 + step);
  Array in(way.place, result->weights);
  Array gradient((way.place * 3) % kGuard, drawn);
  Array apart((way.place * 5) % kGuard, result->weights);
  Array& out = way.in_place ? in : apart;
  std::vector<Array> state;
  for (const std::vector<float>& slot : result->state) state.emplace_back(way.place, slot);
  const int64_t pieces = (kElements + way.piece - 1) / way.piece;
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t begin = (way.backwards ? pieces - 1 - i : i) * way.piece;
    std::vector<float*> slots;
    for (Array& slot : state) slots.push_back(slot.at(begin));
    rule.apply(rule.default_numbers, step, kLearningRate, std::min(way.piece, kElements - begin),
               in.at(begin), gradient.at(begin), slots.data(), out.at(begin));
  }
  bool whole = out.GuardsAreWhole() && in.GuardsAreWhole() && gradient.GuardsAreWhole();
  for (const Array& slot : state) whole = whole && slot.GuardsAreWhole();
  if (!whole) return Wrong("apply writes beside the n elements that it is given");
  if (!Same(gradient.values(), drawn)) return Wrong("apply changes the gradient");
  if (!way.in_place && !Same(in.values(), result->weights)) {
    return Wrong("apply changes `in`, expected that it writes to `out` alone");
  }
  result->weights = out.values();
  for (size_t slot = 0; slot < state.size(); ++slot) result->state[slot] = state[slot].values();
  return absl::OkStatus();
}

absl::StatusOr<Result> Updates(const CapstanRule& rule, const Way& way) {
  Result result{.weights = Draw(7), .state = {}};
  for (int slot = 0; slot < rule.state_count; ++slot) {
    result.state.emplace_back(static_cast<size_t>(kElements), rule.initial_state[slot]);
  }
  for (const uint64_t step : kSteps) CAPSTAN_RETURN_IF_ERROR(Update(rule, way, step, &result));
  return result;
}

absl::Status Compare(const std::string& what, const Way& way, const std::vector<float>& found,
                     const std::vector<float>& expected) {
  for (size_t i = 0; i < found.size(); ++i) {
    if (Same(found[i], expected[i])) continue;
    return Wrong(what, " of element ", i, " is ", found[i], " where an update of ", kElements,
                 " elements is made ", NameOf(way), ", and ", expected[i],
                 " in one piece: expected the same bits for any range; apply must treat each "
                 "element by itself");
  }
  return absl::OkStatus();
}

absl::Status CheckUpdates(const CapstanRule& rule) {
  CAPSTAN_ASSIGN_OR_RETURN(const Result expected, Updates(rule, Way{}));
  std::vector<Way> ways = {Way{}};  // A repetition.
  for (const int64_t piece : {int64_t{1}, int64_t{7}, int64_t{64}, int64_t{200}, kElements}) {
    for (const int64_t place : {0, 1, 3, 7, 13}) {
      for (const bool in_place : {false, true}) {
        ways.push_back(
            {.piece = piece, .backwards = place == 3, .place = place, .in_place = in_place});
      }
    }
  }
  for (const Way& way : ways) {
    CAPSTAN_ASSIGN_OR_RETURN(const Result found, Updates(rule, way));
    CAPSTAN_RETURN_IF_ERROR(Compare("the weight", way, found.weights, expected.weights));
    for (size_t slot = 0; slot < found.state.size(); ++slot) {
      CAPSTAN_RETURN_IF_ERROR(
          Compare(absl::StrCat("state ", slot), way, found.state[slot], expected.state[slot]));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRule(const CapstanRule& rule) {
  CAPSTAN_RETURN_IF_ERROR(CheckName(rule.name));
  absl::Status status = CheckTable(rule);
  if (status.ok()) status = CheckUpdates(rule);
  return Annotate(status, absl::StrCat("rule ", rule.name));
}

}  // namespace capstan::server
