// Safetensors files: named tensors, readable by the public `safetensors` packages. Tensors are
// written as fp32; row_file.h writes keys, too. Tensors of fp16 and bf16, by other writers, are
// read as well.
//
// Layout: header length (8 bytes, little-endian), JSON header padded with spaces to 8 bytes, values
// (little-endian, contiguous, in the header's order). The bytes depend on the tensors alone: same
// names, shapes and values in the same order, same file. Thread safety: pure but for the file.
#ifndef CAPSTAN_COMMON_TENSOR_SAFETENSORS_SAFETENSORS_H_
#define CAPSTAN_COMMON_TENSOR_SAFETENSORS_SAFETENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/types/progress.h"

namespace capstan {

struct NamedTensorView {
  std::string name;            // Unique in the file; not "__metadata__".
  std::vector<int64_t> shape;  // Every dimension >= 0; empty: a scalar.
  absl::Span<const float> values;
};

struct NamedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;   // Values of a tensor of fp32, fp16 (F16) or bf16 (BF16), as fp32.
  std::vector<uint64_t> keys;  // Values of a tensor of whole numbers (U64).
};

// Writes `tensors` in their order; the file is replaced whole or not at all.
// Errors: kInvalidArgument  a name that is empty, reserved or repeated; values that do not fit
//                           their shape.
//         else              those of WriteFileDurably.
absl::Status WriteSafetensors(const std::string& path, absl::Span<const NamedTensorView> tensors,
                              const Progress& progress = nullptr);  // See WriteFileDurably.

// Reads all tensors, ordered by their place in the file.
// Errors: kNotFound, kPermissionDenied  those of OpenRegularFile.
//         kDataLoss                     not a safetensors file, truncated, or its header does not
//                                       agree with itself.
//         kUnimplemented                a tensor of another dtype than those of NamedTensor.
absl::StatusOr<std::vector<NamedTensor>> ReadSafetensors(const std::string& path);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TENSOR_SAFETENSORS_SAFETENSORS_H_
