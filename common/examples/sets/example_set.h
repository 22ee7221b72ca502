// ExampleSet: the examples of a split of a job's data, by number, and in the order of an epoch.
//
//   StoredExamples   small files: read whole, held in memory; an epoch's order is any permutation
//   BlockExamples    large files: read again in each epoch, block by block; blocks are shuffled,
//                    and the examples of each
//   ClickLogExamples made when they are asked for; in no order, so that nothing is shuffled
//
// Numbers count from 0 in the order of the files. Malformed lines are left out.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_EXAMPLES_SETS_EXAMPLE_SET_H_
#define CAPSTAN_COMMON_EXAMPLES_SETS_EXAMPLE_SET_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/examples/example_batch.h"
#include "common/types/ids.h"
#include "common/types/progress.h"
#include "proto/job.pb.h"

namespace capstan {

class ExampleSet {
 public:
  // A split of large files has its block_examples already (CountBlocks). `progress` gets "examples
  // read" while small files are read.
  // REQUIRES: ValidateJob found nothing wrong with `data` and `split`.
  // Errors (messages about files begin with the path):
  //   kInvalidArgument    no example in all files; 2^32 or more in memory; a header that is not the
  //                       columns'; options of a parser or click log.
  //   kResourceExhausted  examples in memory take more than 3/4 of this machine's.
  //   kDataLoss           other blocks than those that were counted; those of a split in memory
  //                       are one, which is checked if it was counted.
  //   else                those of ListRanges, ExampleSource and BadLines.
  static absl::StatusOr<std::unique_ptr<ExampleSet>> Open(const v1::Data& data,
                                                          const v1::Split& split,
                                                          const Progress& progress = nullptr);
  virtual ~ExampleSet() = default;

  virtual int64_t count() const = 0;  // >= 1.
  virtual int64_t dense_columns() const = 0;
  // Fields are in [0, field_count()).
  virtual int32_t field_count() const = 0;

  // Append appends the examples with these numbers, AppendShuffled those at these positions of the
  // order that follows from `key` alone. REQUIRES: parts of [0, count()), *batch has
  // dense_columns().
  // Errors: those of ExampleSource; kDataLoss  a block has other examples than were counted.
  virtual absl::Status Append(const Range& numbers, ExampleBatch* batch) = 0;
  virtual absl::Status AppendShuffled(uint64_t key, const Range& positions,
                                      ExampleBatch* batch) = 0;
};

// Returns the number of examples in each block of the split; empty if it is not read in blocks.
// Reads all of it. Errors: those of Open about files.
absl::StatusOr<std::vector<int64_t>> CountBlocks(const v1::Data& data, const v1::Split& split);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_SETS_EXAMPLE_SET_H_
