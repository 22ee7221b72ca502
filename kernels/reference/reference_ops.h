// ReferenceOp: an op as naive loops in double, which specify what it computes. kernels/op.h defines
// layouts and operands; reference_backend.h decides what op.h leaves open.
//
// REQUIRES everywhere: the descriptor passed MakeSignature, the views passed CheckViews, and labels
// and row numbers are in range. Thread safety: pure functions of their arguments.
#ifndef CAPSTAN_KERNELS_REFERENCE_REFERENCE_OPS_H_
#define CAPSTAN_KERNELS_REFERENCE_REFERENCE_OPS_H_

#include <cstddef>
#include <cstdint>
#include <tuple>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/op.h"

namespace capstan::kernels::reference {

// The views of a run.
struct OpArguments {
  const OpDesc& desc;
  absl::Span<const TensorView> in, out;
  const RunOptions& options;
};

struct ReferenceOp {
  OpKind kind;
  void (*run)(const OpArguments& arguments);
};

absl::Span<const ReferenceOp> ImageOps();   // Convolutions, pools and batch normalisation.
absl::Span<const ReferenceOp> MatrixOps();  // All others.

// Returns the operands of a run one by one. A float operand that the op lacks is null; operands of
// integers are never optional.
class OperandReader {
 public:
  explicit OperandReader(const OpArguments& arguments) : arguments_(arguments) {}

  template <typename T>
  T Next();

 private:
  static const TensorView* ViewAt(absl::Span<const TensorView> views, size_t i) {
    return i < views.size() ? &views[i] : nullptr;
  }
  const TensorView* In() { return ViewAt(arguments_.in, next_in_++); }
  const TensorView* Out() { return ViewAt(arguments_.out, next_out_++); }

  const OpArguments& arguments_;
  size_t next_in_ = 0, next_out_ = 0;
};

template <>
inline const float* OperandReader::Next() {
  const TensorView* const view = In();
  return view == nullptr ? nullptr : view->f32();
}
template <>
inline const int32_t* OperandReader::Next() {
  return In()->i32();
}
template <>
inline float* OperandReader::Next() {
  const TensorView* const view = Out();
  return view == nullptr ? nullptr : view->f32();
}
template <>
inline int32_t* OperandReader::Next() {
  return Out()->i32();
}
template <>
inline float OperandReader::Next() {
  return arguments_.options.scale;
}

template <typename... Operands>
void CallWithOperands(void (*op)(const OpDesc& desc, Operands... operands),
                      const OpArguments& arguments) {
  OperandReader reader(arguments);
  const std::tuple<Operands...> operands{reader.Next<Operands>()...};  // From left to right.
  std::apply([&](Operands... each) { op(arguments.desc, each...); }, operands);
}

// Runs the function kOp(desc, inputs..., outputs...): `const` pointers are the inputs in the order
// of op.h, others the outputs, and a float is RunOptions::scale.
template <auto kOp>
void RunOn(const OpArguments& arguments) {
  CallWithOperands(kOp, arguments);
}

}  // namespace capstan::kernels::reference

#endif  // CAPSTAN_KERNELS_REFERENCE_REFERENCE_OPS_H_
