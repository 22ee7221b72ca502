// The JSON header of a safetensors file: names, shapes and places of tensors.
//
// Format: https://github.com/huggingface/safetensors#format. Four of its dtypes are known here.
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_TENSOR_SAFETENSORS_SAFETENSORS_HEADER_H_
#define CAPSTAN_COMMON_TENSOR_SAFETENSORS_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace capstan {

// Bytes of the number before the header, which is the header's length.
inline constexpr int64_t kSafetensorsLengthBytes = 8;

enum class Dtype { kF32, kF16, kBf16, kU64 };  // "U64": keys. The others: numbers.

constexpr int64_t BytesOf(Dtype dtype) {
  if (dtype == Dtype::kU64) return 8;
  return dtype == Dtype::kF32 ? 4 : 2;
}

struct TensorEntry {
  std::string name;
  std::vector<int64_t> shape;  // Every dimension >= 0; empty: a scalar.
  int64_t begin = 0, end = 0;  // Bytes, from the end of the header.
  Dtype dtype = Dtype::kF32;
};

// The header for `entries`, in their order, padded with spaces to a multiple of 8 bytes.
std::string EncodeSafetensorsHeader(absl::Span<const TensorEntry> entries);

// The tensors of a header, ordered by their place. "__metadata__" is checked and left out.
// Everything is checked: JSON syntax, unknown or missing or repeated keys, dtype, that shapes agree
// with places, and that the tensors cover [0, data_bytes) without gap or overlap.
// Errors: kDataLoss       malformed; the message names the tensor or the byte.
//         kUnimplemented  a dtype other than those of Dtype.
absl::StatusOr<std::vector<TensorEntry>> DecodeSafetensorsHeader(absl::string_view header,
                                                                 int64_t data_bytes);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TENSOR_SAFETENSORS_SAFETENSORS_HEADER_H_
