#include "kernels/cuda/plans/cudnn_graph.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "kernels/cuda/plans/cuda_plan.h"
#include "kernels/cuda/plans/status.h"

namespace capstan::kernels::cuda {
namespace {

using Dimensions = std::array<int64_t, 4>;  // cuDNN's order: N, C, H, W.

constexpr int64_t kXId = 'x';
constexpr int64_t kWeightId = 'w';
constexpr int64_t kYId = 'y';
constexpr int64_t kBiasId = 'b';
constexpr int64_t kSumsId = 's';    // The convolution's result in a fused graph.
constexpr int64_t kBiasedId = 'p';  // The same result with its bias, before ReLU.

constexpr char kFusedPrefix[] = "fused ";  // The names of fused plans begin so.

absl::StatusOr<Descriptor> Make(cudnnBackendDescriptorType_t type, const char* what) {
  cudnnBackendDescriptor_t descriptor = nullptr;
  CAPSTAN_CUDNN_CHECK(cudnnBackendCreateDescriptor(type, &descriptor),
                      absl::StrCat("creating ", what));
  return Descriptor(descriptor);
}

absl::Status Set(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
                 cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  CAPSTAN_CUDNN_CHECK(cudnnBackendSetAttribute(descriptor.get(), name, type, count, values),
                      absl::StrCat("setting cuDNN's attribute ", static_cast<int>(name)));
  return absl::OkStatus();
}

absl::Status SetDescriptor(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
                           const Descriptor& value) {
  const cudnnBackendDescriptor_t raw = value.get();
  return Set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
}

absl::Status Finalize(const Descriptor& descriptor, const char* what) {
  CAPSTAN_CUDNN_CHECK(cudnnBackendFinalize(descriptor.get()), absl::StrCat("finalising ", what));
  return absl::OkStatus();
}

// A kVirtual tensor passes between two operations of a plan and is never in memory.
enum class Place { kMemory, kVirtual };

// Describes a tensor that is [d0, d2, d3, d1] in memory: NHWC, or OHWI for weights.
absl::StatusOr<Descriptor> Tensor(int64_t id, const Dimensions& d, cudnnDataType_t type,
                                  Place place = Place::kMemory) {
  const Dimensions strides = {d[1] * d[2] * d[3], 1, d[3] * d[1], d[1]};
  CAPSTAN_ASSIGN_OR_RETURN(Descriptor t, Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR, "a tensor"));
  CAPSTAN_RETURN_IF_ERROR(Set(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
  CAPSTAN_RETURN_IF_ERROR(Set(t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, d.data()));
  CAPSTAN_RETURN_IF_ERROR(Set(t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data()));
  CAPSTAN_RETURN_IF_ERROR(Set(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id));
  const int64_t alignment = kAlignmentBytes;
  CAPSTAN_RETURN_IF_ERROR(
      Set(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment));
  if (place == Place::kVirtual) {
    const bool is_virtual = true;
    CAPSTAN_RETURN_IF_ERROR(
        Set(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual));
  }
  CAPSTAN_RETURN_IF_ERROR(Finalize(t, "a tensor"));
  return t;
}

absl::StatusOr<Descriptor> Window(const OpDesc& desc) {
  CAPSTAN_ASSIGN_OR_RETURN(Descriptor c,
                           Make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, "a convolution"));
  const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  const int64_t axes = 2;
  const std::array<int64_t, 2> dilation = {1, 1};
  const std::array<int64_t, 2> stride = {desc.stride, desc.stride};
  const std::array<int64_t, 2> padding = {desc.padding, desc.padding};
  CAPSTAN_RETURN_IF_ERROR(Set(c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums));
  CAPSTAN_RETURN_IF_ERROR(
      Set(c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
  CAPSTAN_RETURN_IF_ERROR(Set(c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &axes));
  CAPSTAN_RETURN_IF_ERROR(
      Set(c, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation.data()));
  CAPSTAN_RETURN_IF_ERROR(
      Set(c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride.data()));
  CAPSTAN_RETURN_IF_ERROR(
      Set(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, padding.data()));
  CAPSTAN_RETURN_IF_ERROR(
      Set(c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, padding.data()));
  CAPSTAN_RETURN_IF_ERROR(Finalize(c, "a convolution"));
  return c;
}

// The attribute names of one of the three operations.
struct Names {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t window, x, weight, y, alpha, beta;
};

Names NamesOf(OpKind kind) {
  switch (kind) {
    case OpKind::kConvolutionBackwardData:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case OpKind::kConvolutionBackwardWeights:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    default:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
  }
}

// An operation graph with all its descriptors. A descriptor must not outlive those to which it
// points, so all are kept together.
struct Graph {
  OpKind kind = OpKind::kConvolutionForward;
  Fusion fusion = Fusion::kNone;
  Descriptor x, weight, y, window;
  Descriptor bias, sums, biased;  // Only fused graphs have them; null if there is none.
  std::vector<Descriptor> rules;  // The rules of the operations behind the convolution.
  std::vector<Descriptor> operations;
  Descriptor graph;
};

// Adds the convolution operation on g.x, g.weight and `y`, of which `kind` makes one the result.
absl::Status AddConvolution(OpKind kind, const Descriptor& y, Graph& g) {
  const Names names = NamesOf(kind);
  CAPSTAN_ASSIGN_OR_RETURN(Descriptor operation, Make(names.type, "an operation"));
  CAPSTAN_RETURN_IF_ERROR(SetDescriptor(operation, names.window, g.window));
  CAPSTAN_RETURN_IF_ERROR(SetDescriptor(operation, names.x, g.x));
  CAPSTAN_RETURN_IF_ERROR(SetDescriptor(operation, names.weight, g.weight));
  CAPSTAN_RETURN_IF_ERROR(SetDescriptor(operation, names.y, y));
  const float alpha = 1.0f;
  const float beta = 0.0f;
  CAPSTAN_RETURN_IF_ERROR(Set(operation, names.alpha, CUDNN_TYPE_FLOAT, 1, &alpha));
  CAPSTAN_RETURN_IF_ERROR(Set(operation, names.beta, CUDNN_TYPE_FLOAT, 1, &beta));
  CAPSTAN_RETURN_IF_ERROR(Finalize(operation, "an operation"));
  g.operations.push_back(std::move(operation));
  return absl::OkStatus();
}

// Adds the operation to = mode(from, addend), or mode(from) if `addend` is null, computed in fp32.
absl::Status AddPointwise(cudnnPointwiseMode_t mode, const Descriptor& from,
                          const Descriptor* addend, const Descriptor& to, Graph& g) {
  const cudnnDataType_t fp32 = CUDNN_DATA_FLOAT;
  CAPSTAN_ASSIGN_OR_RETURN(Descriptor rule, Make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "a rule"));
  CAPSTAN_RETURN_IF_ERROR(
      Set(rule, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode));
  CAPSTAN_RETURN_IF_ERROR(
      Set(rule, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &fp32));
  CAPSTAN_RETURN_IF_ERROR(Finalize(rule, "a rule"));
  CAPSTAN_ASSIGN_OR_RETURN(Descriptor operation,
                           Make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "an operation"));
  CAPSTAN_RETURN_IF_ERROR(
      SetDescriptor(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, rule));
  CAPSTAN_RETURN_IF_ERROR(SetDescriptor(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, from));
  if (addend != nullptr) {
    CAPSTAN_RETURN_IF_ERROR(
        SetDescriptor(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *addend));
  }
  CAPSTAN_RETURN_IF_ERROR(SetDescriptor(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to));
  CAPSTAN_RETURN_IF_ERROR(Finalize(operation, "an operation"));
  g.rules.push_back(std::move(rule));
  g.operations.push_back(std::move(operation));
  return absl::OkStatus();
}

// Adds the convolution, its bias and its ReLU, with fp32 between them: y is rounded once.
absl::Status AddFused(const OpDesc& d, Graph& g) {
  const Dimensions image = {d.n, d.out_c, d.out_h, d.out_w};
  CAPSTAN_ASSIGN_OR_RETURN(g.sums, Tensor(kSumsId, image, CUDNN_DATA_FLOAT, Place::kVirtual));
  CAPSTAN_RETURN_IF_ERROR(AddConvolution(d.kind, g.sums, g));
  if (!d.has_bias) return AddPointwise(CUDNN_POINTWISE_RELU_FWD, g.sums, nullptr, g.y, g);
  CAPSTAN_ASSIGN_OR_RETURN(g.bias, Tensor(kBiasId, {1, d.out_c, 1, 1}, CUDNN_DATA_FLOAT));
  if (!d.fuse_relu) return AddPointwise(CUDNN_POINTWISE_ADD, g.sums, &g.bias, g.y, g);
  CAPSTAN_ASSIGN_OR_RETURN(g.biased, Tensor(kBiasedId, image, CUDNN_DATA_FLOAT, Place::kVirtual));
  CAPSTAN_RETURN_IF_ERROR(AddPointwise(CUDNN_POINTWISE_ADD, g.sums, &g.bias, g.biased, g));
  return AddPointwise(CUDNN_POINTWISE_RELU_FWD, g.biased, nullptr, g.y, g);
}

absl::StatusOr<Graph> GraphOf(cudnnHandle_t handle, const OpDesc& d, Compute compute,
                              Fusion fusion) {
  const cudnnDataType_t type = compute == Compute::kBf16   ? CUDNN_DATA_BFLOAT16
                               : compute == Compute::kFp16 ? CUDNN_DATA_HALF
                                                           : CUDNN_DATA_FLOAT;
  Graph g;
  g.kind = d.kind;
  g.fusion = fusion;
  CAPSTAN_ASSIGN_OR_RETURN(g.x, Tensor(kXId, {d.n, d.c, d.h, d.w}, type));
  CAPSTAN_ASSIGN_OR_RETURN(g.weight, Tensor(kWeightId, {d.out_c, d.c, d.kernel, d.kernel}, type));
  CAPSTAN_ASSIGN_OR_RETURN(g.y, Tensor(kYId, {d.n, d.out_c, d.out_h, d.out_w}, type));
  CAPSTAN_ASSIGN_OR_RETURN(g.window, Window(d));
  CAPSTAN_RETURN_IF_ERROR(fusion == Fusion::kNone ? AddConvolution(d.kind, g.y, g)
                                                  : AddFused(d, g));
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const Descriptor& operation : g.operations) operations.push_back(operation.get());
  CAPSTAN_ASSIGN_OR_RETURN(g.graph, Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "a graph"));
  CAPSTAN_RETURN_IF_ERROR(
      Set(g.graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle));
  CAPSTAN_RETURN_IF_ERROR(Set(g.graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                              static_cast<int64_t>(operations.size()), operations.data()));
  CAPSTAN_RETURN_IF_ERROR(Finalize(g.graph, "a graph"));
  return g;
}

// Returns the descriptors of `type` that an attribute holds, at most `count`.
absl::StatusOr<std::vector<Descriptor>> List(const Descriptor& holder,
                                             cudnnBackendAttributeName_t name,
                                             cudnnBackendDescriptorType_t type, int64_t count,
                                             const char* what) {
  std::vector<Descriptor> list;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < count; ++i) {
    CAPSTAN_ASSIGN_OR_RETURN(Descriptor made, Make(type, what));
    raw.push_back(made.get());
    list.push_back(std::move(made));
  }
  if (count == 0) return list;
  int64_t found = 0;
  CAPSTAN_CUDNN_CHECK(cudnnBackendGetAttribute(holder.get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                               count, &found, raw.data()),
                      absl::StrCat("asking for ", what));
  if (found < count) list.resize(static_cast<size_t>(found));
  return list;
}

// Returns the engine configurations that one heuristic offers, best first.
absl::StatusOr<std::vector<Descriptor>> ConfigsOf(const Graph& graph, cudnnBackendHeurMode_t mode) {
  CAPSTAN_ASSIGN_OR_RETURN(const Descriptor heuristic,
                           Make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "a heuristic"));
  CAPSTAN_RETURN_IF_ERROR(
      SetDescriptor(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.graph));
  CAPSTAN_RETURN_IF_ERROR(
      Set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
  CAPSTAN_RETURN_IF_ERROR(Finalize(heuristic, "a heuristic"));
  int64_t count = 0;
  CAPSTAN_CUDNN_CHECK(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
                      "counting plans");
  return List(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count,
              "plans");
}

absl::StatusOr<Descriptor> EngineIn(const Descriptor& config) {
  CAPSTAN_ASSIGN_OR_RETURN(Descriptor engine, Make(CUDNN_BACKEND_ENGINE_DESCRIPTOR, "an engine"));
  cudnnBackendDescriptor_t raw = engine.get();
  int64_t count = 0;
  CAPSTAN_CUDNN_CHECK(cudnnBackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw),
                      "asking for an engine");
  return engine;
}

template <typename T>
absl::StatusOr<T> Get(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
                      cudnnBackendAttributeType_t type) {
  T value{};
  int64_t count = 0;
  CAPSTAN_CUDNN_CHECK(cudnnBackendGetAttribute(descriptor.get(), name, type, 1, &count, &value),
                      absl::StrCat("asking for cuDNN's attribute ", static_cast<int>(name)));
  return value;
}

absl::StatusOr<std::string> NameOf(const Descriptor& config) {
  CAPSTAN_ASSIGN_OR_RETURN(const Descriptor engine, EngineIn(config));
  CAPSTAN_ASSIGN_OR_RETURN(const int64_t index,
                           Get<int64_t>(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64));
  // The count is an upper bound, since the library answers 0 when asked for the number.
  CAPSTAN_ASSIGN_OR_RETURN(
      const std::vector<Descriptor> choices,
      List(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
           CUDNN_KNOB_TYPE_COUNTS, "settings"));
  std::vector<std::pair<int, int64_t>> settings;
  for (const Descriptor& choice : choices) {
    CAPSTAN_ASSIGN_OR_RETURN(const auto knob,
                             Get<cudnnBackendKnobType_t>(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                                         CUDNN_TYPE_KNOB_TYPE));
    CAPSTAN_ASSIGN_OR_RETURN(
        const int64_t value,
        Get<int64_t>(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64));
    settings.emplace_back(static_cast<int>(knob), value);
  }
  std::sort(settings.begin(), settings.end());
  std::string name = absl::StrCat("engine ", index);
  for (const auto& [knob, value] : settings) absl::StrAppend(&name, " ", knob, "=", value);
  return name;
}

absl::StatusOr<std::vector<cudnnBackendNumericalNote_t>> NotesOf(const Descriptor& config) {
  CAPSTAN_ASSIGN_OR_RETURN(const Descriptor engine, EngineIn(config));
  int64_t count = 0;
  std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  CAPSTAN_CUDNN_CHECK(cudnnBackendGetAttribute(
                          engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                          CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes.data()),
                      "asking for an engine's notes");
  notes.resize(static_cast<size_t>(count));
  return notes;
}

// Compiles the configuration. Errors: kUnimplemented and others of cuDNN, which may fail to compile
// a configuration that it has offered.
absl::StatusOr<ConvolutionEngine> Compile(cudnnHandle_t handle, Descriptor config) {
  ConvolutionEngine engine;
  engine.config = std::move(config);
  CAPSTAN_ASSIGN_OR_RETURN(engine.plan, Make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "a plan"));
  CAPSTAN_RETURN_IF_ERROR(
      Set(engine.plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle));
  CAPSTAN_RETURN_IF_ERROR(
      SetDescriptor(engine.plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine.config));
  CAPSTAN_RETURN_IF_ERROR(Finalize(engine.plan, "a plan"));
  int64_t count = 0;
  CAPSTAN_CUDNN_CHECK(
      cudnnBackendGetAttribute(engine.plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                               CUDNN_TYPE_INT64, 1, &count, &engine.workspace_bytes),
      "asking for a plan's workspace");
  return engine;
}

}  // namespace

namespace {

constexpr const char* kFp32Errors = "its errors pass those of fp32";

// Why a plan with these notes is not accepted; null if it is.
const char* RefusalOf(Compute compute, absl::Span<const cudnnBackendNumericalNote_t> notes) {
  for (const cudnnBackendNumericalNote_t note : notes) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
        return "its bits change from run to run";
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        return "its sums are less precise than fp32";
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:  // fp16 has a smaller range.
        return "it converts its operands to fp16";
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:  // TF32, if the operands are fp32.
      case CUDNN_NUMERICAL_NOTE_FFT:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD:
        if (compute == Compute::kFp32) return kFp32Errors;
        break;
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
        return "its errors pass those of TF32";
      default:
        break;
    }
  }
  return nullptr;
}

}  // namespace

bool Accepts(Compute compute, absl::Span<const cudnnBackendNumericalNote_t> notes) {
  return RefusalOf(compute, notes) == nullptr;
}

namespace {

// True if the plan uses a transform although no note says so. One plan for the gradient of weights
// does (Winograd, 4x4; cuDNN 9.19 on an H200); tests/gpu/op_conformance_test.cc measures its
// errors.
bool TransformsUnsaid(OpKind kind, absl::string_view name) {
  return kind == OpKind::kConvolutionBackwardWeights && absl::StartsWith(name, "engine 17 ");
}

// Returns the accepted plans for which asked_for(name). The result may be empty; errors are those
// of cuDNN that are not kUnimplemented.
template <typename IsAskedFor>
absl::StatusOr<std::vector<ConvolutionEngine>> Offered(cudnnHandle_t handle,
                                                       const std::shared_ptr<const Graph>& graph,
                                                       const CudaOptions& options, int count_max,
                                                       const IsAskedFor& asked_for,
                                                       std::vector<RefusedPlan>* refused) {
  const bool is_fused = graph->fusion == Fusion::kBiasRelu;
  std::vector<ConvolutionEngine> engines;
  absl::Status failure;  // The first error that is not kUnimplemented.
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    if (!engines.empty()) break;  // Fallbacks are for graphs that the heuristic does not know.
    absl::StatusOr<std::vector<Descriptor>> configs = ConfigsOf(*graph, mode);
    if (!configs.ok()) {
      if (!absl::IsUnimplemented(configs.status())) failure.Update(configs.status());
      continue;
    }
    for (Descriptor& config : *configs) {
      if (static_cast<int>(engines.size()) == count_max) break;
      const auto notes = NotesOf(config);
      if (!notes.ok()) continue;
      std::string name = NameOf(config).value_or("");
      if (is_fused && !name.empty()) name.insert(0, kFusedPrefix);
      const char* why = RefusalOf(options.compute, *notes);
      if (options.compute == Compute::kFp32 && TransformsUnsaid(graph->kind, name))
        why = kFp32Errors;
      if (why != nullptr) {
        if (refused != nullptr && refused->empty()) refused->push_back({std::move(name), why});
        continue;
      }
      if (!asked_for(name)) continue;
      absl::StatusOr<ConvolutionEngine> engine = Compile(handle, std::move(config));
      if (!engine.ok()) {
        if (!absl::IsUnimplemented(engine.status())) failure.Update(engine.status());
      } else if (engine->workspace_bytes <= options.workspace_bytes_max) {
        engine->graph = graph;
        engine->is_fused = is_fused;
        engine->name = std::move(name);
        engines.push_back(*std::move(engine));
      }
    }
  }
  if (engines.empty()) CAPSTAN_RETURN_IF_ERROR(failure);
  return engines;
}

}  // namespace

absl::StatusOr<std::vector<ConvolutionEngine>> EnginesFor(cudnnHandle_t handle, const OpDesc& desc,
                                                          const CudaOptions& options, int count_max,
                                                          Fusion fusion,
                                                          std::vector<RefusedPlan>* refused) {
  CAPSTAN_ASSIGN_OR_RETURN(Graph made, GraphOf(handle, desc, options.compute, fusion));
  const auto graph = std::make_shared<const Graph>(std::move(made));
  CAPSTAN_ASSIGN_OR_RETURN(
      std::vector<ConvolutionEngine> engines,
      Offered(
          handle, graph, options, count_max, [](const std::string&) { return true; }, refused));
  if (engines.empty()) return absl::UnimplementedError("cuDNN offers no plan that is accepted");
  return engines;
}

absl::StatusOr<ConvolutionEngine> EngineNamed(cudnnHandle_t handle, const OpDesc& desc,
                                              const CudaOptions& options, const std::string& name) {
  const Fusion fusion = absl::StartsWith(name, kFusedPrefix) ? Fusion::kBiasRelu : Fusion::kNone;
  std::vector<ConvolutionEngine> found;
  if (!name.empty() && (fusion == Fusion::kNone || HasEpilogue(desc))) {
    CAPSTAN_ASSIGN_OR_RETURN(Graph made, GraphOf(handle, desc, options.compute, fusion));
    const auto graph = std::make_shared<const Graph>(std::move(made));
    CAPSTAN_ASSIGN_OR_RETURN(
        found, Offered(
                   handle, graph, options, 1, [&](const std::string& one) { return one == name; },
                   /*refused=*/nullptr));
  }
  if (found.empty()) return absl::NotFoundError(absl::StrCat("cuDNN offers no plan ", name));
  return std::move(found.front());
}

absl::StatusOr<Descriptor> PackOf(const ConvolutionPointers& pointers, void* workspace) {
  const std::array<int64_t, 4> ids = {kXId, kWeightId, kYId, kBiasId};
  const std::array<void*, 4> data = {pointers.x, pointers.weight, pointers.y, pointers.bias};
  const int64_t count = pointers.bias == nullptr ? 3 : 4;
  CAPSTAN_ASSIGN_OR_RETURN(Descriptor pack,
                           Make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "a list of operands"));
  CAPSTAN_RETURN_IF_ERROR(
      Set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data()));
  CAPSTAN_RETURN_IF_ERROR(
      Set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, data.data()));
  CAPSTAN_RETURN_IF_ERROR(
      Set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace));
  CAPSTAN_RETURN_IF_ERROR(Finalize(pack, "a list of operands"));
  return pack;
}

}  // namespace capstan::kernels::cuda
