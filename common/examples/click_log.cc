#include "common/examples/click_log.h"

#include <array>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/random/philox.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr int32_t kFieldsMax = 65535;
constexpr uint64_t kKeysMax = uint64_t{1} << 48;
constexpr int32_t kRankMax = 64;
constexpr double kExponentMax = 10;

// Each stream of random numbers has a key of its own.
enum Stream : uint64_t { kRankStream = 1, kDenseStream, kLabelStream, kWeightStream };

// Returns a uniform number in [0, 1), with all 53 bits of a double.
double ToUnit(uint32_t high, uint32_t low) {
  return static_cast<double>(((uint64_t{high} << 32) | low) >> 11) * 0x1p-53;
}

// Returns a uniform number with mean 0 and variance 1.
double ToCentred(uint32_t word) {
  constexpr double kSqrt3 = 1.7320508075688772;
  return (2 * ((static_cast<double>(word) + 0.5) * 0x1p-32) - 1) * kSqrt3;
}

// Draws the uniform numbers of Zipf's rejection sampling for one field of one example.
class RankDraws {
 public:
  RankDraws(uint64_t seed, uint64_t index, int32_t field)
      : key_(MixKey(seed, kRankStream)), index_(index), field_(static_cast<uint64_t>(field)) {}

  double operator()() {
    const uint64_t draw = draws_++;
    if (draw % 2 == 0) words_ = Philox4x32(key_, index_, field_ << 32 | draw / 2);
    return draw % 2 == 0 ? ToUnit(words_[0], words_[1]) : ToUnit(words_[2], words_[3]);
  }

 private:
  const uint64_t key_;
  const uint64_t index_;
  const uint64_t field_;
  uint64_t draws_ = 0;
  std::array<uint32_t, 4> words_ = {};
};

absl::Status OutOfRange(absl::string_view name, double value, absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("click log: ", name, " is ", value, ", expected ", expected));
}

template <typename T>
absl::Status CheckRange(absl::string_view name, T value, T low, T high) {
  if (value >= low && value <= high) return absl::OkStatus();  // This is false for NaN.
  return absl::InvalidArgumentError(
      absl::StrCat("click log: ", name, " is ", value, ", expected ", low, " to ", high));
}

absl::Status CheckOptions(const ClickLog::Options& options) {
  CAPSTAN_RETURN_IF_ERROR(CheckRange("fields", options.fields, 1, kFieldsMax));
  CAPSTAN_RETURN_IF_ERROR(
      CheckRange("keys_per_field", options.keys_per_field, uint64_t{1}, kKeysMax));
  CAPSTAN_RETURN_IF_ERROR(CheckRange("zipf_exponent", options.zipf_exponent, 0.0, kExponentMax));
  CAPSTAN_RETURN_IF_ERROR(CheckRange("dense_columns", options.dense_columns, 0, kFieldsMax));
  CAPSTAN_RETURN_IF_ERROR(CheckRange("rank", options.rank, 0, kRankMax));
  if (!std::isfinite(options.bias)) return OutOfRange("bias", options.bias, "a finite number");
  for (const auto& [name, value] : {std::pair("linear_stddev", options.linear_stddev),
                                    std::pair("interaction_stddev", options.interaction_stddev)}) {
    if (!(value >= 0) || !std::isfinite(value)) {
      return OutOfRange(name, value, "a finite number of at least 0");
    }
  }
  return absl::OkStatus();
}

}  // namespace

// Adds up the logit of one example.
class ClickLog::Logit {
 public:
  explicit Logit(const ClickLog& log)
      : log_(log), key_(MixKey(log.options_.seed, kWeightStream)), sum_(log.options_.bias) {}

  void AddKey(uint64_t key) {
    // Word 0 gives w, the words after it give v.
    std::array<uint32_t, 4> words = {};
    for (uint32_t i = 0; i <= static_cast<uint32_t>(log_.options_.rank); ++i) {
      if (i % 4 == 0) words = Philox4x32(key_, key, i / 4);
      const double draw = ToCentred(words[i % 4]);
      if (i == 0) {
        sum_ += log_.weight_scale_ * draw;
      } else {
        const double factor = log_.factor_scale_ * draw;
        factors_[i - 1] += factor;
        squares_ += factor * factor;
      }
    }
  }

  void AddDense(size_t column, float value) {
    // The high half of Philox's counter is below 2^32 for keys, so no key has the same counter.
    const uint32_t word = Philox4x32(key_, column, uint64_t{1} << 63)[0];
    sum_ += log_.weight_scale_ * ToCentred(word) * static_cast<double>(value);
  }

  // The sum over pairs is (|sum of v|^2 - sum of |v|^2) / 2.
  double Probability() const {
    double square = 0;
    for (const double factor : factors_) square += factor * factor;
    return 1 / (1 + std::exp(-(sum_ + (square - squares_) / 2)));
  }

 private:
  const ClickLog& log_;
  const uint64_t key_;
  double sum_;
  std::array<double, kRankMax> factors_ = {};
  double squares_ = 0;
};

absl::StatusOr<ClickLog> ClickLog::Create(const Options& options) {
  CAPSTAN_RETURN_IF_ERROR(CheckOptions(options));
  return ClickLog(options);
}

ClickLog::ClickLog(const Options& options)
    : options_(options), zipf_(options.keys_per_field, options.zipf_exponent) {
  const double fields = options.fields;
  const double terms = fields + options.dense_columns;
  weight_scale_ = options.linear_stddev / std::sqrt(terms);
  // A product of two entries has the variance scale^4; there are rank of them for each pair.
  const double products = options.rank * fields * (fields - 1) / 2;
  if (products > 0) factor_scale_ = std::sqrt(options.interaction_stddev / std::sqrt(products));
}

uint64_t ClickLog::KeyOf(int32_t field, uint64_t rank) {
  // MixKey(0, x) maps the 64-bit numbers one to one.
  return MixKey(0, static_cast<uint64_t>(field) << 48 | (rank - 1));
}

void ClickLog::AppendOne(uint64_t index, ExampleBatch* batch,
                         std::vector<double>* probabilities) const {
  Logit logit(*this);
  for (int32_t field = 0; field < options_.fields; ++field) {
    const uint64_t key = KeyOf(field, zipf_.Draw(RankDraws(options_.seed, index, field)));
    batch->AddFeature(key, 1.0f, field);
    logit.AddKey(key);
  }
  const auto columns = static_cast<size_t>(options_.dense_columns);
  const uint64_t dense_key = MixKey(options_.seed, kDenseStream);
  std::array<uint32_t, 4> words = {};
  for (size_t column = 0; column < columns; ++column) {
    if (column % 4 == 0) words = Philox4x32(dense_key, index, column / 4);
    const auto value = static_cast<float>(ToCentred(words[column % 4]));
    batch->AddDense(value);
    logit.AddDense(column, value);
  }
  const double probability = logit.Probability();
  words = Philox4x32(MixKey(options_.seed, kLabelStream), index);
  batch->Finish(ToUnit(words[0], words[1]) < probability ? 1.0f : 0.0f);
  if (probabilities != nullptr) probabilities->push_back(probability);
}

void ClickLog::Append(uint64_t begin, uint64_t end, ExampleBatch* batch,
                      std::vector<double>* probabilities) const {
  assert(begin <= end && batch->dense_columns() == options_.dense_columns);
  for (uint64_t index = begin; index < end; ++index) AppendOne(index, batch, probabilities);
}

double ClickLog::Probability(const ExampleView& example) const {
  Logit logit(*this);
  for (const uint64_t key : example.keys) logit.AddKey(key);
  for (size_t j = 0; j < example.dense.size(); ++j) logit.AddDense(j, example.dense[j]);
  return logit.Probability();
}

}  // namespace capstan
