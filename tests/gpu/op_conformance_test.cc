// Every op of op.h on the GPU against the reference, in fp32, TF32, bf16 and fp16.
//
// Tolerance: the largest error of an output is at most 1e-5 (fp32), 1e-3 (TF32), 1e-2 (bf16) or
// 2e-3 (fp16) of its largest value. Inputs are rounded to what the mode holds before both compute,
// so that only the GPU's own rounding counts. In fp32 what only moves or selects values must agree
// to the bit. Every op runs twice, and must give the same bits; parameters also lie at odd
// addresses.
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/testing/status_matchers.h"
#include "kernels/cuda/half_values.h"
#include "kernels/cuda/loader.h"
#include "kernels/cuda/plans/plan_store.h"
#include "kernels/op_check.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/testing/gradient_checks.h"
#include "kernels/testing/op_cases.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/test_gpu.h"

namespace capstan::gpu::op_conformance_test {
namespace {

using kernels::ActivationDescs;
using kernels::DataType;
using kernels::MatrixDesc;
using kernels::OpDesc;
using kernels::Operand;
using kernels::Operands;
using kernels::OpSignature;
using kernels::RunOptions;
using kernels::TensorView;
using kernels::WindowCase;
using kernels::WindowDesc;
using kernels::cuda::Compute;
using kernels::cuda::CudaBackend;
using K = kernels::OpKind;

// The modes that are asked for.
std::vector<Compute> Computes() {
  std::vector<Compute> wanted;
  for (const Compute compute : {Compute::kFp32, Compute::kTf32, Compute::kBf16, Compute::kFp16}) {
    if (IsWanted(compute)) wanted.push_back(compute);
  }
  return wanted;
}

double Tolerance(Compute compute) {
  switch (compute) {
    case Compute::kFp32:
      return 1e-5;
    case Compute::kTf32:
      return 1e-3;
    case Compute::kFp16:
      return 2e-3;
    default:
      return 1e-2;
  }
}

bool IsExact(K kind, size_t output) {
  if (kind == K::kBatchNormBackward) return output == 3;  // dsum
  return kind == K::kMaxPoolForward || kind == K::kReluForward || kind == K::kReluBackward ||
         kind == K::kAdd || kind == K::kEmbeddingForward;
}

std::vector<uint16_t> ToHalves(DataType dtype, const std::vector<float>& values) {
  std::vector<uint16_t> halves;
  halves.reserve(values.size());
  for (const float value : values) halves.push_back(kernels::ToHalf(dtype, value));
  return halves;
}

// kUnaligned: one element behind an aligned address.
enum class Parameters { kAligned, kUnaligned };

// Operands in the GPU's memory, converted to the types of its signature.
class DeviceOperands {
 public:
  DeviceOperands(CudaBackend& backend, const Operand* operands, int count, Parameters lie)
      : backend_(backend) {
    for (int i = 0; i < count; ++i) {
      const Operand& operand = operands[i];
      const std::string name = operand.name;
      const bool parameter = name == "weight" || name == "bias" || name == "dweight" ||
                             name == "dbias" || name == "scale" || name == "shift";
      const int64_t size = kernels::BytesOf(operand.dtype);
      arrays_.push_back(std::make_unique<Array>(
          backend_, operand.count * size, parameter && lie == Parameters::kUnaligned ? size : 0));
      views_.push_back({arrays_.back()->data(), operand.count, operand.dtype});
    }
  }

  const std::vector<TensorView>& views() const { return views_; }

  void Upload(const Operands& from) {
    for (size_t i = 0; i < views_.size(); ++i) {
      if (kernels::IsHalf(views_[i].dtype)) {
        arrays_[i]->Upload(ToHalves(views_[i].dtype, from.values[i]).data());
      } else {
        arrays_[i]->Upload(from.values[i].data());
      }
    }
  }

  void Download(Operands& to) const {
    for (size_t i = 0; i < views_.size(); ++i) {
      std::vector<float>& values = to.values[i];
      if (!kernels::IsHalf(views_[i].dtype)) {
        arrays_[i]->Download(values.data());
        continue;
      }
      std::vector<uint16_t> halves(values.size());
      arrays_[i]->Download(halves.data());
      for (size_t j = 0; j < halves.size(); ++j) {
        values[j] = kernels::FromHalf(views_[i].dtype, halves[j]);
      }
    }
  }

 private:
  CudaBackend& backend_;
  std::vector<std::unique_ptr<Array>> arrays_;
  std::vector<TensorView> views_;
};

Operands RunReference(const OpSignature& signature, Operands& inputs, const RunOptions& options) {
  const auto reference = kernels::MakeReferenceBackend();
  REQUIRE_OK_AND_ASSIGN(const auto plan, reference->Prepare(signature.desc));
  Operands outputs = kernels::MakeOutputs(signature);
  REQUIRE_OK(reference->Run(*plan, inputs.Views(), outputs.Views(), options));
  return outputs;
}

// `signature` has the GPU's types.
Operands RunGpu(CudaBackend& gpu, const OpSignature& signature, const Operands& inputs,
                const RunOptions& options, Parameters lie = Parameters::kAligned) {
  REQUIRE_OK_AND_ASSIGN(const auto plan, gpu.Prepare(signature.desc));
  DeviceOperands in(gpu, signature.inputs.data(), signature.input_count, lie);
  DeviceOperands out(gpu, signature.outputs.data(), signature.output_count, lie);
  Operands first = kernels::MakeOutputs(signature);
  in.Upload(inputs);
  for (int run = 0; run < 2; ++run) {
    Operands outputs = kernels::MakeOutputs(signature);
    out.Upload(outputs);  // NaN: an element that the op forgets is seen.
    REQUIRE_OK(gpu.Run(*plan, in.views(), out.views(), options));
    REQUIRE_OK(gpu.Synchronize());
    out.Download(outputs);
    if (run == 0) {
      first = outputs;
      continue;
    }
    for (size_t i = 0; i < first.values.size(); ++i) {
      INFO(ToString(signature.desc) << " output " << i << " of a second run");
      const size_t bytes = first.values[i].size() * 4;
      REQUIRE((bytes == 0 ||
               std::memcmp(first.values[i].data(), outputs.values[i].data(), bytes) == 0));
    }
  }
  return first;
}

void CheckSame(Compute compute, const OpDesc& desc, const Operands& expected,
               const Operands& actual) {
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const std::vector<float>& want = expected.values[i];
    const std::vector<float>& got = actual.values[i];
    const bool integers = expected.types[i] == DataType::kInt32;
    const bool exact =
        integers || (IsExact(desc.kind, i) && TensorTypeOf(compute) == DataType::kFloat32);
    double largest = 0.0;
    double worst = 0.0;
    size_t where = 0;
    for (size_t j = 0; j < want.size(); ++j) {
      largest = std::max(largest, std::fabs(double{want[j]}));
      if (std::memcmp(&want[j], &got[j], 4) == 0) continue;
      const double error = integers ? 1.0 : std::fabs(double{want[j]} - double{got[j]});
      if (error <= worst) continue;
      worst = error;
      where = j;
      if (std::isnan(error)) break;
    }
    INFO(ToString(desc) << " compute " << static_cast<int>(compute) << " output " << i
                        << " element " << where << " of " << want.size() << " error " << worst
                        << " largest " << largest);
    REQUIRE_FALSE(std::isnan(worst));
    REQUIRE(worst <= (exact ? 0.0 : Tolerance(compute) * largest));
  }
}

// To numbers that the mode holds: else, where a sum's terms cancel out, what the factors lose is
// more than any tolerance of the sum.
void RoundInputs(Compute compute, const OpSignature& signature, Operands& inputs) {
  for (int i = 0; i < signature.input_count; ++i) {
    DataType dtype = signature.inputs[static_cast<size_t>(i)].dtype;
    // TF32 holds those of bf16, however the card rounds.
    if (compute == Compute::kTf32 && dtype == DataType::kFloat32) dtype = DataType::kBfloat16;
    if (!kernels::IsHalf(dtype)) continue;
    for (float& value : inputs.values[static_cast<size_t>(i)]) {
      value = kernels::FromHalf(dtype, kernels::ToHalf(dtype, value));
    }
  }
}

// Compares one op on one backend; `given` are inputs (fp32), or null for those of MakeInputs.
void ConformOn(CudaBackend& gpu, Compute compute, const OpDesc& desc,
               const RunOptions& options = {}, const Operands* given = nullptr) {
  REQUIRE_OK_AND_ASSIGN(const OpSignature plain, kernels::MakeSignature(desc));
  const OpSignature signature = WithTensorType(plain, gpu.TensorType());
  Operands inputs = given == nullptr ? kernels::MakeInputs(plain) : *given;
  RoundInputs(compute, signature, inputs);
  ClearGradientsNearZero(desc, inputs);
  const Operands expected = RunReference(plain, inputs, options);
  for (const Parameters lie : {Parameters::kAligned, Parameters::kUnaligned}) {
    CheckSame(compute, desc, expected, RunGpu(gpu, signature, inputs, options, lie));
  }
}

void ConformIn(Compute compute, const OpDesc& desc, const RunOptions& options = {},
               const Operands* given = nullptr) {
  if (!IsWanted(compute)) return;
  CudaBackend* const gpu = TestGpu(compute);
  if (gpu != nullptr) ConformOn(*gpu, compute, desc, options, given);
}

// Own kernels know no TF32.
void Conform(const OpDesc& desc, const RunOptions& options = {}) {
  ConformIn(Compute::kFp32, desc, options);
  ConformIn(Compute::kBf16, desc, options);
  ConformIn(Compute::kFp16, desc, options);
}

std::vector<WindowCase> Windows() {
  std::vector<WindowCase> cases(std::begin(kernels::kWindowCases), std::end(kernels::kWindowCases));
  cases.push_back({1, 7, 7, 260, 3, 1, 1, 0});    // Several strips of channels, 4 a thread.
  cases.push_back({1, 160, 160, 4, 5, 3, 2, 1});  // More chunks than one turn adds up.
  cases.push_back({1, 66, 66, 128, 4, 3, 1, 1});  // Enough for pools of many channels a thread.
  if (IsSmall() || TestGpu(Compute::kFp32) == nullptr) return cases;
  cases.push_back({2, 56, 56, 64, 64, 3, 1, 1});  // A layer of ResNet-50.
  cases.push_back({2, 56, 56, 64, 256, 1, 1, 0});
  cases.push_back({3, 28, 28, 128, 128, 3, 2, 1});
  cases.push_back({2, 224, 224, 3, 64, 7, 2, 3});
  return cases;
}

TEST_CASE("GPU convolution: all three ops agree with the reference", "[gpu]") {
  std::vector<WindowCase> cases = Windows();
  // Folded in bf16 and fp16, with one to four channels.
  for (const WindowCase& t : {WindowCase{1, 9, 8, 1, 16, 4, 2, 0},
                              {3, 7, 7, 2, 8, 3, 2, 1},
                              {2, 15, 12, 3, 8, 7, 2, 3},
                              {2, 6, 9, 4, 8, 5, 2, 2}}) {
    cases.push_back(t);
  }
  for (const Compute compute : Computes()) {
    for (const WindowCase& t : cases) {
      ConformIn(compute, WindowDesc(K::kConvolutionForward, t, false, false));
      ConformIn(compute, WindowDesc(K::kConvolutionForward, t, true, true));
      ConformIn(compute, WindowDesc(K::kConvolutionBackwardData, t, false, false));
      ConformIn(compute, WindowDesc(K::kConvolutionBackwardWeights, t, true, false));
    }
  }
}

// Few of them: on a card, each plan that does all at once is compiled for a second.
TEST_CASE("GPU convolution: the fastest plan, with bias and ReLU in it or behind it, agrees too",
          "[gpu]") {
  constexpr WindowCase kCases[] = {
      {2, 28, 28, 1, 20, 5, 1, 0}, {2, 8, 8, 16, 32, 3, 2, 1}, {3, 4, 4, 64, 64, 1, 1, 0}};
  for (const Compute compute : Computes()) {
    if (TestGpu(compute) == nullptr) return;
    REQUIRE_OK_AND_ASSIGN(const auto gpu, Open(compute, kernels::cuda::PlanChoice::kMeasured));
    for (const WindowCase& t : kCases) {
      ConformOn(*gpu, compute, WindowDesc(K::kConvolutionForward, t, true, true));
    }
    ConformOn(*gpu, compute, WindowDesc(K::kConvolutionForward, kCases[1], true, false));
    ConformOn(*gpu, compute, WindowDesc(K::kConvolutionForward, kCases[1], false, true));
  }
}

// A folder whose only file holds plans, and what was found of those that were timed.
class PlansFolder {
 public:
  explicit PlansFolder(Compute compute)
      : folder_(std::filesystem::temp_directory_path() /
                absl::StrCat("capstan-every-plan-", getpid(), "-", static_cast<int>(compute))) {}
  ~PlansFolder() { std::filesystem::remove_all(folder_); }

  std::unique_ptr<CudaBackend> Open(Compute compute) const {
    kernels::cuda::CudaOptions options;
    options.compute = compute;
    options.plans_folder = folder_;
    options.warm_up_seconds = 0;
    REQUIRE_OK_AND_ASSIGN(auto backend, kernels::cuda::OpenCudaBackend(options));
    return backend;
  }

  // The plans that were timed: lines of key, plan, time.
  std::vector<std::pair<std::string, std::string>> Timed() const {
    std::vector<std::pair<std::string, std::string>> timed;
    for (const absl::string_view line : absl::StrSplit(Contents(".times"), '\n')) {
      const std::vector<std::string> parts = absl::StrSplit(line, '\t');
      if (parts.size() == 3 && absl::EndsWith(parts[2], " ms"))
        timed.push_back({parts[0], parts[1]});
    }
    return timed;
  }

  // From now on that is the plan that was the fastest.
  void Choose(const std::string& key, const std::string& plan) const {
    const std::vector<std::string> lines = absl::StrSplit(Contents(".plans"), '\n');
    REQUIRE(lines.size() > 2);
    std::ofstream(Path(".plans")) << kernels::cuda::EncodePlans(lines[1], {{key, plan}});
  }

 private:
  std::string Path(absl::string_view ending) const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      if (absl::EndsWith(entry.path().string(), ending)) return entry.path();
    }
    FAIL("no file that ends with " << ending);
    return "";
  }
  std::string Contents(absl::string_view ending) const {
    std::ifstream in(Path(ending));
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

  const std::string folder_;
};

// A plan is taken for the precision that its library claims. Here that precision is measured.
TEST_CASE("GPU convolution: every plan that is taken agrees with the reference", "[gpu]") {
  constexpr WindowCase kCase = {1, 66, 66, 128, 4, 3, 1, 1};
  constexpr WindowCase kSmall = {1, 9, 9, 8, 4, 3, 1, 1};
  for (const Compute compute : Computes()) {
    if (TestGpu(compute) == nullptr) return;
    for (const K kind :
         {K::kConvolutionForward, K::kConvolutionBackwardData, K::kConvolutionBackwardWeights}) {
      const OpDesc desc = WindowDesc(kind, IsSmall() ? kSmall : kCase, false, false);
      const PlansFolder folder(compute);
      REQUIRE_OK(folder.Open(compute)->Prepare(desc));
      const auto timed = folder.Timed();
      CHECK(!timed.empty());
      for (const auto& [key, plan] : timed) {
        INFO(plan);
        folder.Choose(key, plan);
        ConformOn(*folder.Open(compute), compute, desc);
      }
    }
  }
}

TEST_CASE("GPU fully connected: all three ops agree with the reference", "[gpu]") {
  for (const Compute compute : Computes()) {
    for (const int64_t n : {0, 1, 3, 64, 257}) {
      for (const int64_t c : {1, 64, 129}) {
        for (const int64_t units : {1, 10, 97, 1000}) {
          if (IsSmall() && n * c * units > 4000000) continue;
          OpDesc d = MatrixDesc(K::kFullyConnectedForward, n, c, units);
          ConformIn(compute, d);
          d.has_bias = true;
          ConformIn(compute, d);
          d.fuse_relu = true;
          ConformIn(compute, d);
          d.kind = K::kFullyConnectedBackwardWeights;
          ConformIn(compute, d);
          ConformIn(compute, MatrixDesc(K::kFullyConnectedBackwardData, n, c, units));
        }
      }
    }
  }
}

TEST_CASE("GPU pools: forward and average gradients agree with the reference", "[gpu]") {
  for (WindowCase t : Windows()) {
    t.out_c = t.c;
    Conform(WindowDesc(K::kMaxPoolForward, t, false, false));
    Conform(WindowDesc(K::kAveragePoolForward, t, false, false));
    Conform(WindowDesc(K::kAveragePoolBackward, t, false, false));
  }
}

TEST_CASE("GPU pools: the gradient of a max pool goes to the winners", "[gpu]") {
  for (WindowCase t : Windows()) {
    t.out_c = t.c;
    const OpDesc forward = WindowDesc(K::kMaxPoolForward, t, false, false);
    OpDesc backward = forward;
    backward.kind = K::kMaxPoolBackward;
    REQUIRE_OK_AND_ASSIGN(const OpSignature signature, kernels::MakeSignature(forward));
    Operands x = kernels::MakeInputs(signature);
    const Operands y = RunReference(signature, x, {});
    Operands inputs;
    inputs.Add(kernels::Uniform(5, signature.outputs[0].count), DataType::kFloat32);
    inputs.Add(y.values[1], DataType::kInt32);
    ConformIn(Compute::kFp32, backward, {}, &inputs);
    ConformIn(Compute::kBf16, backward, {}, &inputs);
    ConformIn(Compute::kFp16, backward, {}, &inputs);
  }
}

TEST_CASE("GPU batch norm: all three ops agree with the reference", "[gpu]") {
  for (const WindowCase& t : Windows()) {
    // A lone position has no variance: its gradient is rounding noise times 1 / sqrt(epsilon).
    if (t.n * t.h * t.w == 1) continue;
    for (const K kind : {K::kBatchNormForward, K::kBatchNormInference, K::kBatchNormBackward}) {
      for (const kernels::NormFusion fusion : kernels::kNormFusions)
        Conform(BatchNormDesc(kind, t, fusion));
    }
  }
}

TEST_CASE("GPU layer norm: both ops agree with the reference", "[gpu]") {
  for (const int64_t n : {0, 1, 7, 300}) {
    for (const int64_t c : {2, 3, 16, 65, 1000}) {
      for (const K kind : {K::kLayerNormForward, K::kLayerNormBackward}) {
        OpDesc d = MatrixDesc(kind, n, c, 1);
        d.h = 2;
        Conform(d);
      }
    }
  }
}

TEST_CASE("GPU batch norm: y may lie in place of the addend, dsum in place of dy or dy2", "[gpu]") {
  struct InPlace {
    K kind;
    size_t input, output;
  };
  for (const Compute compute : {Compute::kFp32, Compute::kBf16, Compute::kFp16}) {
    CudaBackend* const gpu = TestGpu(compute);
    if (gpu == nullptr) return;
    for (const InPlace t :
         {InPlace{K::kBatchNormForward, 3, 0}, InPlace{K::kBatchNormInference, 5, 0},
          InPlace{K::kBatchNormBackward, 1, 3}, InPlace{K::kBatchNormBackward, 6, 3}}) {
      const OpDesc desc = BatchNormDesc(t.kind, {3, 12, 12, 24, 1, 1, 1, 0}, {true, true, true});
      REQUIRE_OK_AND_ASSIGN(const OpSignature plain, kernels::MakeSignature(desc));
      const OpSignature signature = WithTensorType(plain, gpu->TensorType());
      const Operands inputs = kernels::MakeInputs(plain);
      const Operands expected = RunGpu(*gpu, signature, inputs, {});
      DeviceOperands in(*gpu, signature.inputs.data(), signature.input_count, Parameters::kAligned);
      DeviceOperands out(*gpu, signature.outputs.data(), signature.output_count,
                         Parameters::kAligned);
      in.Upload(inputs);
      std::vector<TensorView> to = out.views();
      to[t.output] = in.views()[t.input];
      REQUIRE_OK_AND_ASSIGN(const auto plan, gpu->Prepare(desc));
      REQUIRE_OK(gpu->Run(*plan, in.views(), to, {}));
      REQUIRE_OK(gpu->Synchronize());
      Operands outputs = kernels::MakeOutputs(signature);
      Operands read = inputs;
      out.Download(outputs);
      in.Download(read);
      outputs.values[t.output] = read.values[t.input];
      INFO(ToString(desc) << " compute " << static_cast<int>(compute));
      for (size_t i = 0; i < expected.values.size(); ++i) {
        CHECK(outputs.values[i] == expected.values[i]);
      }
    }
  }
}

TEST_CASE("GPU element-wise ops: results agree with the reference", "[gpu]") {
  for (const int64_t n : {0, 1, 7, 600, 70001}) {
    for (const int64_t c : {1, 3, 64}) {
      if (IsSmall() && n * c > 1000000) continue;
      for (const K kind : {K::kReluForward, K::kReluBackward, K::kAdd}) {
        Conform(MatrixDesc(kind, n, c, 1));
      }
      for (const OpDesc& activation : ActivationDescs(n, c)) Conform(activation);
      for (const float rate : {0.0f, 0.25f, 0.9f}) {
        OpDesc d = MatrixDesc(K::kDropoutForward, n, c, 1);
        d.dropout_rate = rate;
        Conform(d);
        d.kind = K::kDropoutBackward;
        Conform(d);
      }
    }
  }
}

TEST_CASE("GPU softmax cross-entropy: both ops agree with the reference", "[gpu]") {
  for (const int64_t n : {0, 1, 7, 257}) {
    for (const int64_t classes : {1, 2, 10, 1000}) {
      Conform(MatrixDesc(K::kSoftmaxCrossEntropyForward, n, classes, 1));
      Conform(MatrixDesc(K::kSoftmaxCrossEntropyBackward, n, classes, 1), {.scale = 0.125f});
    }
  }
}

TEST_CASE("GPU embedding: both ops agree with the reference", "[gpu]") {
  for (const int64_t n : {0, 1, 9, 1000, 5000}) {  // 3 rows a sample: 15000 are several tiles.
    for (const int64_t dim : {1, 16, 37}) {
      for (const int64_t rows : {1, 11, 5000}) {
        if (IsSmall() && n == 5000 && (dim != 16 || rows == 1)) continue;
        OpDesc d = MatrixDesc(K::kEmbeddingForward, n, 3, dim);
        d.rows = rows;
        Conform(d);
        d.kind = K::kEmbeddingBackward;
        Conform(d);
      }
    }
  }
}

TEST_CASE("GPU gradients: in fp32, as finite differences have them", "[gpu]") {
  if (!IsWanted(Compute::kFp32)) return;
  CudaBackend* const gpu = TestGpu(Compute::kFp32);
  if (gpu == nullptr) return;
  const auto run = [gpu](const OpDesc& desc, Operands& inputs, const RunOptions& options) {
    REQUIRE_OK_AND_ASSIGN(const OpSignature signature, kernels::MakeSignature(desc));
    return RunGpu(*gpu, signature, inputs, options);
  };
  for (const kernels::GradientCheck& one : kernels::GradientChecks()) {
    if (one.host_only) continue;
    INFO(one.name);
    // Convolutions may be Winograd's, whose sums are off by more roundings.
    one.check(run, 4 * kernels::kGradientTolerance);
  }
}

TEST_CASE("GPU ops: NaN passes through, so that divergence is seen", "[gpu]") {
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  OpDesc image = WindowDesc(K::kConvolutionForward, {2, 1, 1, 8, 24, 1, 1, 0}, true, true);
  OpDesc matrix = MatrixDesc(K::kFullyConnectedForward, 2, 8, 24);
  matrix.fuse_relu = true;
  for (const Compute compute : Computes()) {
    if (TestGpu(compute) == nullptr) return;
    REQUIRE_OK_AND_ASSIGN(const auto measured, Open(compute, kernels::cuda::PlanChoice::kMeasured));
    for (CudaBackend* const gpu : {TestGpu(compute), measured.get()}) {
      for (const OpDesc& d : {matrix, image}) {
        INFO(ToString(d) << " compute " << static_cast<int>(compute));
        REQUIRE_OK_AND_ASSIGN(const OpSignature plain, kernels::MakeSignature(d));
        Operands inputs = kernels::MakeInputs(plain);
        inputs.values[0][0] = nan;
        const Operands y = RunGpu(*gpu, WithTensorType(plain, gpu->TensorType()), inputs, {});
        for (size_t i = 0; i < 24; ++i) {
          CHECK(std::isnan(y.values[0][i]));
          CHECK_FALSE(std::isnan(y.values[0][24 + i]));
        }
      }
    }
  }
}

}  // namespace
}  // namespace capstan::gpu::op_conformance_test
