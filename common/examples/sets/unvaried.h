// Finds columns that never vary in a split: a sign that a job reads its data in a wrong way.
//
// Thread safety: pure functions of the examples.
#ifndef CAPSTAN_COMMON_EXAMPLES_SETS_UNVARIED_H_
#define CAPSTAN_COMMON_EXAMPLES_SETS_UNVARIED_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/examples/sets/example_set.h"
#include "proto/job.pb.h"

namespace capstan {

struct Unvaried {
  int64_t examples = 0;        // Examples that were looked at.
  std::optional<float> label;  // All of them have this one.
  std::vector<int64_t> dense;  // Dense columns, from 0, with one value in all of them.
  // Fields, from 0, with the same keys and values in all of them, or none.
  std::vector<int32_t> fields;
};

// Looks at the first `examples_max` of the set, or at fewer if everything varies among them. With a
// single example it names no label, column or field.
// Errors: those of ExampleSet::Append.
absl::StatusOr<Unvaried> FindUnvaried(ExampleSet& set, int64_t examples_max);

// Returns a sentence about each of them, for the owner of a job; `split` is "data.train" or
// "data.test". Columns are called by number and name. No sentence is about labels that are missing.
std::vector<std::string> UnvariedWarnings(const v1::Data& data, const std::string& split,
                                          const Unvaried& unvaried);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_SETS_UNVARIED_H_
