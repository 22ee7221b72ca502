// gpu_bench: the time of ops and own operations on a GPU.
//
//   gpu_bench --info             the card, driver and libraries; exits with 3 if there is no GPU
//   gpu_bench --ceilings         only the first two lines, in bf16
//   gpu_bench fp32|tf32|bf16|fp16     one line a case, tab-separated:
//                                kind, sizes as "n=256 h=56 ...", microseconds, bytes, operations
//
// The first lines are the ceilings, to hold the others against: `copy`, how fast the card moves its
// memory, and `product`, how fast the mode multiplies large matrices.
//
// A case runs again and again without waiting in between, so that what is measured is the GPU, or
// the host where that is slower. Plans are the fastest of those measured.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/random/philox.h"
#include "common/status/status_macros.h"
#include "kernels/cuda/device_ops.h"
#include "kernels/cuda/half_values.h"
#include "kernels/op_check.h"
#include "kernels/testing/op_cases.h"
#include "tests/gpu/gpu.h"

namespace capstan::gpu {
namespace {

namespace cuda = kernels::cuda;
using cuda::CudaBackend;
using kernels::OpDesc;
using K = kernels::OpKind;

constexpr int kNoGpuExit = 3;
// Small sizes (CAPSTAN_GPU_SMALL) are for GPUs that are emulated: what is measured means nothing.
int Runs() { return IsSmall() ? 1 : 30; }
int Rounds() { return IsSmall() ? 1 : 5; }

// Microseconds of one run on the card's clock, the best of a few rounds, as compare_pytorch.py
// measures it.
absl::StatusOr<double> TimeOf(CudaBackend& gpu, const std::function<absl::Status()>& run) {
  CAPSTAN_ASSIGN_OR_RETURN(const auto begin, gpu.MakeEvent(kernels::EventUse::kTiming));
  CAPSTAN_ASSIGN_OR_RETURN(const auto end, gpu.MakeEvent(kernels::EventUse::kTiming));
  CAPSTAN_RETURN_IF_ERROR(run());
  CAPSTAN_RETURN_IF_ERROR(gpu.Synchronize());
  double best = 0.0;
  for (int round = 0; round < Rounds(); ++round) {
    CAPSTAN_RETURN_IF_ERROR(gpu.Record(*begin, kernels::Stream::kCompute));
    for (int i = 0; i < Runs(); ++i) CAPSTAN_RETURN_IF_ERROR(run());
    CAPSTAN_RETURN_IF_ERROR(gpu.Record(*end, kernels::Stream::kCompute));
    CAPSTAN_RETURN_IF_ERROR(gpu.Await(*end));
    CAPSTAN_ASSIGN_OR_RETURN(const double seconds, gpu.SecondsBetween(*begin, *end));
    const double one = 1e6 * seconds / Runs();
    best = round == 0 ? one : std::min(best, one);
  }
  CAPSTAN_RETURN_IF_ERROR(gpu.Synchronize());  // Returns errors of the runs.
  return best;
}

void Print(const std::string& name, double microseconds, double bytes, double operations) {
  std::printf("%s\t%.2f\t%.0f\t%.0f\n", name.c_str(), microseconds, bytes, operations);
  std::fflush(stdout);
}

// Random operands: numbers with random bits draw more power, and so time, than zeros.
std::unique_ptr<Array> RandomArray(CudaBackend& gpu, const kernels::Operand& operand, int64_t c) {
  const int64_t bytes = operand.count * kernels::BytesOf(operand.dtype);
  auto array = std::make_unique<Array>(gpu, bytes);
  std::vector<char> values(static_cast<size_t>(bytes));
  for (int64_t i = 0; i < operand.count; ++i) {
    const uint32_t word = static_cast<uint32_t>(MixKey(1, static_cast<uint64_t>(i)));
    const float number = 2.0f * ToUnitFloat(word) - 1.0f;
    if (kernels::IsHalf(operand.dtype)) {
      const uint16_t half = kernels::ToHalf(operand.dtype, number);
      std::memcpy(values.data() + 2 * i, &half, 2);
    } else if (operand.dtype == kernels::DataType::kInt32) {
      const auto label = static_cast<int32_t>(word % static_cast<uint32_t>(c));
      std::memcpy(values.data() + 4 * i, &label, 4);
    } else {
      const float value = std::string(operand.name) == "variance" ? number + 2.0f : number;
      std::memcpy(values.data() + 4 * i, &value, 4);
    }
  }
  array->Upload(values.data());
  return array;
}

absl::Status BenchOp(CudaBackend& gpu, const std::string& name, const OpDesc& desc) {
  CAPSTAN_ASSIGN_OR_RETURN(const kernels::OpSignature plain, kernels::MakeSignature(desc));
  const kernels::OpSignature s = WithTensorType(plain, gpu.TensorType());
  CAPSTAN_ASSIGN_OR_RETURN(const auto plan, gpu.Prepare(desc));
  std::vector<std::unique_ptr<Array>> arrays;
  std::vector<kernels::TensorView> in, out;
  double bytes = 0.0;
  const auto add = [&](const kernels::Operand& operand, std::vector<kernels::TensorView>& views) {
    arrays.push_back(RandomArray(gpu, operand, desc.c));
    bytes += static_cast<double>(arrays.back()->bytes());
    views.push_back({arrays.back()->data(), operand.count, operand.dtype});
  };
  for (int i = 0; i < s.input_count; ++i) add(s.inputs[static_cast<size_t>(i)], in);
  for (int i = 0; i < s.output_count; ++i) add(s.outputs[static_cast<size_t>(i)], out);
  CAPSTAN_ASSIGN_OR_RETURN(const double time,
                           TimeOf(gpu, [&] { return gpu.Run(*plan, in, out, {}); }));
  const bool product =
      desc.kind <= K::kConvolutionBackwardWeights ||
      (desc.kind >= K::kFullyConnectedForward && desc.kind <= K::kFullyConnectedBackwardWeights);
  const double operations =
      product ? 2.0 * static_cast<double>(desc.n * desc.out_h * desc.out_w * desc.out_c *
                                          desc.kernel * desc.kernel * desc.c)
              : 0.0;
  Print(name, time, bytes, operations);
  return absl::OkStatus();
}

absl::Status BenchConvolutions(CudaBackend& gpu) {
  // Layers of ResNet-50, batch 256: one of each size, the first one, and one that halves the image.
  const kernels::WindowCase cases[] = {
      {256, 224, 224, 3, 64, 7, 2, 3},   {256, 56, 56, 64, 64, 3, 1, 1},
      {256, 56, 56, 64, 256, 1, 1, 0},   {256, 28, 28, 128, 128, 3, 1, 1},
      {256, 28, 28, 512, 128, 1, 1, 0},  {256, 28, 28, 256, 256, 3, 2, 1},
      {256, 14, 14, 256, 1024, 1, 1, 0}, {256, 7, 7, 512, 512, 3, 1, 1},
  };
  for (kernels::WindowCase t : cases) {
    if (IsSmall()) {
      t.n = 1;
      t.h = t.w = std::min<int64_t>(t.h, 14);
      t.c = std::min<int64_t>(t.c, 16);
      t.out_c = 16;
    }
    const std::string sizes = absl::StrCat("n=", t.n, " h=", t.h, " c=", t.c, " o=", t.out_c,
                                           " k=", t.kernel, " s=", t.stride, " p=", t.padding);
    const auto bench = [&](const char* kind, K op) {
      return BenchOp(gpu, absl::StrCat(kind, "\t", sizes),
                     kernels::WindowDesc(op, t, false, false));
    };
    CAPSTAN_RETURN_IF_ERROR(bench("conv_forward", K::kConvolutionForward));
    CAPSTAN_RETURN_IF_ERROR(bench("conv_backward_data", K::kConvolutionBackwardData));
    CAPSTAN_RETURN_IF_ERROR(bench("conv_backward_weights", K::kConvolutionBackwardWeights));
  }
  return absl::OkStatus();
}

absl::Status BenchOthers(CudaBackend& gpu) {
  const int64_t n = IsSmall() ? 1 : 256;
  const kernels::WindowCase image = {n, 56, 56, 64, 64, 1, 1, 0};
  const kernels::WindowCase pool = {n, 112, 112, 64, 64, 3, 2, 1};
  const std::string image_sizes = absl::StrCat("n=", n, " h=56 c=64");
  const std::string pool_sizes = absl::StrCat("n=", n, " h=112 c=64 k=3 s=2 p=1");
  const std::string product_sizes = absl::StrCat("n=", n, " c=2048 o=1000");
  const auto of_image = [&](const char* kind, K op) {
    return BenchOp(gpu, absl::StrCat(kind, "\t", image_sizes),
                   kernels::WindowDesc(op, image, false, false));
  };
  CAPSTAN_RETURN_IF_ERROR(of_image("relu", K::kReluForward));
  CAPSTAN_RETURN_IF_ERROR(of_image("add", K::kAdd));
  CAPSTAN_RETURN_IF_ERROR(of_image("batch_norm_forward", K::kBatchNormForward));
  CAPSTAN_RETURN_IF_ERROR(of_image("batch_norm_backward", K::kBatchNormBackward));
  CAPSTAN_RETURN_IF_ERROR(BenchOp(gpu, absl::StrCat("max_pool_forward\t", pool_sizes),
                                  kernels::WindowDesc(K::kMaxPoolForward, pool, false, false)));
  CAPSTAN_RETURN_IF_ERROR(BenchOp(gpu, absl::StrCat("fc_forward\t", product_sizes),
                                  kernels::MatrixDesc(K::kFullyConnectedForward, n, 2048, 1000)));
  CAPSTAN_RETURN_IF_ERROR(
      BenchOp(gpu, absl::StrCat("fc_backward_weights\t", product_sizes),
              kernels::MatrixDesc(K::kFullyConnectedBackwardWeights, n, 2048, 1000)));
  return BenchOp(gpu, absl::StrCat("softmax_forward\tn=", n, " c=1000"),
                 kernels::MatrixDesc(K::kSoftmaxCrossEntropyForward, n, 1000, 1));
}

// How many parameters own operations have.
int64_t ParameterCount() { return IsSmall() ? 10000 : 25557032; }  // ResNet-50 has so many.

// The rates that no case can exceed.
absl::Status BenchCeilings(CudaBackend& gpu) {
  const int64_t n = ParameterCount();
  const kernels::Operand floats = {"values", n, kernels::DataType::kFloat32};
  const auto from = RandomArray(gpu, floats, 1), to = RandomArray(gpu, floats, 1);
  CAPSTAN_ASSIGN_OR_RETURN(const double time, TimeOf(gpu, [&] {
                             return gpu.CopyAsync(kernels::Stream::kCompute, to->data(),
                                                  from->data(), n * 4);
                           }));
  Print(absl::StrCat("copy\tn=", n), time, static_cast<double>(8 * n), 0.0);
  const int64_t side = IsSmall() ? 32 : 8192;
  return BenchOp(gpu, absl::StrCat("product\tn=", side, " c=", side, " o=", side),
                 kernels::MatrixDesc(K::kFullyConnectedForward, side, side, side));
}

absl::Status BenchOwn(CudaBackend& gpu) {
  const int64_t parameters = ParameterCount();
  const std::string sizes = absl::StrCat("n=", parameters);
  const kernels::Operand floats = {"values", parameters, kernels::DataType::kFloat32};
  std::vector<std::unique_ptr<Array>> arrays;
  for (int i = 0; i < 4; ++i) arrays.push_back(RandomArray(gpu, floats, 1));
  const auto at = [&](size_t i) { return static_cast<float*>(arrays[i]->data()); };
  CAPSTAN_RETURN_IF_ERROR(gpu.Zero(at(3), parameters * 4));
  const auto bench = [&](const char* kind, int64_t bytes_each,
                         const std::function<absl::Status()>& run) -> absl::Status {
    CAPSTAN_ASSIGN_OR_RETURN(const double time, TimeOf(gpu, run));
    Print(absl::StrCat(kind, "\t", sizes), time, static_cast<double>(bytes_each * parameters), 0.0);
    return absl::OkStatus();
  };
  cuda::UpdateArgs update = {.rule = cuda::UpdateRule::kMomentum,
                             .scalars = {.lr = 1e-6f, .clip = 1e30f, .momentum = 0.9f},
                             .n = parameters,
                             .weights = at(0),
                             .gradient = at(1),
                             .s0 = at(2),
                             .s1 = at(3)};
  CAPSTAN_RETURN_IF_ERROR(bench("sgd_momentum", 20, [&] { return gpu.Update(update); }));
  update.rule = cuda::UpdateRule::kAdam;
  update.scalars.beta1 = update.scalars.beta2 = 0.9f;
  update.scalars.one_minus_beta1 = update.scalars.one_minus_beta2 = 0.1f;
  update.scalars.epsilon = 1e-8f;
  CAPSTAN_RETURN_IF_ERROR(bench("adam", 28, [&] { return gpu.Update(update); }));
  CAPSTAN_RETURN_IF_ERROR(bench("cast_bf16", 6, [&] {
    return gpu.Cast({.n = parameters, .in = at(0), .out = at(1), .to = cuda::Number::kBf16});
  }));
  return bench("norm", 4, [&] {
    return gpu.Norm(
        {.n = parameters, .values = at(1), .result = reinterpret_cast<cuda::NormResult*>(at(2))});
  });
}

absl::Status Bench(CudaBackend& gpu) {
  CAPSTAN_RETURN_IF_ERROR(BenchCeilings(gpu));
  CAPSTAN_RETURN_IF_ERROR(BenchConvolutions(gpu));
  CAPSTAN_RETURN_IF_ERROR(BenchOthers(gpu));
  return BenchOwn(gpu);
}

int Main(int argc, char** argv) {
  const std::string what = argc == 2 ? argv[1] : "";
  const bool info = what == "--info", ceilings = what == "--ceilings";
  if (!info && !ceilings && what != "fp32" && what != "tf32" && what != "bf16" && what != "fp16") {
    std::fprintf(stderr, "usage: gpu_bench --info|--ceilings|fp32|tf32|bf16|fp16\n");
    return 2;
  }
  const auto gpu = Open(what == "bf16" || ceilings ? cuda::Compute::kBf16
                        : what == "fp16"           ? cuda::Compute::kFp16
                        : what == "tf32"           ? cuda::Compute::kTf32
                                                   : cuda::Compute::kFp32,
                        cuda::PlanChoice::kMeasured);
  if (!gpu.ok()) {
    std::fprintf(stderr, "gpu_bench: %s\n", gpu.status().ToString().c_str());
    return absl::IsUnavailable(gpu.status()) ? kNoGpuExit : 1;
  }
  const auto card = (*gpu)->Info();
  if (info && card.ok()) std::printf("%s\n", Describe(*card).c_str());
  const absl::Status done = !card.ok() ? card.status()
                            : info     ? absl::OkStatus()
                            : ceilings ? BenchCeilings(**gpu)
                                       : Bench(**gpu);
  if (done.ok()) return 0;
  std::fprintf(stderr, "gpu_bench: %s\n", done.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace capstan::gpu

int main(int argc, char** argv) { return capstan::gpu::Main(argc, argv); }
