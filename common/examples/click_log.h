// ClickLog: an endless click log whose true probabilities are known.
//
// An example has one key of each field, drawn by Zipf's law, and dense columns of mean 0 and
// variance 1. It is clicked with the probability
//
//   p = logistic(bias + sum_f w(key_f) + sum_j u_j dense_j + sum_{f<g} <v(key_f), v(key_g)>)
//
// so a linear model learns a part of it, one with factors (FM) all of it, and the log-loss of p
// itself is the best that any model can reach. The weights w, u and v are drawn from the seed by
// key when they are needed: a log over 10^12 keys takes no more memory than one over ten.
//
// Everything follows from (options, example index) alone: any range can be made anywhere, in any
// order. Training and test data are two ranges of one log. The logarithms and exponentials are the
// C library's: two of its versions may differ in a last bit and so, very rarely, in a key or label.
//
// Thread safety: constant after construction.
#ifndef CAPSTAN_COMMON_EXAMPLES_CLICK_LOG_H_
#define CAPSTAN_COMMON_EXAMPLES_CLICK_LOG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/examples/example_batch.h"
#include "common/examples/zipf.h"

namespace capstan {

class ClickLog {
 public:
  struct Options {
    uint64_t seed = 1;
    int32_t fields = 10;              // 1 to 65,535.
    uint64_t keys_per_field = 10000;  // 1 to 2^48.
    double zipf_exponent = 1.1;       // 0 (all keys alike) to 10.
    int32_t dense_columns = 0;        // 0 to 65,535.
    int32_t rank = 4;                 // Length of the vectors v, 0 (no interactions) to 64.
    double bias = -1;                 // Finite. The logit of an example whose other terms are 0.
    // Standard deviations, >= 0 and finite, with all keys equally likely: of the sums over w and u
    // together, and of the sum over pairs.
    double linear_stddev = 1;
    double interaction_stddev = 0.7;
  };

  // Errors: kInvalidArgument  an option out of its range; names it.
  static absl::StatusOr<ClickLog> Create(const Options& options);

  int32_t fields() const { return options_.fields; }

  // Appends the examples [begin, end) to *batch, with labels 0 or 1 and values 1. Appends the true
  // p of each to *probabilities, unless that is null. REQUIRES: begin <= end; *batch has the
  // options' dense columns.
  void Append(uint64_t begin, uint64_t end, ExampleBatch* batch,
              std::vector<double>* probabilities) const;

  // The true p of an example of this log.
  double Probability(const ExampleView& example) const;

  // The key of the rank-th most frequent value (from 1) of a field. All these keys are different.
  static uint64_t KeyOf(int32_t field, uint64_t rank);

 private:
  class Logit;

  explicit ClickLog(const Options& options);
  void AppendOne(uint64_t index, ExampleBatch* batch, std::vector<double>* probabilities) const;

  Options options_;
  Zipf zipf_;
  double weight_scale_ = 0;  // Standard deviation of each w and u.
  double factor_scale_ = 0;  // Standard deviation of each entry of v.
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_CLICK_LOG_H_
