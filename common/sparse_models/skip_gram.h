// SkipGram: word2vec's skip-gram with negative sampling. An example is a sequence of words
// (common/examples/parsers/text_parser.h makes them); each word predicts those around it:
//
//   loss of a pair (word t, word c) = -log sigmoid(<in_t, out_c>)
//                                     - sum over `negatives` draws n of log sigmoid(-<in_t, out_n>)
//
// over all c != t with |c - t| <= b, where b is drawn for each t, uniform in [1, window]. Negatives
// are drawn from the noise words by count^power; one that equals word c counts for nothing, as in
// word2vec.c. Values, fields and labels of the examples are ignored.
//
// A word has two rows in the same table: `in` is that of its own key, `out` that of OutputKey(key).
// Draws follow from (draws.key, number of the example) alone.
// Thread safety: used by one thread at a time.
#ifndef CAPSTAN_COMMON_SPARSE_MODELS_SKIP_GRAM_H_
#define CAPSTAN_COMMON_SPARSE_MODELS_SKIP_GRAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/examples/example_batch.h"
#include "common/random/philox.h"
#include "common/sparse_models/noise_words.h"
#include "common/sparse_models/sparse_model.h"

namespace capstan {

class SkipGram final : public SparseModel {
 public:
  struct Options {
    int64_t dim = 100;      // 1 to 4,096.
    int64_t window = 5;     // Words to each side, 1 to 1,000.
    int64_t negatives = 5;  // Negatives of each pair, 0 to 1,000.
  };

  // Errors: kInvalidArgument  an option out of its range; names it.
  static absl::StatusOr<std::unique_ptr<SkipGram>> Create(const Options& options, NoiseWords noise);

  // One to one. An output row has the key of another word's input row with probability 2^-64.
  static constexpr uint64_t OutputKey(uint64_t key) { return MixKey(kOutputSalt, key); }

  const SparseShape& shape() const override { return shape_; }

  // b of word `word` of example `example` of the batch.
  int64_t WindowOf(const SampleDraws& draws, int64_t example, size_t word) const;

  // Appends for each example of at least two words: its input keys, its output keys, then the
  // output keys of the negatives of each pair, ordered by t, then by c. Never fails.
  absl::Status AppendKeys(const ExampleBatch& examples, const SampleDraws& draws,
                          std::vector<uint64_t>* keys) const override;

  // Results count pairs. There are no dense parameters.
  SparseResult Train(const SparseInput& input, int64_t gradient_samples,
                     absl::Span<float> row_gradients, absl::Span<float> dense_gradients) override;
  // An example's output is the sum of its losses.
  SparseResult Predict(const SparseInput& input, absl::Span<float> outputs) override;

 private:
  static constexpr uint64_t kOutputSalt = 0x6F75747075742E77;  // "output.w".

  SkipGram(const Options& options, NoiseWords noise);

  // Range of c for word t of an example of `words`, and how many of them are pairs.
  struct Around {
    size_t begin, end;
    size_t pairs() const { return end - begin - 1; }
  };
  Around AroundWord(const SampleDraws& draws, int64_t example, size_t t, size_t words) const;

  // One example, whose keys' places begin at *place, which moves behind them. Gradients are scaled
  // by `scale` and added to row_gradients; null: none are wanted.
  SparseResult RunExample(const SparseInput& input, int64_t example, float scale,
                          const uint32_t** place, float* row_gradients);
  // Loss of one dot product; adds gradients of in to in_gradient_ and of out to row_gradients.
  double RunTarget(const SparseInput& input, uint32_t in, uint32_t out, bool positive, float scale,
                   float* row_gradients);

  const Options options_;
  const NoiseWords noise_;
  SparseShape shape_;
  std::vector<float> in_gradient_;  // [dim], of the word t.
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SPARSE_MODELS_SKIP_GRAM_H_
