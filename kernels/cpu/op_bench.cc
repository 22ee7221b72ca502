// op_bench: time of each op of a LeNet training step (batch 64, or the first argument) on the CPU
// backend.
//
// Prints the median and the smallest of many runs, and the rate of multiply-adds where that is the
// work.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "absl/strings/numbers.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/op_check.h"

namespace capstan::kernels {
namespace {

struct Timed {
  double median = 0.0;  // Microseconds.
  double smallest = 0.0;
};

Timed TimeOp(Backend& backend, const OpDesc& desc) {
  const OpSignature signature = MakeSignature(desc).value();
  const auto plan = backend.Prepare(desc).value();
  std::vector<BackendMemory> memory;
  const auto view = [&](const Operand& operand) {
    memory.emplace_back(backend.Allocate(operand.count * 4), BackendDeleter{&backend});
    TensorView result{memory.back().get(), operand.count, operand.dtype};
    for (int64_t i = 0; i < operand.count; ++i) {
      if (operand.dtype == DataType::kInt32) {
        result.i32()[i] = static_cast<int32_t>(i % 4);
      } else {
        result.f32()[i] = static_cast<float>(i * 7919 % 1000) * 1e-3f - 0.5f;
      }
    }
    return result;
  };
  std::vector<TensorView> in, out;
  for (int i = 0; i < signature.input_count; ++i) in.push_back(view(signature.inputs[i]));
  for (int i = 0; i < signature.output_count; ++i) out.push_back(view(signature.outputs[i]));
  std::vector<double> times;
  for (int i = 0; i < 120; ++i) {
    const auto start = std::chrono::steady_clock::now();
    if (!backend.Run(*plan, in, out).ok()) std::abort();
    const std::chrono::duration<double, std::micro> taken =
        std::chrono::steady_clock::now() - start;
    times.push_back(taken.count());
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front()};
}

OpDesc Window(OpKind kind, int64_t n, int64_t size, int64_t c, int64_t out_c, int64_t kernel,
              int64_t stride = 1, int64_t padding = 0) {
  OpDesc d;
  d.kind = kind;
  d.n = n;
  d.h = d.w = size;
  d.c = c;
  d.out_h = d.out_w = (size + 2 * padding - kernel) / stride + 1;
  d.out_c = out_c;
  d.kernel = kernel;
  d.stride = stride;
  d.padding = padding;
  d.has_bias = true;
  return d;
}

OpDesc Matrix(OpKind kind, int64_t n, int64_t c, int64_t out_c) {
  OpDesc d;
  d.kind = kind;
  d.n = n;
  d.c = c;
  d.out_c = out_c;
  d.has_bias = true;
  return d;
}

std::vector<OpDesc> LeNetStep(int64_t n) {
  using K = OpKind;
  OpDesc fc1 = Matrix(K::kFullyConnectedForward, n, 800, 500);
  fc1.fuse_relu = true;
  OpDesc relu = Matrix(K::kReluBackward, n, 500, 1);
  return {Window(K::kConvolutionForward, n, 28, 1, 20, 5),
          Window(K::kMaxPoolForward, n, 24, 20, 20, 2, 2),
          Window(K::kConvolutionForward, n, 12, 20, 50, 5),
          Window(K::kMaxPoolForward, n, 8, 50, 50, 2, 2),
          fc1,
          Matrix(K::kFullyConnectedForward, n, 500, 10),
          Matrix(K::kSoftmaxCrossEntropyForward, n, 10, 1),
          Matrix(K::kSoftmaxCrossEntropyBackward, n, 10, 1),
          Matrix(K::kFullyConnectedBackwardWeights, n, 500, 10),
          Matrix(K::kFullyConnectedBackwardData, n, 500, 10),
          relu,
          Matrix(K::kFullyConnectedBackwardWeights, n, 800, 500),
          Matrix(K::kFullyConnectedBackwardData, n, 800, 500),
          Window(K::kMaxPoolBackward, n, 8, 50, 50, 2, 2),
          Window(K::kConvolutionBackwardWeights, n, 12, 20, 50, 5),
          Window(K::kConvolutionBackwardData, n, 12, 20, 50, 5),
          Window(K::kMaxPoolBackward, n, 24, 20, 20, 2, 2),
          Window(K::kConvolutionBackwardWeights, n, 28, 1, 20, 5)};
}

// Multiply-adds of convolutions and fully connected ops; 0 for others.
double MultiplyAdds(const OpDesc& d) {
  const bool convolution = d.kind <= OpKind::kConvolutionBackwardWeights;
  const bool matrix =
      d.kind >= OpKind::kFullyConnectedForward && d.kind <= OpKind::kFullyConnectedBackwardWeights;
  if (!convolution && !matrix) return 0.0;
  return static_cast<double>(d.n * d.out_h * d.out_w * d.out_c * d.kernel * d.kernel * d.c);
}

int Main(int argc, char** argv) {
  int64_t n = 64;
  if (argc > 1 && (!absl::SimpleAtoi(argv[1], &n) || n < 1)) {
    std::fprintf(stderr, "batch size is %s, expected a number >= 1\n", argv[1]);
    return 2;
  }
  const auto backend = MakeCpuBackend();
  double total = 0.0;
  double total_smallest = 0.0;
  for (const OpDesc& desc : LeNetStep(n)) {
    const Timed time = TimeOp(*backend, desc);
    total += time.median;
    total_smallest += time.smallest;
    std::printf("%8.1f us (min %8.1f) %6.1f GMAC/s  %s\n", time.median, time.smallest,
                MultiplyAdds(desc) / time.smallest * 1e-3, ToString(desc).c_str());
  }
  std::printf("%8.1f us (min %8.1f): %.0f samples/s (%.0f)\n", total, total_smallest,
              static_cast<double>(n) / total * 1e6, static_cast<double>(n) / total_smallest * 1e6);
  return 0;
}

}  // namespace
}  // namespace capstan::kernels

int main(int argc, char** argv) { return capstan::kernels::Main(argc, argv); }
