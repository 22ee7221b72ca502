// ExampleSet: the examples of a split of a job's data, by number.
//
// Those of files are read whole, in the order of the files, and held in memory; those of a click
// log are made when they are asked for. Malformed lines are left out.
// Thread safety: constant after Open.
#ifndef CAPSTAN_COMMON_EXAMPLES_EXAMPLE_SET_H_
#define CAPSTAN_COMMON_EXAMPLES_EXAMPLE_SET_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/examples/example_batch.h"
#include "common/types/ids.h"
#include "proto/job.pb.h"

namespace capstan {

inline constexpr int64_t kExamplesMax = int64_t{1} << 32;  // Of a split of files.

class ExampleSet {
 public:
  // REQUIRES: ValidateJob found nothing wrong with `data` and `split`.
  // Errors, of which messages about files begin with their path:
  //   kInvalidArgument    no example in all files; more than kExamplesMax; a header that is not
  //                       the columns'; options of a parser or click log.
  //   kResourceExhausted  more than 3/4 of this machine's memory.
  //   else                those of ListRanges, ExampleSource and BadLines.
  static absl::StatusOr<std::unique_ptr<ExampleSet>> Open(const v1::Data& data,
                                                          const v1::Split& split);
  virtual ~ExampleSet() = default;

  int64_t count() const { return count_; }  // >= 1.
  int64_t dense_columns() const { return dense_columns_; }
  // Fields are in [0, field_count()).
  int32_t field_count() const { return field_count_; }
  // Examples stand in no order: nothing is won by shuffling them.
  bool random() const { return random_; }

  // Appends the examples [range.begin, range.end). REQUIRES: 0 <= begin <= end <= count(), *batch
  // has dense_columns().
  virtual void Append(const Range& range, ExampleBatch* batch) const = 0;

 protected:
  ExampleSet(int64_t count, int64_t dense_columns, int32_t field_count, bool random)
      : count_(count), dense_columns_(dense_columns), field_count_(field_count), random_(random) {}

 private:
  const int64_t count_;
  const int64_t dense_columns_;
  const int32_t field_count_;
  const bool random_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_EXAMPLE_SET_H_
