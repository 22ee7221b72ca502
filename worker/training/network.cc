#include "worker/training/network.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/random/philox.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "kernels/device_backend.h"
#include "kernels/graph_recorder.h"
#include "kernels/half_values.h"
#include "worker/training/program.h"
#include "worker/training/segments.h"
#include "worker/training/step_memory.h"
#include "worker/training/step_watch.h"

namespace capstan::worker {
namespace {

using kernels::TensorView;

// Programs kept: training and evaluation batches and the smaller ones at the end of the data.
constexpr size_t kProgramsMax = 8;

constexpr size_t kOperandsMax = 5;  // Of one side of any op.

// A program whose ops are prepared.
struct PreparedProgram {
  ProgramKind kind = ProgramKind::kTraining;
  Program program;
  Segments segments;
  // Equal steps share a plan: they run one after the other.
  absl::btree_map<kernels::OpDesc, std::unique_ptr<kernels::Plan>> plans;
  std::vector<kernels::Plan*> forward, backward;  // One a step.
  // One a segment; none where the backend is no device. What was recorded holds for one scale.
  std::vector<kernels::GraphRecorder> forward_graphs, backward_graphs;
  float scale = 1.0f;

  void ForgetGraphs() {
    for (kernels::GraphRecorder& graph : forward_graphs) graph.Reset();
    for (kernels::GraphRecorder& graph : backward_graphs) graph.Reset();
  }
};

// One pass of a prepared program.
struct Pass {
  const std::vector<Step>& steps;
  const std::vector<kernels::Plan*>& plans;
  std::vector<kernels::GraphRecorder>& graphs;
  StepObserver::Part part;
  float scale;
  uint64_t dropout_key;
};

std::vector<kernels::GraphRecorder> MakeRecorders(kernels::Backend& backend, size_t count) {
  std::vector<kernels::GraphRecorder> recorders;
  if (backend.device() == nullptr) return recorders;
  for (size_t i = 0; i < count; ++i) recorders.emplace_back(*backend.device());
  return recorders;
}

class NetworkImpl final : public Network {
 public:
  NetworkImpl(const ModelPlan& plan, kernels::Backend& backend, int64_t batch_size_max,
              StepObserver* observer)
      : plan_(plan),
        backend_(backend),
        batch_size_max_(batch_size_max),
        watch_(backend.device(), observer),
        memory_(StepMemory::Create(plan_, backend, batch_size_max, watch_)),
        moments_(static_cast<size_t>(plan.statistic_count)) {}

  ~NetworkImpl() override { GiveUpStep().IgnoreError(); }

  absl::Status Allocate() {
    const absl::Status status = memory_->Allocate();
    if (!absl::IsResourceExhausted(status)) return status;
    return NoMemory(batch_size_max_, ProgramKind::kTraining, 0);
  }

  absl::Status Forward(const BatchView& batch, absl::Span<const float> parameters,
                       uint64_t dropout_key, const ParametersNeeded& needed) override {
    CAPSTAN_RETURN_IF_ERROR(GiveUpStep());
    CAPSTAN_RETURN_IF_ERROR(CheckBatch(batch));
    CAPSTAN_RETURN_IF_ERROR(CheckCount("parameters", parameters.size(), plan_.parameter_count));
    CAPSTAN_ASSIGN_OR_RETURN(PreparedProgram * prepared,
                             Prepare(batch.n(), ProgramKind::kTraining));
    CAPSTAN_RETURN_IF_ERROR(watch_.BeginStep());
    under_way_ = true;
    CAPSTAN_RETURN_IF_ERROR(memory_->Begin({.batch = batch,
                                            .parameters = parameters,
                                            .statistics = {},
                                            .moments = absl::MakeSpan(moments_)}));
    CAPSTAN_RETURN_IF_ERROR(RunForward(*prepared, dropout_key, needed));
    begun_ = {prepared, batch, dropout_key};
    return absl::OkStatus();
  }

  absl::StatusOr<BatchResult> Backward(float gradient_scale, absl::Span<float> gradient,
                                       absl::Span<float> batch_statistics,
                                       const GradientReady& ready,
                                       const std::function<void()>& enqueued) override {
    const BegunStep step = std::exchange(begun_, {});
    if (step.prepared == nullptr) {
      return absl::FailedPreconditionError("a backward pass, and no forward pass before it");
    }
    CAPSTAN_RETURN_IF_ERROR(CheckCount("gradient", gradient.size(), plan_.parameter_count));
    CAPSTAN_RETURN_IF_ERROR(
        CheckCount("batch_statistics", batch_statistics.size(), plan_.statistic_count));
    memory_->BeginBackward({.gradient = gradient, .ready = ready, .enqueued = enqueued});
    CAPSTAN_RETURN_IF_ERROR(RunBackward(*step.prepared, gradient_scale, step.dropout_key));
    CAPSTAN_RETURN_IF_ERROR(End());
    // The steps read the biased variances, so they become unbiased only now.
    for (const BatchMoments& moments : step.prepared->program.moments) {
      MakeUnbiased(moments, absl::MakeSpan(moments_));
    }
    std::copy(moments_.begin(), moments_.end(), batch_statistics.begin());
    done_ = step;
    return ReadResult(step.batch);
  }

  absl::Status Repeat() override {
    const BegunStep step = std::exchange(done_, {});
    if (step.prepared == nullptr || backend_.device() == nullptr) {
      return absl::FailedPreconditionError("no step of a device to repeat");
    }
    CAPSTAN_RETURN_IF_ERROR(watch_.BeginStep());
    under_way_ = true;
    memory_->BeginAgain(absl::MakeSpan(moments_));
    CAPSTAN_RETURN_IF_ERROR(RunForward(*step.prepared, step.dropout_key, /*needed=*/nullptr));
    begun_ = step;
    return absl::OkStatus();
  }

  absl::StatusOr<BatchResult> Evaluate(const BatchView& batch, absl::Span<const float> parameters,
                                       absl::Span<const float> statistics) override {
    CAPSTAN_RETURN_IF_ERROR(GiveUpStep());
    CAPSTAN_RETURN_IF_ERROR(CheckBatch(batch));
    CAPSTAN_RETURN_IF_ERROR(CheckCount("parameters", parameters.size(), plan_.parameter_count));
    CAPSTAN_RETURN_IF_ERROR(CheckCount("statistics", statistics.size(), plan_.statistic_count));
    CAPSTAN_ASSIGN_OR_RETURN(PreparedProgram * prepared,
                             Prepare(batch.n(), ProgramKind::kEvaluation));
    under_way_ = true;
    CAPSTAN_RETURN_IF_ERROR(memory_->Begin(
        {.batch = batch, .parameters = parameters, .statistics = statistics, .moments = {}}));
    CAPSTAN_RETURN_IF_ERROR(RunForward(*prepared, /*dropout_key=*/0, /*needed=*/nullptr));
    memory_->BeginBackward({});  // There is none.
    CAPSTAN_RETURN_IF_ERROR(End());
    return ReadResult(batch);
  }

  absl::Status Stage(const BatchView& batch) override {
    CAPSTAN_RETURN_IF_ERROR(CheckBatch(batch));
    return memory_->Stage(batch);
  }

 private:
  // ------------------------------------------------------------- preparing

  // Prepares the program of `n` samples, or finds it.
  absl::StatusOr<PreparedProgram*> Prepare(int64_t n, ProgramKind kind) {
    for (size_t i = 0; i < programs_.size(); ++i) {
      if (programs_[i]->program.n != n || programs_[i]->kind != kind) continue;
      // The least recently used stands first.
      std::rotate(programs_.begin() + i, programs_.begin() + i + 1, programs_.end());
      return programs_.back().get();
    }
    auto prepared = std::make_unique<PreparedProgram>();
    prepared->kind = kind;
    CAPSTAN_ASSIGN_OR_RETURN(prepared->program,
                             BuildProgram(plan_, n, kind, backend_.TensorType()));
    const Program& program = prepared->program;
    CAPSTAN_RETURN_IF_ERROR(ReserveArena(program.arena_bytes, n, kind));
    CAPSTAN_RETURN_IF_ERROR(PrepareSteps(*prepared, program.forward, prepared->forward));
    CAPSTAN_RETURN_IF_ERROR(PrepareSteps(*prepared, program.backward, prepared->backward));
    prepared->segments = CutIntoSegments(program, plan_.parameter_count, memory_->part_elements());
    prepared->forward_graphs = MakeRecorders(backend_, prepared->segments.forward.size());
    prepared->backward_graphs = MakeRecorders(backend_, prepared->segments.backward.size());
    if (programs_.size() == kProgramsMax) programs_.erase(programs_.begin());
    programs_.push_back(std::move(prepared));
    return programs_.back().get();
  }

  absl::Status CheckCount(const char* what, size_t count, int64_t expected) const {
    if (static_cast<int64_t>(count) == expected) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has ", count, " elements, expected ", expected));
  }

  absl::Status CheckBatch(const BatchView& batch) const {
    if (batch.n() < 1 || batch.n() > batch_size_max_) {
      return absl::InvalidArgumentError(
          absl::StrCat("a batch of ", batch.n(), " samples, expected 1 to ", batch_size_max_));
    }
    return CheckCount("images", batch.images.size(), batch.n() * plan_.input.count());
  }

  // Makes the arena at least `bytes` large. Its contents are lost: no program is running.
  absl::Status ReserveArena(int64_t bytes, int64_t n, ProgramKind kind) {
    const absl::StatusOr<bool> moved = memory_->ReserveArena(bytes);
    if (absl::IsResourceExhausted(moved.status())) return NoMemory(n, kind, bytes);
    CAPSTAN_RETURN_IF_ERROR(moved.status());
    if (!*moved) return absl::OkStatus();
    for (const std::unique_ptr<PreparedProgram>& program : programs_) program->ForgetGraphs();
    return absl::OkStatus();
  }

  // Why a batch of n, whose arena has `bytes`, does not fit.
  absl::Status NoMemory(int64_t n, ProgramKind kind, int64_t bytes) {
    const int64_t fixed = memory_->FixedBytes(batch_size_max_);
    if (backend_.device() == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory for the activations of a batch of ", n, ": they need ", bytes,
                       " bytes; take a smaller batch_size"));
    }
    CAPSTAN_ASSIGN_OR_RETURN(const kernels::DeviceMemoryInfo info, backend_.device()->Memory());
    const int64_t held = bytes > 0 ? fixed : 0;
    CAPSTAN_ASSIGN_OR_RETURN(const int64_t largest, LargestBatch(n, kind, info.free_bytes + held));
    return absl::ResourceExhaustedError(absl::StrCat(
        "no memory on the device for a batch of ", n, ": parameters, gradient and batches need ",
        fixed, " bytes, activations ", bytes, ", free are ", info.free_bytes + held, " of ",
        info.total_bytes, "; the largest batch that fits is ", largest));
  }

  // The largest batch of up to `n` whose arrays and arena fit in `bytes`; 0: none.
  absl::StatusOr<int64_t> LargestBatch(int64_t n, ProgramKind kind, int64_t bytes) {
    int64_t fits = 0, too_large = n + 1;
    while (too_large - fits > 1) {
      const int64_t middle = fits + (too_large - fits) / 2;
      const absl::StatusOr<Program> program =
          BuildProgram(plan_, middle, kind, backend_.TensorType());
      if (!program.ok() && !absl::IsResourceExhausted(program.status())) return program.status();
      const bool fit = program.ok() && memory_->FixedBytes(middle) + program->arena_bytes <= bytes;
      (fit ? fits : too_large) = middle;
    }
    return fits;
  }

  std::string LayerName(int layer) const {
    return layer < 0 ? "loss" : absl::StrCat("layer \"", plan_.layers[layer].name, "\"");
  }

  absl::Status PrepareSteps(PreparedProgram& prepared, const std::vector<Step>& steps,
                            std::vector<kernels::Plan*>& plans) {
    for (const Step& step : steps) {
      std::unique_ptr<kernels::Plan>& plan = prepared.plans[step.desc];
      if (plan == nullptr) {
        absl::StatusOr<std::unique_ptr<kernels::Plan>> made = backend_.Prepare(step.desc);
        if (!made.ok()) return Annotate(made.status(), LayerName(step.layer));
        plan = std::move(made).value();
      }
      plans.push_back(plan.get());
    }
    return absl::OkStatus();
  }

  // ------------------------------------------------------------- running

  absl::Status RunForward(PreparedProgram& prepared, uint64_t dropout_key,
                          const ParametersNeeded& needed) {
    const Pass pass = {prepared.program.forward,
                       prepared.forward,
                       prepared.forward_graphs,
                       StepObserver::Part::kForward,
                       1.0f,
                       dropout_key};
    const std::vector<Segment>& segments = prepared.segments.forward;
    int64_t there = 0;
    for (size_t i = 0; i < segments.size(); ++i) {
      const int64_t end = segments[i].reads_end;
      if (needed != nullptr && end > there && !needed(end)) {
        return absl::CancelledError(absl::StrCat("parameters up to ", end, " will not come"));
      }
      there = end;
      CAPSTAN_RETURN_IF_ERROR(memory_->NeedParameters(end));
      CAPSTAN_RETURN_IF_ERROR(RunSegment(pass, i, segments[i]));
    }
    return memory_->ForwardDone(prepared.program.loss, prepared.program.logits);
  }

  absl::Status RunBackward(PreparedProgram& prepared, float scale, uint64_t dropout_key) {
    if (std::exchange(prepared.scale, scale) != scale) prepared.ForgetGraphs();
    const Pass pass = {prepared.program.backward,
                       prepared.backward,
                       prepared.backward_graphs,
                       StepObserver::Part::kBackward,
                       scale,
                       dropout_key};
    const std::vector<Segment>& segments = prepared.segments.backward;
    for (size_t i = 0; i < segments.size(); ++i) {
      CAPSTAN_RETURN_IF_ERROR(RunSegment(pass, i, segments[i]));
      CAPSTAN_RETURN_IF_ERROR(memory_->GradientDone(segments[i].done_from));
    }
    return absl::OkStatus();
  }

  // A device is watched by segments, the host by steps.
  absl::Status RunSegment(const Pass& pass, size_t index, const Segment& segment) {
    if (pass.graphs.empty()) {
      for (size_t i = segment.begin; i < segment.end; ++i) {
        CAPSTAN_RETURN_IF_ERROR(Watched(pass, i, i, [&] { return RunStep(pass, i); }));
      }
      return absl::OkStatus();
    }
    const auto run = [&]() -> absl::Status {
      for (size_t i = segment.begin; i < segment.end; ++i) {
        CAPSTAN_RETURN_IF_ERROR(RunStep(pass, i));
      }
      return absl::OkStatus();
    };
    return Watched(pass, segment.begin, segment.end - 1,
                   [&] { return pass.graphs[index].Run(run); });
  }

  // Runs steps `first` to `last` of a pass by `run`, as one span.
  template <typename Run>
  absl::Status Watched(const Pass& pass, size_t first, size_t last, const Run& run) {
    if (!watch_.watching()) return run();
    CAPSTAN_RETURN_IF_ERROR(watch_.Begin(kernels::Stream::kCompute, pass.part, [&] {
      const std::string from = LayerName(pass.steps[first].layer);
      return first == last ? absl::StrCat(from, " ", ToString(pass.steps[first].desc))
                           : absl::StrCat(from, " to ", LayerName(pass.steps[last].layer));
    }));
    CAPSTAN_RETURN_IF_ERROR(run());
    return watch_.End(kernels::Stream::kCompute);
  }

  absl::Status RunStep(const Pass& pass, size_t index) {
    const Step& step = pass.steps[index];
    std::array<TensorView, kOperandsMax> inputs, outputs;
    for (size_t k = 0; k < step.inputs.size(); ++k) inputs[k] = memory_->Resolve(step.inputs[k]);
    for (size_t k = 0; k < step.outputs.size(); ++k) outputs[k] = memory_->Resolve(step.outputs[k]);
    // Every dropout layer has masks of its own.
    const uint64_t key = MixKey(pass.dropout_key, static_cast<uint64_t>(std::max(step.layer, 0)));
    const absl::Status status =
        backend_.Run(*pass.plans[index], absl::MakeConstSpan(inputs.data(), step.inputs.size()),
                     absl::MakeConstSpan(outputs.data(), step.outputs.size()), {key, pass.scale});
    return status.ok() ? status : Annotate(status, LayerName(step.layer));
  }

  // Of a step that does not go on: what a device has of it uses plans and memory until it has run.
  absl::Status GiveUpStep() {
    begun_ = done_ = {};
    watch_.GiveUp();
    if (!std::exchange(under_way_, false)) return absl::OkStatus();
    return backend_.Synchronize();
  }

  absl::Status End() {
    CAPSTAN_RETURN_IF_ERROR(memory_->End());
    CAPSTAN_RETURN_IF_ERROR(backend_.Synchronize());
    under_way_ = false;
    return watch_.EndStep();
  }

  BatchResult ReadResult(const BatchView& batch) const {
    BatchResult result;
    for (int64_t i = 0; i < batch.n(); ++i) {
      result.loss_sum += memory_->loss()[i];
      if (Predicted(i) == batch.labels[static_cast<size_t>(i)]) ++result.correct;
    }
    return result;
  }

  // The first class with the largest logit of sample `i`.
  int64_t Predicted(int64_t i) const {
    const TensorView& logits = memory_->logits();
    int64_t best = 0;
    for (int64_t k = 1; k < plan_.classes; ++k) {
      if (kernels::ValueAt(logits, i * plan_.classes + k) >
          kernels::ValueAt(logits, i * plan_.classes + best)) {
        best = k;
      }
    }
    return best;
  }

  static void MakeUnbiased(const BatchMoments& moments, absl::Span<float> statistics) {
    const int64_t offset = moments.variance.offset / static_cast<int64_t>(sizeof(float));
    for (float& variance : statistics.subspan(static_cast<size_t>(offset),
                                              static_cast<size_t>(moments.variance.count))) {
      variance *= moments.unbiased_factor;
    }
  }

  // A step between its passes.
  struct BegunStep {
    PreparedProgram* prepared = nullptr;  // Null: there is none.
    BatchView batch;
    uint64_t dropout_key = 0;
  };

  const ModelPlan plan_;
  kernels::Backend& backend_;
  const int64_t batch_size_max_;
  StepWatch watch_;
  const std::unique_ptr<StepMemory> memory_;  // Shared by all programs: one runs at a time.
  std::vector<std::unique_ptr<PreparedProgram>> programs_;  // The most recently used last.
  bool under_way_ = false;                                  // A step has begun, and not ended.
  BegunStep begun_, done_;                                  // Of the last step; one at most is one.
  std::vector<float> moments_;                              // [statistic_count], of the step.
};

}  // namespace

absl::StatusOr<BatchResult> Network::Train(const BatchView& batch,
                                           absl::Span<const float> parameters, float gradient_scale,
                                           uint64_t dropout_key, absl::Span<float> gradient,
                                           absl::Span<float> batch_statistics,
                                           const GradientReady& ready,
                                           const std::function<void()>& enqueued) {
  CAPSTAN_RETURN_IF_ERROR(Forward(batch, parameters, dropout_key));
  return Backward(gradient_scale, gradient, batch_statistics, ready, enqueued);
}

absl::StatusOr<std::unique_ptr<Network>> Network::Create(const ModelPlan& plan,
                                                         kernels::Backend& backend,
                                                         int64_t batch_size_max,
                                                         StepObserver* observer) {
  if (batch_size_max < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch_size_max is ", batch_size_max, ", expected at least 1"));
  }
  auto network = std::make_unique<NetworkImpl>(plan, backend, batch_size_max, observer);
  CAPSTAN_RETURN_IF_ERROR(network->Allocate());
  return network;
}

}  // namespace capstan::worker
