// Initial weights: the values that the dense tables of a job begin with, from a safetensors file.
//
// Thread safety: a pure function but for the file.
#ifndef CAPSTAN_COMMON_TENSOR_INITIAL_WEIGHTS_H_
#define CAPSTAN_COMMON_TENSOR_INITIAL_WEIGHTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/parameter_server.pb.h"

namespace capstan {

struct InitialWeights {
  std::vector<std::vector<float>> tables;  // Indexed by table, each with [elements] values.
  // One sentence for each tensor, of the file or the tables, that was not read; at most 20. None if
  // all had to fit.
  std::vector<std::string> left;
};

// kAll: the file has exactly the tensors of `tables`. kWhatFits: others are left out, and what it
// does not have, or has in another shape, begins as FillInitialValues says.
enum class WeightsFit { kAll, kWhatFits };

// Reads `path`, a safetensors file or a folder with a model.safetensors.
// Tables of rows start without rows and get empty values.
// REQUIRES: ValidateTable is OK of each table.
// Errors: kInvalidArgument  a line for each tensor that is missing, unknown, of another shape or
//                           of whole numbers; or none fits at all.
//         else              those of ReadSafetensors.
absl::StatusOr<InitialWeights> ReadInitialWeights(const std::string& path,
                                                  absl::Span<const v1::TableSpec> tables,
                                                  uint64_t seed, WeightsFit fit);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TENSOR_INITIAL_WEIGHTS_H_
