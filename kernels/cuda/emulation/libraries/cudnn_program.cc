#include "kernels/cuda/emulation/libraries/cudnn_program.h"

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "kernels/cuda/emulation/libraries/host_convolution.h"
#include "kernels/cuda/emulation/libraries/host_numbers.h"

namespace capstan::kernels::cuda::emulation {
namespace {

template <typename Number>
absl::Status NotEmulated(const char* what, Number number) {
  return absl::UnimplementedError(absl::StrCat("not emulated: ", what, " ", number));
}

template <size_t kCount>
absl::StatusOr<std::array<int64_t, kCount>> ArrayOf(const Record& record,
                                                    cudnnBackendAttributeName_t name) {
  const std::vector<int64_t> values = record.Values<int64_t>(name);
  if (values.size() != kCount) {
    return absl::UnimplementedError(absl::StrCat("not emulated: cuDNN's attribute ", name, " has ",
                                                 values.size(), " values, expected ", kCount));
  }
  std::array<int64_t, kCount> array{};
  std::copy(values.begin(), values.end(), array.begin());
  return array;
}

absl::StatusOr<Tensor> TensorOf(const Record& operation, cudnnBackendAttributeName_t name) {
  const std::shared_ptr<const Record> record = operation.One(name);
  if (record == nullptr) return NotEmulated("an operation without a tensor,", name);
  Tensor t;
  t.id = record->Value<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
  t.type = record->Value(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT);
  CAPSTAN_ASSIGN_OR_RETURN(t.dims, ArrayOf<4>(*record, CUDNN_ATTR_TENSOR_DIMENSIONS));
  CAPSTAN_ASSIGN_OR_RETURN(t.strides, ArrayOf<4>(*record, CUDNN_ATTR_TENSOR_STRIDES));
  t.alignment = record->Value<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1);
  t.is_virtual = record->Value(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false);
  if (record->Value(CUDNN_ATTR_TENSOR_IS_BY_VALUE, false)) {
    return NotEmulated("a tensor given by value,", t.id);
  }
  if (BytesOf(t.type) == 0) return NotEmulated("tensors of type", t.type);
  return t;
}

// ---------------------------------------------------------------- convolutions

using Convolve = std::vector<double> (*)(const ConvolutionShape&, const std::vector<float>&,
                                         const std::vector<float>&);

// The attribute names of one of the three operations.
struct ConvolutionNames {
  cudnnBackendAttributeName_t window, x, weight, y, alpha, beta;
};

constexpr ConvolutionNames kForwardNames = {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
constexpr ConvolutionNames kBackwardDataNames = {
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
constexpr ConvolutionNames kBackwardWeightsNames = {
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};

absl::StatusOr<ConvolutionShape> ShapeOf(const Record& operation, const ConvolutionNames& names,
                                         const Tensor& x, const Tensor& weight, const Tensor& y) {
  const std::shared_ptr<const Record> window = operation.One(names.window);
  if (window == nullptr) return NotEmulated("a convolution without its window,", names.window);
  const auto mode = window->Value(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
  if (mode != CUDNN_CROSS_CORRELATION) return NotEmulated("convolutions of mode", mode);
  const auto sums = window->Value(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  if (sums != CUDNN_DATA_FLOAT) return NotEmulated("convolutions that sum in type", sums);
  if (x.dims[1] != weight.dims[1]) return NotEmulated("groups of channels, of", weight.dims[1]);
  ConvolutionShape s;
  s.n = x.dims[0];
  s.c = x.dims[1];
  s.k = y.dims[1];
  s.image = {x.dims[2], x.dims[3]};
  s.result = {y.dims[2], y.dims[3]};
  s.window = {weight.dims[2], weight.dims[3]};
  CAPSTAN_ASSIGN_OR_RETURN(s.stride, ArrayOf<2>(*window, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES));
  CAPSTAN_ASSIGN_OR_RETURN(s.padding, ArrayOf<2>(*window, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS));
  CAPSTAN_ASSIGN_OR_RETURN(s.dilation, ArrayOf<2>(*window, CUDNN_ATTR_CONVOLUTION_DILATIONS));
  return s;
}

// Reads alpha or beta, which may be set as double or float.
double ScalarOf(const Record& operation, cudnnBackendAttributeName_t name, double otherwise) {
  return operation.Value<double>(name, operation.Value(name, static_cast<float>(otherwise)));
}

// Makes the step result = alpha * sums + beta * result.
Step ConvolutionStep(Convolve convolve, const ConvolutionShape& shape,
                     const std::array<Tensor, 2>& factors, const Tensor& result, double alpha,
                     double beta, bool tensor_cores) {
  Step step;
  step.inputs = {factors[0], factors[1]};
  if (beta != 0) step.inputs.push_back(result);
  step.outputs = {result};
  const bool tf32 = tensor_cores && factors[0].type == CUDNN_DATA_FLOAT;
  step.run = [=, first = factors[0].id, second = factors[1].id, to = result.id](Values& values) {
    std::array<std::vector<float>, 2> in = {values.at(first), values.at(second)};
    if (tf32) {
      for (std::vector<float>& v : in) std::transform(v.begin(), v.end(), v.begin(), RoundToTf32);
    }
    const std::vector<double> sums = convolve(shape, in[0], in[1]);
    std::vector<float>& out = values[to];
    out.resize(sums.size());
    for (size_t i = 0; i < sums.size(); ++i) {
      const double before = beta == 0 ? 0 : beta * out[i];
      out[i] = static_cast<float>(alpha * sums[i] + before);
    }
  };
  return step;
}

absl::StatusOr<Step> ConvolutionOf(const Record& operation, const ConvolutionNames& names,
                                   bool tensor_cores) {
  CAPSTAN_ASSIGN_OR_RETURN(const Tensor x, TensorOf(operation, names.x));
  CAPSTAN_ASSIGN_OR_RETURN(const Tensor weight, TensorOf(operation, names.weight));
  CAPSTAN_ASSIGN_OR_RETURN(const Tensor y, TensorOf(operation, names.y));
  CAPSTAN_ASSIGN_OR_RETURN(const ConvolutionShape shape, ShapeOf(operation, names, x, weight, y));
  const double alpha = ScalarOf(operation, names.alpha, 1);
  const double beta = ScalarOf(operation, names.beta, 0);
  switch (operation.type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return ConvolutionStep(ConvolutionBackwardData, shape, {y, weight}, x, alpha, beta,
                             tensor_cores);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return ConvolutionStep(ConvolutionBackwardWeights, shape, {x, y}, weight, alpha, beta,
                             tensor_cores);
    default:
      return ConvolutionStep(ConvolutionForward, shape, {x, weight}, y, alpha, beta, tensor_cores);
  }
}

// ---------------------------------------------------------------- pointwise operations

// Returns the index in [n, h, w, c] of the element of `small` that is combined with element `index`
// of `large`. A dimension of 1 in `small` is repeated.
int64_t BroadcastIndex(const Tensor& small, const Tensor& large, int64_t index) {
  int64_t result = 0;
  int64_t step = 1;
  for (const size_t dimension : {1u, 3u, 2u, 0u}) {  // c, w, h, n: the fastest first
    const int64_t place = index % large.dims[dimension];
    index /= large.dims[dimension];
    if (small.dims[dimension] == 1) continue;
    result += place * step;
    step *= small.dims[dimension];
  }
  return result;
}

absl::Status CheckBroadcast(const Tensor& small, const Tensor& large) {
  for (size_t i = 0; i < small.dims.size(); ++i) {
    if (small.dims[i] == 1 || small.dims[i] == large.dims[i]) continue;
    return NotEmulated("addends with a dimension of", small.dims[i]);
  }
  return absl::OkStatus();
}

// Makes the step y = x + b, where b is repeated along its dimensions of 1.
absl::StatusOr<Step> AddOf(const Record& operation, const Tensor& x, const Tensor& y) {
  CAPSTAN_ASSIGN_OR_RETURN(const Tensor b,
                           TensorOf(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
  CAPSTAN_RETURN_IF_ERROR(CheckBroadcast(b, x));
  Step step;
  step.inputs = {x, b};
  step.outputs = {y};
  step.run = [x, b, to = y.id](Values& values) {
    std::vector<float> sums = values.at(x.id);
    const std::vector<float>& addends = values.at(b.id);
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i] += addends[static_cast<size_t>(BroadcastIndex(b, x, static_cast<int64_t>(i)))];
    }
    values[to] = std::move(sums);
  };
  return step;
}

// Makes the step y = max(x, 0). NaN passes if `keeps_nan`, else it becomes 0.
Step ReluOf(const Tensor& x, const Tensor& y, bool keeps_nan) {
  Step step;
  step.inputs = {x};
  step.outputs = {y};
  step.run = [from = x.id, to = y.id, keeps_nan](Values& values) {
    std::vector<float> result = values.at(from);
    for (float& value : result) {
      const bool passes = value >= 0.0f || (keeps_nan && std::isnan(value));
      value = passes ? value : 0.0f;
    }
    values[to] = std::move(result);
  };
  return step;
}

absl::StatusOr<Step> PointwiseOf(const Record& operation, bool keeps_nan) {
  const std::shared_ptr<const Record> rule =
      operation.One(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  if (rule == nullptr) return NotEmulated("an operation without a rule,", operation.type);
  const auto computed_in = rule->Value(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  if (computed_in != CUDNN_DATA_FLOAT) return NotEmulated("rules in type", computed_in);
  for (const auto& [name, attribute] : rule->attributes) {
    if (name == CUDNN_ATTR_POINTWISE_MODE || name == CUDNN_ATTR_POINTWISE_MATH_PREC) continue;
    return NotEmulated("rules with cuDNN's attribute", name);
  }
  for (const auto factor :
       {CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2}) {
    if (ScalarOf(operation, factor, 1) != 1) return NotEmulated("factors at attribute", factor);
  }
  CAPSTAN_ASSIGN_OR_RETURN(const Tensor x,
                           TensorOf(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
  CAPSTAN_ASSIGN_OR_RETURN(const Tensor y,
                           TensorOf(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
  if (x.dims != y.dims) return NotEmulated("an operation that repeats its tensor", x.id);
  switch (const auto mode = rule->Value(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_ADD); mode) {
    case CUDNN_POINTWISE_ADD:
      return AddOf(operation, x, y);
    case CUDNN_POINTWISE_RELU_FWD:
      return ReluOf(x, y, keeps_nan);
    default:
      return NotEmulated("pointwise operations of mode", mode);
  }
}

// ---------------------------------------------------------------- programs

// The numerical properties of an engine's kernels.
struct KernelTraits {
  bool tensor_cores = false;
  // ReLU lets NaN pass. True for kernels that cuDNN compiles at run time, all of which have tensor
  // cores, and for those with the note STRICT_NAN_PROP. For others it is not known. They are
  // emulated with false, so that the backend has to check.
  bool keep_nan = false;
};

absl::StatusOr<Step> StepOf(const Record& operation, const KernelTraits& kernels) {
  switch (operation.type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return ConvolutionOf(operation, kForwardNames, kernels.tensor_cores);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return ConvolutionOf(operation, kBackwardDataNames, kernels.tensor_cores);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return ConvolutionOf(operation, kBackwardWeightsNames, kernels.tensor_cores);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return PointwiseOf(operation, kernels.keep_nan);
    default:
      return NotEmulated("operations of descriptor type", operation.type);
  }
}

// Finds the tensors that the steps read from memory, and those that they write.
void FindOperands(CudnnProgram& program) {
  std::set<int64_t> made;
  std::set<int64_t> read;
  for (const Step& step : program.steps) {
    for (const Tensor& tensor : step.inputs) {
      if (tensor.is_virtual || made.contains(tensor.id)) continue;
      if (read.insert(tensor.id).second) program.read.push_back(tensor);
    }
    for (const Tensor& tensor : step.outputs) {
      if (!tensor.is_virtual && made.insert(tensor.id).second) program.written.push_back(tensor);
    }
  }
}

// Sorts the steps so that each comes after those whose results it reads. A graph may list them in
// any order.
absl::Status Sort(std::vector<Step>& steps) {
  std::set<int64_t> missing;
  for (const Step& step : steps) {
    for (const Tensor& tensor : step.outputs) missing.insert(tensor.id);
  }
  const auto waits = [&missing](const Step& step) {
    return std::any_of(step.inputs.begin(), step.inputs.end(), [&](const Tensor& input) {
      const bool own = std::any_of(step.outputs.begin(), step.outputs.end(),
                                   [&](const Tensor& output) { return output.id == input.id; });
      return !own && missing.contains(input.id);
    });
  };
  for (auto next = steps.begin(); next != steps.end(); ++next) {
    const auto ready = std::find_if_not(next, steps.end(), waits);
    if (ready == steps.end()) return NotEmulated("a circle of operations, of", steps.end() - next);
    for (const Tensor& tensor : ready->outputs) missing.erase(tensor.id);
    std::rotate(next, ready, ready + 1);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CudnnProgram> ProgramOf(const Record& graph,
                                       absl::Span<const cudnnBackendNumericalNote_t> notes,
                                       int64_t workspace_bytes) {
  KernelTraits kernels;
  for (const cudnnBackendNumericalNote_t note : notes) {
    if (note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
        note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) {
      return NotEmulated("plans with the numerical note", note);
    }
    kernels.tensor_cores |= note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    kernels.keep_nan |=
        note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE || note == CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP;
  }
  CudnnProgram program;
  program.workspace_bytes = workspace_bytes;
  for (const auto& operation : graph.List(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    CAPSTAN_ASSIGN_OR_RETURN(Step step, StepOf(*operation, kernels));
    program.steps.push_back(std::move(step));
  }
  CAPSTAN_RETURN_IF_ERROR(Sort(program.steps));
  FindOperands(program);
  return program;
}

void Run(const CudnnProgram& program, const std::map<int64_t, void*>& pointers, void* workspace) {
  FillWithNan(workspace, static_cast<size_t>(program.workspace_bytes));
  Values values;
  for (const Tensor& tensor : program.read) {
    values[tensor.id] = Load(tensor, pointers.at(tensor.id));
  }
  for (const Step& step : program.steps) {
    step.run(values);
    for (const Tensor& tensor : step.outputs) Round(tensor.type, values.at(tensor.id));
  }
  for (const Tensor& tensor : program.written) {
    Store(tensor, values.at(tensor.id), pointers.at(tensor.id));
  }
  FillWithNan(workspace, static_cast<size_t>(program.workspace_bytes));
}

}  // namespace capstan::kernels::cuda::emulation
