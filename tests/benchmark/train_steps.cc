// Training steps on request: our side of train_cpu.py and tests/gpu/compare_training.py, which time
// it against PyTorch.
//
//   train_steps --zoo=lenet --batch=64 --threads=1 [--image=28x28x1 --classes=10]
//               [--gpu=0,1 --compute=BF16 --plans=first] [--update=device]
//
// Reads lines from standard input, each a number of steps; trains that many and answers with a
// line: wall seconds, processor seconds, mean loss of the last step, and the processor seconds that
// it took to give a GPU its work (0 on a CPU). A step is what a worker and a server do for a
// micro-batch without the network between them: gradient, check for divergence, momentum SGD. With
// --update=device parameters stay on the GPU and are updated there, and only the loss is looked at.
// The data is synthetic and in memory; the next batch is on its way to the GPU while it computes
// one.
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "common/command_line/command.h"
#include "common/model/initial_values.h"
#include "common/model/plan_model.h"
#include "common/model/tables.h"
#include "common/random/philox.h"
#include "common/status/status_macros.h"
#include "kernels/backend_group.h"
#include "kernels/cuda/cuda_backend.h"
#include "proto/job.pb.h"
#include "server/optimizer/optimizer.h"
#include "server/optimizer/step_scalars.h"
#include "worker/task/computation/backend.h"
#include "worker/training/network.h"
#include "worker/training/trainer/gradient_step.h"

namespace capstan {
namespace {

using kernels::cuda::CudaBackend;

// Batches in memory, taken in turn: so many, or fewer of as many bytes; two at least.
constexpr int64_t kBatchesMax = 16;
constexpr int64_t kBatchesBytesMax = int64_t{1} << 29;
constexpr int64_t kSideMax = 4096;  // Largest side of an image.

struct Options {
  std::string zoo = "lenet";
  int64_t batch = 64;
  std::string image = "28x28x1";
  int64_t classes = 10;
  std::string update = "host";
  bool parameters = false;  // Says how many the model has, and nothing else.
  int threads = 1;
  std::vector<int> gpus;  // None: the CPU.
  std::string compute = "FP32";
  std::string plans = "fastest";
};

double Seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// "224x224x3": height, width, channels.
absl::StatusOr<SampleShape> ShapeOf(const std::string& text) {
  const std::vector<std::string> words = absl::StrSplit(text, 'x');
  SampleShape shape;
  if (words.size() == 3 && absl::SimpleAtoi(words[0], &shape.h) &&
      absl::SimpleAtoi(words[1], &shape.w) && absl::SimpleAtoi(words[2], &shape.c) &&
      std::min({shape.h, shape.w, shape.c}) >= 1 &&
      std::max({shape.h, shape.w, shape.c}) <= kSideMax) {
    return shape;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--image: got \"", text, "\", expected HEIGHTxWIDTHxCHANNELS, each 1 to ", kSideMax));
}

class Steps {
 public:
  Steps(const ModelPlan& plan, const Options& options)
      : plan_(plan),
        batch_(options.batch),
        batches_(std::clamp<int64_t>(kBatchesBytesMax / (batch_ * plan_.input.count() * 4), 2,
                                     kBatchesMax)),
        in_place_(options.update == "device"),
        parameters_(static_cast<size_t>(plan_.parameter_count)),
        gradient_(in_place_ ? 0 : parameters_.size()),
        velocity_(gradient_.size()),
        statistics_(static_cast<size_t>(plan_.statistic_count)) {
    FillInitialValues(MakeTables(plan_)[0], 1, 0, absl::MakeSpan(parameters_));
    for (int64_t i = 0; i < batches_ * batch_ * plan_.input.count(); ++i) {
      images_.push_back(ToUnitFloat(PhiloxWord(1, static_cast<uint64_t>(i))));
    }
    for (int64_t i = 0; i < batches_ * batch_; ++i) {
      labels_.push_back(static_cast<int32_t>(PhiloxWord(2, static_cast<uint64_t>(i)) %
                                             static_cast<uint64_t>(plan_.classes)));
    }
    optimizer_.kind = server::OptimizerKind::kMomentum;
    optimizer_.learning_rate = 0.01f;
  }

  absl::Status Prepare(const Options& options) {
    v1::JobSpec job;
    job.mutable_resources()->set_threads(options.threads);
    // Under BSP, the default, a GPU takes the libraries' first plans.
    if (options.plans == "fastest") job.mutable_consistency()->mutable_asp();
    v1::Training::Compute compute = v1::Training::FP32;
    if (!v1::Training::Compute_Parse(options.compute, &compute)) {
      return absl::InvalidArgumentError("--compute: expected FP32, TF32, BF16 or FP16");
    }
    job.mutable_training()->set_compute(compute);
    CAPSTAN_ASSIGN_OR_RETURN(kernels::BackendGroup backends,
                             worker::MakeBackends(worker::DeviceChoiceOf(job, options.gpus)));
    backends_.emplace(std::move(backends));
    CAPSTAN_ASSIGN_OR_RETURN(network_, worker::Network::Create(plan_, *backends_, batch_));
    step_ =
        std::make_unique<worker::GradientStep>(plan_, *network_, worker::GradientStep::Options{});
    return in_place_ ? PrepareInPlace(compute) : absl::OkStatus();
  }

  absl::Status Step() {
    begun_ = Seconds(CLOCK_THREAD_CPUTIME_ID);
    CAPSTAN_ASSIGN_OR_RETURN(const worker::BatchResult result,
                             in_place_ ? StepInPlace() : StepOnHost());
    loss_ = result.loss_sum / static_cast<double>(batch_);
    ++count_;
    return absl::OkStatus();
  }

  double loss() const { return loss_; }
  double enqueueing() const { return enqueueing_; }  // Processor seconds, of all steps so far.

  // Checks that the timed steps are graphs. Errors: kInternal  some were not recorded as graphs.
  absl::Status CheckRecorded() const {
    const kernels::DeviceBackend* const device = (*backends_)[0].device();
    if (device == nullptr || device->captures_refused() == 0) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("steps were not recorded as graphs: ", device->last_refusal()));
  }

 private:
  absl::Status PrepareInPlace(v1::Training::Compute compute) {
    kernels::DeviceBackend* const device = (*backends_)[0].device();
    if (device == nullptr || backends_->size() != 1 || compute == v1::Training::FP16) {
      return absl::InvalidArgumentError(
          "--update=device: expected one GPU, and no FP16 (nothing scales the loss)");
    }
    gpu_ = static_cast<CudaBackend*>(device);  // MakeBackends opens no other kind.
    const int64_t bytes = plan_.parameter_count * static_cast<int64_t>(sizeof(float));
    CAPSTAN_ASSIGN_OR_RETURN(void* const velocity, gpu_->TryAllocate(bytes));
    velocity_there_ = kernels::BackendMemory(velocity, kernels::BackendDeleter{gpu_});
    return gpu_->Zero(velocity, bytes);
  }

  // The batch of a step, under a name of its own.
  worker::BatchView BatchOf(int64_t step) const {
    const auto index = static_cast<size_t>(step % batches_), n = static_cast<size_t>(batch_);
    const auto pixels = static_cast<size_t>(plan_.input.count());
    return {.images = absl::MakeConstSpan(images_).subspan(index * n * pixels, n * pixels),
            .labels = absl::MakeConstSpan(labels_).subspan(index * n, n),
            .name = static_cast<uint64_t>(step) + 1};
  }

  // The GPU has all of its work. What is wrong with the next batch is said when its turn comes.
  void Enqueued() {
    enqueueing_ += Seconds(CLOCK_THREAD_CPUTIME_ID) - begun_;
    network_->Stage(BatchOf(count_ + 1)).IgnoreError();
  }

  absl::StatusOr<worker::BatchResult> StepOnHost() {
    CAPSTAN_RETURN_IF_ERROR(
        step_->Forward({Epoch(0), {count_ * batch_, (count_ + 1) * batch_}, batch_},
                       BatchOf(count_), parameters_));
    CAPSTAN_ASSIGN_OR_RETURN(const worker::BatchResult result,
                             step_->Backward(absl::MakeSpan(gradient_), absl::MakeSpan(statistics_),
                                             nullptr, [this] { Enqueued(); }));
    float* const state[] = {velocity_.data()};
    server::Apply(optimizer_, count_, plan_.parameter_count, parameters_.data(), gradient_.data(),
                  state, parameters_.data());
    return result;
  }

  absl::StatusOr<worker::BatchResult> StepInPlace() {
    const auto update = [this](float* weights, const float* gradient) {
      return gpu_->Update({.rule = kernels::cuda::UpdateRule::kMomentum,
                           .scalars = server::MakeStepScalars(optimizer_, count_),
                           .n = plan_.parameter_count,
                           .weights = weights,
                           .gradient = gradient,
                           .s0 = static_cast<float*>(velocity_there_.get())});
    };
    return network_->TrainInPlace(BatchOf(count_), parameters_, static_cast<uint64_t>(count_),
                                  1.0f / static_cast<float>(batch_), absl::MakeSpan(statistics_),
                                  update, [this] { Enqueued(); });
  }

  const ModelPlan plan_;
  const int64_t batch_, batches_;
  const bool in_place_;
  std::optional<kernels::BackendGroup> backends_;
  CudaBackend* gpu_ = nullptr;             // If in_place_: the backend in backends_.
  kernels::BackendMemory velocity_there_;  // It is on the device, too.
  std::vector<float> parameters_, gradient_, velocity_, statistics_, images_;
  std::vector<int32_t> labels_;
  server::OptimizerConfig optimizer_;
  std::unique_ptr<worker::Network> network_;
  std::unique_ptr<worker::GradientStep> step_;
  int64_t count_ = 0;
  double loss_ = 0;
  double begun_ = 0;  // The step, on the thread's clock.
  double enqueueing_ = 0;
};

absl::Status Serve(const Options& options) {
  v1::Model model;
  model.set_zoo(options.zoo);
  CAPSTAN_ASSIGN_OR_RETURN(const SampleShape image, ShapeOf(options.image));
  CAPSTAN_ASSIGN_OR_RETURN(const ModelPlan plan, PlanModel(model, image, options.classes));
  if (options.parameters) {
    std::printf("%lld\n", static_cast<long long>(plan.parameter_count));
    return absl::OkStatus();
  }
  Steps steps(plan, options);
  CAPSTAN_RETURN_IF_ERROR(steps.Prepare(options));
  int64_t count = 0;
  while (std::cin >> count) {
    const double wall = Seconds(CLOCK_MONOTONIC), processor = Seconds(CLOCK_PROCESS_CPUTIME_ID);
    const double enqueueing = steps.enqueueing();
    for (int64_t i = 0; i < count; ++i) CAPSTAN_RETURN_IF_ERROR(steps.Step());
    std::printf("%.6f %.6f %.6f %.6f\n", Seconds(CLOCK_MONOTONIC) - wall,
                Seconds(CLOCK_PROCESS_CPUTIME_ID) - processor, steps.loss(),
                steps.enqueueing() - enqueueing);
    std::fflush(stdout);
  }
  return steps.CheckRecorded();
}

int Main(int argc, char** argv) {
  Options options;
  Program program(
      "Trains as many steps as each line of standard input says, and answers with the time.");
  program.AddOption("--zoo", options.zoo, "Model of the zoo");
  program.AddOption("--batch", options.batch, "Samples a step").Between(1, 65536);
  program.AddOption("--image", options.image, "Height, width and channels of an image");
  program.AddOption("--classes", options.classes, "Classes").Between(2, 65536);
  program
      .AddOption("--update", options.update, "Where parameters lie and are updated: host or device")
      .OneOf({"host", "device"});
  program.AddFlag("--parameters", options.parameters, "Prints how many the model has, and ends");
  program.AddOption("--threads", options.threads, "Threads an op may use").Between(1, 256);
  program.AddOption("--gpu", options.gpus, "Indices of the GPUs to compute on, with commas")
      .SeparatedBy(',')
      .Between(0, 63);
  program.AddOption("--compute", options.compute,
                    "What it computes with: FP32, TF32, BF16 or FP16");
  program
      .AddOption("--plans", options.plans, "A GPU's plans: those measured as fastest, or the first")
      .OneOf({"fastest", "first"});
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  const absl::Status status = Serve(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace capstan

int main(int argc, char** argv) { return capstan::Main(argc, argv); }
