// op_bench: times each op of a LeNet training step (batch 64, or the first argument) on the CPU
// backend, and compares the fused batch norm of a ResNet with the separate ops.
//
// It prints the median and the smallest time of many runs, and for convolutions and fully connected
// ops the rate of multiply-adds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
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

// An op with operands of its own. In a sequence of ops, a caller sets one op's input to the
// previous op's output.
class BenchedOp {
 public:
  BenchedOp(Backend& backend, const OpDesc& desc)
      : backend_(backend), plan_(backend.Prepare(desc).value()) {
    const OpSignature signature = MakeSignature(desc).value();
    for (int i = 0; i < signature.input_count; ++i) in_.push_back(View(signature.inputs[i]));
    for (int i = 0; i < signature.output_count; ++i) out_.push_back(View(signature.outputs[i]));
  }

  void Run() {
    if (!backend_.Run(*plan_, in_, out_).ok()) std::abort();
  }
  TensorView& in(size_t i) { return in_[i]; }
  TensorView& out(size_t i) { return out_[i]; }

 private:
  TensorView View(const Operand& operand) {
    memory_.emplace_back(backend_.Allocate(operand.count * 4), BackendDeleter{&backend_});
    TensorView result{memory_.back().get(), operand.count, operand.dtype};
    for (int64_t i = 0; i < operand.count; ++i) {
      if (operand.dtype == DataType::kInt32) {
        result.i32()[i] = static_cast<int32_t>(i % 4);
      } else {
        result.f32()[i] = static_cast<float>(i * 7919 % 1000) * 1e-3f - 0.5f;
      }
    }
    return result;
  }

  Backend& backend_;
  std::unique_ptr<Plan> plan_;
  std::vector<BackendMemory> memory_;
  std::vector<TensorView> in_, out_;
};

template <typename Run>
double Microseconds(const Run& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
  return taken.count();
}

Timed Summary(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front()};
}

Timed TimeOp(Backend& backend, const OpDesc& desc) {
  BenchedOp op(backend, desc);
  std::vector<double> times;
  for (int i = 0; i < 120; ++i) times.push_back(Microseconds([&] { op.Run(); }));
  return Summary(std::move(times));
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

// Runs the two alternately, so that other work on the machine slows down both equally.
template <typename Fused, typename Separate>
void Compare(const OpDesc& desc, const Fused& fused, const Separate& separate) {
  constexpr int kRuns = 25;
  std::vector<double> times, separate_times;
  for (int i = 0; i < kRuns; ++i) {
    times.push_back(Microseconds(fused));
    separate_times.push_back(Microseconds(separate));
  }
  const Timed one = Summary(std::move(times));
  const Timed many = Summary(std::move(separate_times));
  std::printf("%8.1f us (min %8.1f), separate ops %8.1f us (min %8.1f): %.2f (%.2f)  %s\n",
              one.median, one.smallest, many.median, many.smallest, many.median / one.median,
              many.smallest / one.smallest, ToString(desc).c_str());
}

OpDesc OfKind(OpDesc desc, OpKind kind) {
  desc.kind = kind;
  return desc;
}

// Compares batch norm with ReLU, with or without an addend, with the ops that it replaces. These
// work in place where they may.
void CompareBatchNorm(Backend& backend, int64_t n, int64_t size, int64_t c, bool addend) {
  using K = OpKind;
  OpDesc plain = Window(K::kBatchNormForward, n, size, c, c, 1);
  plain.has_bias = false;
  OpDesc desc = plain;
  desc.fuse_relu = true;
  desc.has_addend = addend;
  BenchedOp fused(backend, desc), norm(backend, plain);
  BenchedOp add(backend, OfKind(plain, K::kAdd)), relu(backend, OfKind(plain, K::kReluForward));
  relu.in(0) = relu.out(0) = norm.out(0);
  add.in(0) = add.out(0) = norm.out(0);
  Compare(
      desc, [&] { fused.Run(); },
      [&] {
        norm.Run();
        if (addend) add.Run();
        relu.Run();
      });
  const OpDesc backward = OfKind(desc, K::kBatchNormBackward);
  BenchedOp fused_back(backend, backward);
  BenchedOp norm_back(backend, OfKind(plain, K::kBatchNormBackward));
  BenchedOp relu_back(backend, OfKind(plain, K::kReluBackward));
  norm_back.in(1) = relu_back.out(0) = relu_back.in(1);
  if (addend) fused_back.out(3) = fused_back.in(1);
  Compare(
      backward, [&] { fused_back.Run(); },
      [&] {
        relu_back.Run();
        norm_back.Run();
      });
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
  for (const bool addend : {false, true}) {
    CompareBatchNorm(*backend, 64, 32, 64, addend);  // Sizes in ResNets for CIFAR-10 and ImageNet.
    CompareBatchNorm(*backend, 32, 56, 64, addend);
  }
  return 0;
}

}  // namespace
}  // namespace capstan::kernels

int main(int argc, char** argv) { return capstan::kernels::Main(argc, argv); }
