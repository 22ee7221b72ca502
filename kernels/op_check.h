// OpSignature: lists the operands that an op takes, with the element count and type of each. Every
// backend validates descriptors and views here, so that all backends refuse the same things with
// the same messages.
//
// Thread safety: values and pure functions.
#ifndef CAPSTAN_KERNELS_OP_CHECK_H_
#define CAPSTAN_KERNELS_OP_CHECK_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/op.h"
#include "kernels/tensor_view.h"

namespace capstan::kernels {

// No operand may have more elements. Offsets then fit 32 bits, in libraries too.
inline constexpr int64_t kOperandElementsMax = (int64_t{1} << 31) - 1;
// Embedding row numbers arrive as fp32, which represents every integer up to this one exactly.
inline constexpr int64_t kEmbeddingRowsMax = int64_t{1} << 24;

struct Operand {
  const char* name = "";  // A literal: the operand's name in op.h, "x", "weight", ...
  int64_t count = 0;      // Elements.
  DataType dtype = DataType::kFloat32;
};

struct OpSignature {
  OpDesc desc;
  std::array<Operand, 7> inputs;
  std::array<Operand, 4> outputs;
  int input_count = 0;
  int output_count = 0;

  // The operands that the op has.
  absl::Span<const Operand> input_list() const {
    return absl::MakeConstSpan(inputs).first(static_cast<size_t>(input_count));
  }
  absl::Span<const Operand> output_list() const {
    return absl::MakeConstSpan(outputs).first(static_cast<size_t>(output_count));
  }
};

// Validates every field that desc.kind uses (others are ignored) and lists the operands.
// Errors: kInvalidArgument  names the op, the field, its value and what was expected.
absl::StatusOr<OpSignature> MakeSignature(const OpDesc& desc);

// Returns the signature for a backend with this TensorType(). The operands x, y, dx, dy, dy2, a, b,
// addend, dsum, weight, logits and dlogits get the type `dtype`. All others keep their type.
OpSignature WithTensorType(OpSignature signature, DataType dtype);

// Checks the views of a Run: their number, element counts and types, and that no view with elements
// has null data. Allocates only if the check fails. Errors: kInvalidArgument.
absl::Status CheckViews(const OpSignature& signature, absl::Span<const TensorView> inputs,
                        absl::Span<const TensorView> outputs);

// Checks that all labels are in [0, classes).
// Errors: kInvalidArgument  names the first bad label and its position.
absl::Status CheckLabels(absl::Span<const int32_t> labels, int64_t classes);

// Checks that all row numbers are whole numbers in [0, rows).
// Errors: kInvalidArgument  names the first bad one and its position.
absl::Status CheckRows(absl::Span<const float> row_numbers, int64_t rows);

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_OP_CHECK_H_
