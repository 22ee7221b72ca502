#include "common/sparse_models/skip_gram.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "common/random/philox.h"
#include "common/sparse_models/testing/local_training.h"
#include "common/sparse_models/testing/model_checks.h"
#include "common/testing/status_matchers.h"

namespace capstan::skip_gram_test {
namespace {

using ::capstan::testing::CheckGradients;
using ::capstan::testing::CheckInvariants;
using ::capstan::testing::LocalTraining;
using ::capstan::testing::ModelCase;
using ::capstan::testing::ReferenceLoss;
using ::capstan::testing::TrainOn;
using Options = SkipGram::Options;

std::unique_ptr<SkipGram> Make(const Options& options, uint64_t words = 8) {
  std::vector<NoiseWords::Word> counts;
  for (uint64_t key = 0; key < words; ++key) {
    counts.push_back({.key = key, .count = static_cast<int64_t>(1 + key % 3)});
  }
  REQUIRE_OK_AND_ASSIGN(NoiseWords noise, NoiseWords::Create(counts, 0.75));
  REQUIRE_OK_AND_ASSIGN(std::unique_ptr<SkipGram> model,
                        SkipGram::Create(options, std::move(noise)));
  return model;
}

void AddWords(const std::vector<uint64_t>& words, ExampleBatch* batch) {
  for (const uint64_t word : words) batch->AddFeature(word, 1, 0);
  batch->Finish(0);
}

// The sequences have no, one, two and repeated words.
ExampleBatch Sentences() {
  ExampleBatch batch;
  AddWords({1, 2, 3, 1, 4, 5, 5, 6}, &batch);
  AddWords({}, &batch);
  AddWords({7}, &batch);
  AddWords({2, 7}, &batch);
  AddWords({3, 3, 3}, &batch);
  return batch;
}

// The formula of skip_gram.h.
ReferenceLoss Naive(const SkipGram& model, const Options& options) {
  return [&model, options](const ModelCase& on, absl::Span<const double> rows,
                           absl::Span<const double>) {
    double loss = 0;
    size_t place = 0;
    const auto add = [&](size_t in, size_t out, double sign) {
      double dot = 0;
      for (int64_t c = 0; c < options.dim; ++c) {
        dot += rows[static_cast<size_t>(on.places[in] * options.dim + c)] *
               rows[static_cast<size_t>(on.places[out] * options.dim + c)];
      }
      loss += std::log1p(std::exp(-sign * dot));
    };
    for (int64_t i = 0; i < on.examples.count(); ++i) {
      const size_t words = on.examples.example(i).keys.size();
      if (words < 2) continue;
      size_t noise = place + 2 * words;
      for (size_t t = 0; t < words; ++t) {
        for (size_t c = 0; c < words; ++c) {
          const size_t distance = c < t ? t - c : c - t;
          if (c == t || static_cast<int64_t>(distance) > model.WindowOf(on.draws, i, t)) continue;
          add(place + t, place + words + c, 1);
          for (int64_t n = 0; n < options.negatives; ++n, ++noise) {
            if (on.places[noise] != on.places[place + words + c]) add(place + t, noise, -1);
          }
        }
      }
      place = noise;
    }
    CHECK(place == on.places.size());
    return loss;
  };
}

TEST_CASE("Skip-gram: loss and gradients are those of its formula", "[sparse_models]") {
  for (const Options& options : {Options{.dim = 3, .window = 1, .negatives = 2},
                                 Options{.dim = 8, .window = 3, .negatives = 1},
                                 Options{.dim = 17, .window = 10, .negatives = 4},
                                 Options{.dim = 1, .window = 2, .negatives = 0}}) {
    INFO("dim " << options.dim);
    const std::unique_ptr<SkipGram> model = Make(options);
    for (const uint64_t seed : {1, 2}) {
      CheckGradients(*model, ModelCase(*model, Sentences(), seed), Naive(*model, options));
    }
    CheckInvariants(*model, Sentences());
  }
}

TEST_CASE("Skip-gram: names input and output rows of words with neighbours, then negatives",
          "[sparse_models]") {
  const std::unique_ptr<SkipGram> model = Make({.dim = 2, .window = 1, .negatives = 3}, 1);
  ExampleBatch batch;
  AddWords({9}, &batch);
  AddWords({5, 6, 7}, &batch);
  std::vector<uint64_t> keys;
  REQUIRE_OK(model->AppendKeys(batch, {}, &keys));
  std::vector<uint64_t> expected = {5, 6, 7};
  for (const uint64_t word : {5, 6, 7}) expected.push_back(SkipGram::OutputKey(word));
  expected.insert(expected.end(), 4 * 3, SkipGram::OutputKey(0));  // Four pairs.
  CHECK(keys == expected);
}

TEST_CASE("Skip-gram: a negative that is the word itself counts for nothing", "[sparse_models]") {
  ExampleBatch batch;
  AddWords({0, 0}, &batch);
  const std::unique_ptr<SkipGram> with = Make({.dim = 4, .window = 1, .negatives = 6}, 1);
  const std::unique_ptr<SkipGram> without = Make({.dim = 4, .window = 1, .negatives = 0}, 1);
  CHECK(TrainOn(*with, ModelCase(*with, batch)) == TrainOn(*without, ModelCase(*without, batch)));
}

TEST_CASE("Skip-gram: windows are uniform, and follow from the number of the example",
          "[sparse_models]") {
  const std::unique_ptr<SkipGram> model = Make({.window = 4});
  std::vector<int> counts(5);
  for (size_t word = 0; word < 4000; ++word) {
    const int64_t window = model->WindowOf({.key = 3, .first = 5}, 2, word);
    REQUIRE((window >= 1 && window <= 4));
    ++counts[static_cast<size_t>(window)];
    CHECK(window == model->WindowOf({.key = 3, .first = 7}, 0, word));
  }
  for (size_t window = 1; window <= 4; ++window) CHECK(std::abs(counts[window] - 1000) < 140);
}

TEST_CASE("Skip-gram: other epochs draw other negatives", "[sparse_models]") {
  const std::unique_ptr<SkipGram> model = Make({.window = 1, .negatives = 8}, 1000);
  std::vector<uint64_t> first, second;
  REQUIRE_OK(model->AppendKeys(Sentences(), {.key = 1}, &first));
  REQUIRE_OK(model->AppendKeys(Sentences(), {.key = 2}, &second));
  CHECK(first.size() == second.size());
  CHECK(first != second);
}

TEST_CASE("Skip-gram: options out of range are refused", "[sparse_models]") {
  const auto refused = [](const Options& options, const char* message) {
    REQUIRE_OK_AND_ASSIGN(
        NoiseWords noise,
        NoiseWords::Create(std::vector<NoiseWords::Word>{{.key = 1, .count = 1}}, 1));
    CHECK_STATUS(SkipGram::Create(options, std::move(noise)), absl::StatusCode::kInvalidArgument,
                 message);
  };
  refused({.dim = 0}, "skip-gram: dim is 0, expected 1 to 4096");
  refused({.window = 0}, "window is 0");
  refused({.window = 1001}, "window is 1001");
  refused({.negatives = -1}, "negatives is -1");
}

double Cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t c = 0; c < a.size(); ++c) {
    const auto x = static_cast<double>(a[c]), y = static_cast<double>(b[c]);
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  return ab / std::sqrt(aa * bb);
}

// Words of one topic stand together; the nearest word of each must be of its topic.
TEST_CASE("Skip-gram: words that stand together become alike", "[sparse_models]") {
  constexpr uint64_t kTopics = 5, kWords = 50;  // Word w is of topic w % kTopics.
  ExampleBatch text;
  for (uint64_t line = 0; line < 1000; ++line) {
    std::vector<uint64_t> words;
    for (uint64_t i = 0; i < 10; ++i) {
      const uint64_t draw = PhiloxWord(MixKey(11, line), i) % (kWords / kTopics);
      words.push_back(draw * kTopics + line % kTopics);
    }
    AddWords(words, &text);
  }
  const std::unique_ptr<SkipGram> model = Make({.dim = 10, .window = 3, .negatives = 5}, kWords);
  LocalTraining training(*model, {.rate = 0.1f, .batch_size = 20});
  const double before = training.Epoch(text);
  double after = before;
  for (int epoch = 0; epoch < 3; ++epoch) after = training.Epoch(text);
  CHECK(after < 0.9 * before);
  for (uint64_t word = 0; word < kWords; ++word) {
    uint64_t nearest = word;
    double highest = -2;
    for (uint64_t other = 0; other < kWords; ++other) {
      const double cosine = Cosine(training.Row(word), training.Row(other));
      if (other == word || cosine < highest) continue;
      nearest = other;
      highest = cosine;
    }
    CHECK(nearest % kTopics == word % kTopics);
  }
}

}  // namespace
}  // namespace capstan::skip_gram_test
