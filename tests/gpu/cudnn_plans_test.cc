// The plans that cuDNN offers for the convolutions of the zoo's models, on absent cards. The real
// library plans for a card that is described to it (emulation/libraries/cudnn.cc).
#include <cudnn.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "common/model/plan_model.h"
#include "common/testing/status_matchers.h"
#include "kernels/cuda/emulation/card.h"
#include "kernels/cuda/emulation/libraries/cudnn_library.h"
#include "kernels/cuda/plans/cudnn_graph.h"
#include "kernels/op.h"

namespace capstan::kernels::cuda::cudnn_plans_test {
namespace {

constexpr std::array kComputes = {Compute::kFp32, Compute::kTf32, Compute::kBf16, Compute::kFp16};
constexpr std::array kKinds = {OpKind::kConvolutionForward, OpKind::kConvolutionBackwardData,
                               OpKind::kConvolutionBackwardWeights};

// False, and says why, where cuDNN cannot plan without a card.
bool CanPlan() {
#if defined(__SANITIZE_ADDRESS__) || defined(CAPSTAN_TSAN)
  WARN("SKIPPED: CUDA's libraries are not made for sanitizers");
  return false;
#else
  const std::string& failure = emulation::Cudnn().failure;
  if (!failure.empty()) WARN("SKIPPED: " << failure);
  return failure.empty();
#endif
}

struct HandleDestroy {
  void operator()(cudnnHandle_t handle) const { cudnnDestroy(handle); }
};
using Handle = std::unique_ptr<std::remove_pointer_t<cudnnHandle_t>, HandleDestroy>;

Handle HandleOf(const emulation::Card& card) {
  setenv("CAPSTAN_EMULATED_CARD", card.key, 1);
  cudnnHandle_t handle = nullptr;
  REQUIRE(cudnnCreate(&handle) == CUDNN_STATUS_SUCCESS);
  return Handle(handle);
}

struct ZooModel {
  const char* name;
  SampleShape input;
  int64_t batch;
};

// Backward data of the first layer too, which no training asks for.
std::set<OpDesc> ConvolutionsOf(const ZooModel& zoo_model) {
  v1::Model model;
  model.set_zoo(zoo_model.name);
  REQUIRE_OK_AND_ASSIGN(const ModelPlan plan, PlanModel(model, zoo_model.input, 10));
  std::set<OpDesc> convolutions;
  for (const PlannedLayer& layer : plan.layers) {
    if (layer.kind != v1::Layer::kConvolution) continue;
    for (const OpKind kind : kKinds) {
      convolutions.insert({.kind = kind,
                           .n = zoo_model.batch,
                           .h = layer.in.h,
                           .w = layer.in.w,
                           .c = layer.in.c,
                           .out_h = layer.out.h,
                           .out_w = layer.out.w,
                           .out_c = layer.out.c,
                           .kernel = layer.kernel,
                           .stride = layer.stride,
                           .padding = layer.padding});
    }
  }
  return convolutions;
}

// One kind of notes, as the library tells them of the plan's engine.
template <typename Note, int kNotesMax>
std::set<Note> EngineNotes(const ConvolutionEngine& engine, cudnnBackendAttributeName_t name,
                           cudnnBackendAttributeType_t type) {
  cudnnBackendDescriptor_t made = nullptr;
  REQUIRE(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &made) ==
          CUDNN_STATUS_SUCCESS);
  const Descriptor owner(made);
  int64_t count = 0;
  REQUIRE(cudnnBackendGetAttribute(engine.config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                   &made) == CUDNN_STATUS_SUCCESS);
  std::array<Note, kNotesMax> notes{};
  REQUIRE(cudnnBackendGetAttribute(made, name, type, kNotesMax, &count, notes.data()) ==
          CUDNN_STATUS_SUCCESS);
  return {notes.begin(), notes.begin() + count};
}

std::set<cudnnBackendNumericalNote_t> NotesOf(const ConvolutionEngine& engine) {
  return EngineNotes<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT>(
      engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE);
}

// The library's first plan that is accepted, in each mode.
void CheckPlanned(const ZooModel& model) {
  for (const emulation::Card* const card : {&emulation::kA100, &emulation::kH100}) {
    const Handle handle = HandleOf(*card);
    for (const OpDesc& desc : ConvolutionsOf(model)) {
      for (const Compute compute : kComputes) {
        INFO(card->name << ", mode " << static_cast<int>(compute) << ": " << ToString(desc));
        REQUIRE_OK_AND_ASSIGN(const auto engines,
                              EnginesFor(handle.get(), desc, {.compute = compute}, 1));
        REQUIRE(engines.size() == 1);
        const std::set<cudnnBackendNumericalNote_t> notes = NotesOf(engines[0]);
        CHECK(!notes.contains(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
        CHECK(!notes.contains(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION));
        const bool has_tensor_cores = notes.contains(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
        if (compute == Compute::kFp32) CHECK(!has_tensor_cores);
        // 1x1 of stride 2 has little work for what it reads, and gets plans without on an H100.
        const bool is_large = desc.n * desc.out_h * desc.out_w >= 4096 && desc.c >= 16 &&
                              (desc.kernel > 1 || desc.stride == 1);
        if (is_large && IsHalf(TensorTypeOf(compute))) CHECK(has_tensor_cores);
        CHECK(engines[0].workspace_bytes <= CudaOptions().workspace_bytes_max);
        CHECK(!engines[0].name.empty());
      }
    }
  }
}

TEST_CASE("cuDNN's plans: there is one for each convolution of ResNet-50", "[kernels][cuda]") {
  if (!CanPlan()) return;
  CheckPlanned({"resnet50", {224, 224, 3}, 128});
}

TEST_CASE("cuDNN's plans: there is one for each convolution of ResNet-18", "[kernels][cuda]") {
  if (!CanPlan()) return;
  CheckPlanned({"resnet18", {224, 224, 3}, 256});
  CheckPlanned({"resnet18", {32, 32, 3}, 128});
}

TEST_CASE("cuDNN's plans: there is one for each convolution of VGG-16", "[kernels][cuda]") {
  if (!CanPlan()) return;
  CheckPlanned({"vgg16", {224, 224, 3}, 64});
}

// Channels that are no multiple of what tensor cores take at once.
TEST_CASE("cuDNN's plans: there is one for each convolution of LeNet", "[kernels][cuda]") {
  if (!CanPlan()) return;
  for (const int64_t batch : {1, 128}) CheckPlanned({"lenet", {28, 28, 1}, batch});
}

TEST_CASE("cuDNN's plans: those that are offered have names of their own, by which they are found",
          "[kernels][cuda]") {
  if (!CanPlan()) return;
  const Handle handle = HandleOf(emulation::kH100);
  for (const OpDesc& desc : ConvolutionsOf({"lenet", {28, 28, 1}, 128})) {
    INFO(ToString(desc));
    const CudaOptions options = {.compute = Compute::kBf16};
    REQUIRE_OK_AND_ASSIGN(const auto offered, EnginesFor(handle.get(), desc, options, 4));
    REQUIRE(offered.size() == 4);
    std::set<std::string> names;
    for (const ConvolutionEngine& engine : offered) {
      CHECK(names.insert(engine.name).second);
      REQUIRE_OK_AND_ASSIGN(const auto found,
                            EngineNamed(handle.get(), desc, options, engine.name));
      CHECK(found.name == engine.name);
      CHECK(found.workspace_bytes == engine.workspace_bytes);
    }
    for (const char* const name : {"", "engine of another library", "fused engine 0"}) {
      CHECK_STATUS(EngineNamed(handle.get(), desc, options, name), absl::StatusCode::kNotFound,
                   name);
    }
  }
}

// Returns whether cuDNN compiles the engine while it plans.
bool IsCompiledAtRunTime(const ConvolutionEngine& engine) {
  return EngineNotes<cudnnBackendBehaviorNote_t, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT>(
             engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE)
      .contains(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION);
}

// The operation behind the convolution in one plan.
struct Behind {
  bool bias, relu;
};

// The graphs are such as the library takes, whether it has plans for them here or not.
void CheckFused(const ZooModel& model, const std::vector<Behind>& all_behind) {
  const Handle handle = HandleOf(emulation::kH100);
  bool has_compiler = false;
  for (OpDesc desc : ConvolutionsOf(model)) {
    if (desc.kind != OpKind::kConvolutionForward) continue;
    for (const auto& [bias, relu] : all_behind) {
      desc.has_bias = bias;
      desc.fuse_relu = relu;
      for (const Compute compute : kComputes) {
        INFO("mode " << static_cast<int>(compute) << ": " << ToString(desc));
        const auto engines =
            EnginesFor(handle.get(), desc, {.compute = compute}, 1, Fusion::kBiasRelu);
        if (has_compiler && absl::IsUnimplemented(engines.status())) continue;
        REQUIRE_OK(engines);
        CHECK((*engines)[0].is_fused);
        CHECK_THAT((*engines)[0].name, Catch::StartsWith("fused engine "));
        CHECK(!NotesOf((*engines)[0]).contains(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
        has_compiler = has_compiler || IsCompiledAtRunTime((*engines)[0]);
      }
    }
  }
  if (!has_compiler) WARN("SKIPPED: plans for bf16 and fp16 are compiled, and need libcuda.so.1");
}

TEST_CASE("cuDNN's plans: a convolution, its bias and its ReLU are a graph that it takes",
          "[kernels][cuda]") {
  if (!CanPlan()) return;
  CheckFused({"lenet", {28, 28, 1}, 128}, {{true, true}, {true, false}, {false, true}});
  CheckFused({"vgg16", {224, 224, 3}, 64}, {{true, true}});
}

TEST_CASE("cuDNN's plans: none that needs more workspace than it may", "[kernels][cuda]") {
  if (!CanPlan()) return;
  const Handle handle = HandleOf(emulation::kA100);
  const OpDesc desc = *ConvolutionsOf({"vgg16", {224, 224, 3}, 64}).begin();
  CudaOptions options = {.compute = Compute::kTf32};
  REQUIRE_OK_AND_ASSIGN(const auto offered, EnginesFor(handle.get(), desc, options, 12));
  int64_t most = 0;
  for (const ConvolutionEngine& engine : offered) most = std::max(most, engine.workspace_bytes);
  REQUIRE(most > 0);
  options.workspace_bytes_max = most - 1;
  REQUIRE_OK_AND_ASSIGN(const auto smaller, EnginesFor(handle.get(), desc, options, 12));
  for (const ConvolutionEngine& engine : smaller) CHECK(engine.workspace_bytes < most);
}

}  // namespace
}  // namespace capstan::kernels::cuda::cudnn_plans_test
