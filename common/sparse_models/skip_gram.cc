#include "common/sparse_models/skip_gram.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

#include "common/sparse_models/example_check.h"
#include "common/sparse_models/losses.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr char kSkipGram[] = "skip-gram";
// The high half of Philox's counter chooses the stream of an example's draws.
constexpr uint64_t kWindowStream = uint64_t{1} << 63;

// Keeps eight partial sums and adds them up at the end: the compiler vectorises them, and the order
// is fixed by this code.
float Dot(const float* a, const float* b, int64_t dim) {
  std::array<float, 8> sums = {};
  int64_t c = 0;
  for (; c + 8 <= dim; c += 8) {
    for (size_t lane = 0; lane < 8; ++lane) {
      const size_t at = static_cast<size_t>(c) + lane;
      sums[lane] += a[at] * b[at];
    }
  }
  for (size_t lane = 0; c < dim; ++c, ++lane) sums[lane] += a[c] * b[c];
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

// Draws the negatives of one example, one after the other.
class NoiseDraws {
 public:
  NoiseDraws(const SampleDraws& draws, int64_t example)
      : key_(draws.key), number_(draws.first + static_cast<uint64_t>(example)) {}

  uint64_t Next(const NoiseWords& noise) {
    if (next_ % 2 == 0) words_ = Philox4x32(key_, number_, next_ / 2);
    const size_t at = next_++ % 2 * 2;
    return noise.Draw(words_[at], words_[at + 1]);
  }

 private:
  const uint64_t key_;
  const uint64_t number_;
  uint64_t next_ = 0;
  std::array<uint32_t, 4> words_ = {};
};

}  // namespace

absl::StatusOr<std::unique_ptr<SkipGram>> SkipGram::Create(const Options& options,
                                                           NoiseWords noise) {
  CAPSTAN_RETURN_IF_ERROR(CheckOption(kSkipGram, "dim", static_cast<double>(options.dim), 1,
                                      static_cast<double>(kRankMax + 1)));
  CAPSTAN_RETURN_IF_ERROR(
      CheckOption(kSkipGram, "window", static_cast<double>(options.window), 1, 1000));
  CAPSTAN_RETURN_IF_ERROR(
      CheckOption(kSkipGram, "negatives", static_cast<double>(options.negatives), 0, 1000));
  return std::unique_ptr<SkipGram>(new SkipGram(options, std::move(noise)));
}

SkipGram::SkipGram(const Options& options, NoiseWords noise)
    : options_(options), noise_(std::move(noise)), in_gradient_(static_cast<size_t>(options.dim)) {
  shape_.row_dim = options.dim;
  shape_.row_initial = {Initial::Kind::kUniform, 0.5f / static_cast<float>(options.dim)};
  shape_.loss = SparseLoss::kNegativeSampling;
}

int64_t SkipGram::WindowOf(const SampleDraws& draws, int64_t example, size_t word) const {
  const uint64_t number = draws.first + static_cast<uint64_t>(example);
  const uint32_t draw = Philox4x32(draws.key, number, kWindowStream | word)[0];
  return 1 + static_cast<int64_t>(uint64_t{draw} * static_cast<uint64_t>(options_.window) >> 32);
}

SkipGram::Around SkipGram::AroundWord(const SampleDraws& draws, int64_t example, size_t t,
                                      size_t words) const {
  const auto window = static_cast<size_t>(WindowOf(draws, example, t));
  return {.begin = t - std::min(t, window), .end = std::min(words, t + window + 1)};
}

absl::Status SkipGram::AppendKeys(const ExampleBatch& examples, const SampleDraws& draws,
                                  std::vector<uint64_t>* keys) const {
  for (int64_t i = 0; i < examples.count(); ++i) {
    const absl::Span<const uint64_t> words = examples.example(i).keys;
    if (words.size() < 2) continue;
    keys->insert(keys->end(), words.begin(), words.end());
    for (const uint64_t word : words) keys->push_back(OutputKey(word));
    NoiseDraws noise(draws, i);
    for (size_t t = 0; t < words.size(); ++t) {
      const auto count = static_cast<int64_t>(AroundWord(draws, i, t, words.size()).pairs());
      for (int64_t n = 0; n < count * options_.negatives; ++n) {
        keys->push_back(OutputKey(noise.Next(noise_)));
      }
    }
  }
  return absl::OkStatus();
}

double SkipGram::RunTarget(const SparseInput& input, uint32_t in, uint32_t out, bool positive,
                           float scale, float* row_gradients) {
  const int64_t dim = options_.dim;
  const float* in_row = input.rows.data() + in * dim;
  const float* out_row = input.rows.data() + out * dim;
  const LossAndSlope loss = LogLoss(static_cast<double>(Dot(in_row, out_row, dim)), positive);
  if (row_gradients == nullptr) return loss.loss;
  const auto slope = static_cast<float>(loss.slope * static_cast<double>(scale));
  float* __restrict of_in = in_gradient_.data();
  float* __restrict of_out = row_gradients + out * dim;
  for (int64_t c = 0; c < dim; ++c) {
    of_in[c] += slope * out_row[c];
    of_out[c] += slope * in_row[c];
  }
  return loss.loss;
}

SparseResult SkipGram::RunExample(const SparseInput& input, int64_t example, float scale,
                                  const uint32_t** place, float* row_gradients) {
  SparseResult result;
  const size_t words = input.examples.example(example).keys.size();
  if (words < 2) return result;
  const uint32_t* ins = *place;
  const uint32_t* outs = ins + words;
  const uint32_t* noise = outs + words;
  for (size_t t = 0; t < words; ++t) {
    const Around around = AroundWord(input.draws, example, t, words);
    std::fill(in_gradient_.begin(), in_gradient_.end(), 0.0f);
    for (size_t c = around.begin; c < around.end; ++c) {
      if (c == t) continue;
      result.loss_sum += RunTarget(input, ins[t], outs[c], true, scale, row_gradients);
      ++result.losses;
      for (int64_t n = 0; n < options_.negatives; ++n, ++noise) {
        if (*noise == outs[c]) continue;
        result.loss_sum += RunTarget(input, ins[t], *noise, false, scale, row_gradients);
      }
    }
    if (row_gradients == nullptr) continue;
    float* gradient = row_gradients + ins[t] * options_.dim;
    for (size_t c = 0; c < in_gradient_.size(); ++c) gradient[c] += in_gradient_[c];
  }
  *place = noise;
  return result;
}

SparseResult SkipGram::Train(const SparseInput& input, int64_t gradient_samples,
                             absl::Span<float> row_gradients, absl::Span<float> dense_gradients) {
  assert(gradient_samples >= 1 && row_gradients.size() == input.rows.size());
  assert(dense_gradients.empty());
  static_cast<void>(dense_gradients);
  std::fill(row_gradients.begin(), row_gradients.end(), 0.0f);
  const float scale = 1 / static_cast<float>(gradient_samples);
  SparseResult sum;
  const uint32_t* place = input.places.data();
  for (int64_t i = 0; i < input.examples.count(); ++i) {
    const SparseResult result = RunExample(input, i, scale, &place, row_gradients.data());
    sum.loss_sum += result.loss_sum;
    sum.losses += result.losses;
  }
  assert(place == input.places.data() + input.places.size());
  return sum;
}

SparseResult SkipGram::Predict(const SparseInput& input, absl::Span<float> outputs) {
  assert(static_cast<int64_t>(outputs.size()) == input.examples.count());
  SparseResult sum;
  const uint32_t* place = input.places.data();
  for (int64_t i = 0; i < input.examples.count(); ++i) {
    const SparseResult result = RunExample(input, i, 1, &place, nullptr);
    outputs[static_cast<size_t>(i)] = static_cast<float>(result.loss_sum);
    sum.loss_sum += result.loss_sum;
    sum.losses += result.losses;
  }
  return sum;
}

}  // namespace capstan
