// Training steps on request: the worker's side of train_cpu.py, which times it against PyTorch.
//
//   train_steps --zoo=lenet --batch=64 --threads=1 [--gpu=0,1 --compute=BF16]
//
// Reads lines from standard input, each a number of steps; trains that many and answers with a
// line: wall seconds, processor seconds, mean loss of the last step. A step is what a worker and a
// server do for a micro-batch without the network between them: gradient, check for divergence,
// momentum SGD. The data is synthetic and in memory, as it is on PyTorch's side.
#include <time.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/model/initial_values.h"
#include "common/model/plan_model.h"
#include "common/model/tables.h"
#include "common/random/philox.h"
#include "common/status/status_macros.h"
#include "kernels/backend_group.h"
#include "proto/job.pb.h"
#include "server/optimizer/optimizer.h"
#include "worker/task/backend.h"
#include "worker/training/gradient_step.h"
#include "worker/training/network.h"

namespace capstan {
namespace {

constexpr int64_t kBatches = 16;  // In memory, taken in turn.
constexpr int64_t kClasses = 10;
constexpr SampleShape kImage{28, 28, 1};

struct Options {
  std::string zoo = "lenet";
  int64_t batch = 64;
  int threads = 1;
  std::vector<int> gpus;  // None: the CPU.
  std::string compute = "FP32";
};

double Seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

class Steps {
 public:
  Steps(const ModelPlan& plan, const Options& options)
      : plan_(plan),
        batch_(options.batch),
        parameters_(static_cast<size_t>(plan_.parameter_count)),
        gradient_(parameters_.size()),
        velocity_(parameters_.size()),
        statistics_(static_cast<size_t>(plan_.statistic_count)) {
    FillInitialValues(MakeTables(plan_)[0], 1, 0, absl::MakeSpan(parameters_));
    for (int64_t i = 0; i < kBatches * batch_ * kImage.count(); ++i) {
      images_.push_back(ToUnitFloat(PhiloxWord(1, static_cast<uint64_t>(i))));
    }
    for (int64_t i = 0; i < kBatches * batch_; ++i) {
      labels_.push_back(static_cast<int32_t>(PhiloxWord(2, static_cast<uint64_t>(i)) % kClasses));
    }
    optimizer_.kind = server::OptimizerKind::kMomentum;
    optimizer_.learning_rate = 0.01f;
  }

  absl::Status Prepare(const Options& options) {
    v1::JobSpec job;
    job.mutable_resources()->set_threads(options.threads);
    job.mutable_consistency()->mutable_asp();  // The fastest plans, not the same bits.
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
    return absl::OkStatus();
  }

  absl::Status Step() {
    const auto index = static_cast<size_t>(count_ % kBatches);
    const auto n = static_cast<size_t>(batch_), pixels = static_cast<size_t>(kImage.count());
    const worker::BatchView batch{
        absl::MakeConstSpan(images_).subspan(index * n * pixels, n * pixels),
        absl::MakeConstSpan(labels_).subspan(index * n, n)};
    CAPSTAN_RETURN_IF_ERROR(step_->Forward(
        {Epoch(0), {count_ * batch_, (count_ + 1) * batch_}, batch_}, batch, parameters_));
    CAPSTAN_ASSIGN_OR_RETURN(
        const worker::BatchResult result,
        step_->Backward(absl::MakeSpan(gradient_), absl::MakeSpan(statistics_)));
    float* const state[] = {velocity_.data()};
    server::Apply(optimizer_, count_, plan_.parameter_count, parameters_.data(), gradient_.data(),
                  state, parameters_.data());
    loss_ = result.loss_sum / static_cast<double>(batch_);
    ++count_;
    return absl::OkStatus();
  }

  double loss() const { return loss_; }

 private:
  const ModelPlan plan_;
  const int64_t batch_;
  std::optional<kernels::BackendGroup> backends_;
  std::vector<float> parameters_, gradient_, velocity_, statistics_, images_;
  std::vector<int32_t> labels_;
  server::OptimizerConfig optimizer_;
  std::unique_ptr<worker::Network> network_;
  std::unique_ptr<worker::GradientStep> step_;
  int64_t count_ = 0;
  double loss_ = 0;
};

absl::Status Serve(const Options& options) {
  v1::Model model;
  model.set_zoo(options.zoo);
  CAPSTAN_ASSIGN_OR_RETURN(const ModelPlan plan, PlanModel(model, kImage, kClasses));
  Steps steps(plan, options);
  CAPSTAN_RETURN_IF_ERROR(steps.Prepare(options));
  int64_t count = 0;
  while (std::cin >> count) {
    const double wall = Seconds(CLOCK_MONOTONIC), processor = Seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int64_t i = 0; i < count; ++i) CAPSTAN_RETURN_IF_ERROR(steps.Step());
    std::printf("%.6f %.6f %.6f\n", Seconds(CLOCK_MONOTONIC) - wall,
                Seconds(CLOCK_PROCESS_CPUTIME_ID) - processor, steps.loss());
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Trains as many steps as each line of standard input says, and answers with the time.");
  app.add_option("--zoo", options.zoo, "Model of the zoo");
  app.add_option("--batch", options.batch, "Samples a step")->check(CLI::Range(1, 65536));
  app.add_option("--threads", options.threads, "Threads an op may use")->check(CLI::Range(1, 256));
  app.add_option("--gpu", options.gpus, "Indices of the GPUs to compute on, with commas")
      ->delimiter(',')
      ->check(CLI::Range(0, 63));
  app.add_option("--compute", options.compute, "What it computes with: FP32, TF32, BF16 or FP16");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Serve(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace capstan

int main(int argc, char** argv) { return capstan::Main(argc, argv); }
