// NumberFormat: how floats travel: fp32, bf16 or fp16.
//
// Rounding is to the nearest, ties to even; infinities stay, NaN stays NaN (quiet, sign kept).
// Denormal numbers are kept in both directions. fp16: numbers from 65520 on become infinite.
// One source, compiled for several instruction sets, chosen at run time; all give the same bits.
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_WIRE_NUMBER_FORMAT_H_
#define CAPSTAN_COMMON_WIRE_NUMBER_FORMAT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "proto/parameter_server.pb.h"

namespace capstan {

enum class NumberFormat { kFp32, kBf16, kFp16 };

constexpr int64_t BytesOf(NumberFormat format) { return format == NumberFormat::kFp32 ? 4 : 2; }

// Little-endian, `values.size() * BytesOf(format)` bytes to or from `bytes`, of any alignment.
void EncodeNumbers(NumberFormat format, absl::Span<const float> values, char* bytes);
void DecodeNumbers(NumberFormat format, const char* bytes, absl::Span<float> values);

// The same in memory of its own.
absl::Cord EncodedNumbers(NumberFormat format, absl::Span<const float> values);

// Errors: kInvalidArgument  an unknown type, or none.
absl::StatusOr<NumberFormat> FormatOf(v1::ValueType type);
v1::ValueType TypeOf(NumberFormat format);
// Decodes a format of a job's spec, whose values are checked on admission.
NumberFormat FormatOf(v1::NumberFormat format);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_WIRE_NUMBER_FORMAT_H_
