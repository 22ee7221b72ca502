// IDX: MNIST's file format: a big-endian magic number, one 32-bit size a dimension, then bytes.
//
// Images: magic 0x00000803 (unsigned bytes, 3 dimensions), count, height, width, pixels row by row.
// Labels: magic 0x00000801 (unsigned bytes, 1 dimension), count, one byte a label.
// Sizes in the header are compared with the bytes that are there before anything is done with them.
// Reference: http://yann.lecun.com/exdb/mnist/. Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_DATA_IDX_H_
#define CAPSTAN_COMMON_DATA_IDX_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace capstan {

struct IdxImages {
  int64_t count = 0;            // >= 1.
  int64_t h = 0;                // Pixels, >= 1.
  int64_t w = 0;                // Pixels, >= 1.
  std::vector<uint8_t> pixels;  // [count, h, w].
};

// `name` is the file's, for messages; `bytes` are its contents.
// Errors: kDataLoss  wrong magic, a dimension of 0, fewer or more bytes than the header says.
absl::StatusOr<IdxImages> ParseIdxImages(absl::string_view name, std::vector<uint8_t> bytes);

// The labels, each below `classes`.
// Errors: kDataLoss         as above.
//         kInvalidArgument  a label is not below `classes`; names its index and value.
absl::StatusOr<std::vector<uint8_t>> ParseIdxLabels(absl::string_view name,
                                                    std::vector<uint8_t> bytes, int64_t classes);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_DATA_IDX_H_
