// OpSignature: which operands an op takes and how many elements each has; the one place where
// descriptors and views are validated, so that every backend refuses the same things in the same
// words.
//
// Thread safety: values and pure functions.
#ifndef CAPSTAN_KERNELS_OP_CHECK_H_
#define CAPSTAN_KERNELS_OP_CHECK_H_

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/op.h"
#include "kernels/tensor_view.h"

namespace capstan::kernels {

// No operand may have more elements: offsets then fit 32 bits, in libraries too.
inline constexpr int64_t kOperandElementsMax = (int64_t{1} << 31) - 1;
// Embedding rows arrive as fp32, which holds every integer up to here.
inline constexpr int64_t kEmbeddingRowsMax = int64_t{1} << 24;

struct Operand {
  const char* name = "";  // As in op.h: "x", "weight", ...; a literal.
  int64_t count = 0;      // Elements.
  DataType dtype = DataType::kFloat32;
};

struct OpSignature {
  OpDesc desc;
  std::array<Operand, 7> inputs;
  std::array<Operand, 4> outputs;
  int input_count = 0;
  int output_count = 0;
};

// Validates every field that desc.kind uses (others are ignored) and lists the operands.
// Errors: kInvalidArgument  names the op, the field, its value and what was expected.
absl::StatusOr<OpSignature> MakeSignature(const OpDesc& desc);

// The signature on a backend with such tensors: x, y, dx, dy, a, b, addend, dsum, weight, logits
// and dlogits get the type; row numbers, labels, losses and what belongs to parameters or channels
// keep theirs.
OpSignature WithTensorType(OpSignature signature, DataType dtype);

// Checks the views of a Run: number, element counts, types, and no null data where there are
// elements. Allocates only when it fails. Errors: kInvalidArgument.
absl::Status CheckViews(const OpSignature& signature, absl::Span<const TensorView> inputs,
                        absl::Span<const TensorView> outputs);

// Labels must be in [0, classes). Errors: kInvalidArgument  names the first bad one and its
// position.
absl::Status CheckLabels(absl::Span<const int32_t> labels, int64_t classes);

// Row numbers must be whole numbers in [0, rows). Errors: kInvalidArgument, as CheckLabels.
absl::Status CheckRows(absl::Span<const float> row_numbers, int64_t rows);

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_OP_CHECK_H_
