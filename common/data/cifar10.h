// CIFAR-10's binary format: records of a label byte and 3,072 pixel bytes (planes R, G, B).
//
// A file has no header: a whole number of records is all there is to check, and the labels.
// Reference: https://www.cs.toronto.edu/~kriz/cifar.html. Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_DATA_CIFAR10_H_
#define CAPSTAN_COMMON_DATA_CIFAR10_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace capstan {

inline constexpr int64_t kCifar10Side = 32;     // Pixels, height and width.
inline constexpr int64_t kCifar10Channels = 3;  // R, G, B.
inline constexpr int64_t kCifar10Classes = 10;
inline constexpr int64_t kCifar10RecordBytes = 1 + kCifar10Side * kCifar10Side * kCifar10Channels;

// Appends the file's images to `pixels` as [n, 32, 32, 3] and its labels to `labels`.
// Errors (nothing is appended):
//   kDataLoss         no bytes, or not a whole number of records.
//   kInvalidArgument  a label is above 9; names its record and value.
absl::Status AppendCifar10(absl::string_view name, absl::Span<const uint8_t> bytes,
                           std::vector<uint8_t>& pixels, std::vector<uint8_t>& labels);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_DATA_CIFAR10_H_
