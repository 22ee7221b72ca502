#include "worker/training/step/replica.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/random/philox.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/wire/number_format.h"
#include "kernels/device_backend.h"
#include "kernels/graph_recorder.h"
#include "kernels/op_check.h"
#include "worker/training/program/build_program.h"

namespace capstan::worker {
namespace {

using kernels::TensorView;

// The most programs kept: training and evaluation batches, and smaller ones at the end of the data.
constexpr size_t kProgramsMax = 8;

// The most inputs, or outputs, of any op.
constexpr size_t kOperandsMax = std::tuple_size_v<decltype(kernels::OpSignature::inputs)>;
static_assert(std::tuple_size_v<decltype(kernels::OpSignature::outputs)> <= kOperandsMax);

std::vector<kernels::GraphRecorder> MakeRecorders(kernels::Backend& backend, size_t count) {
  std::vector<kernels::GraphRecorder> recorders;
  if (backend.device() == nullptr) return recorders;
  for (size_t i = 0; i < count; ++i) recorders.emplace_back(*backend.device());
  return recorders;
}

// The first class with the largest logit.
int64_t Predicted(absl::Span<const float> logits) {
  size_t best = 0;
  for (size_t k = 1; k < logits.size(); ++k) {
    if (logits[k] > logits[best]) best = k;
  }
  return static_cast<int64_t>(best);
}

void Forget(std::vector<kernels::GraphRecorder>& recorders) {
  for (kernels::GraphRecorder& recorder : recorders) recorder.Reset();
}

}  // namespace

// A program whose ops are prepared.
struct Replica::PreparedProgram {
  ProgramKind kind = ProgramKind::kTraining;
  Cut cut = Cut::kByParts;
  Program program;
  Segments segments;
  // Equal steps share a plan, because they run one after the other.
  std::map<kernels::OpDesc, std::unique_ptr<kernels::Plan>> plans;
  std::vector<kernels::Plan*> forward, backward;  // One per step.
  // One per segment; none if the backend is no device. Backward graphs are recorded for `scale`.
  std::vector<kernels::GraphRecorder> forward_graphs, backward_graphs;
  float scale = 1.0f;
};

// One pass of a prepared program.
struct Replica::Pass {
  const std::vector<Step>& steps;
  const std::vector<kernels::Plan*>& plans;
  std::vector<kernels::GraphRecorder>& graphs;
  StepObserver::Part part;
  float scale;
  const std::function<absl::Status()>& then = nullptr;  // Runs after the steps of a segment.
};

Replica::Replica(const ModelPlan& plan, kernels::Backend& backend, int64_t batch_size_max,
                 StepRole role, const ExchangeFormats& formats, StepObserver* observer)
    : plan_(plan),
      backend_(backend),
      batch_size_max_(batch_size_max),
      watch_(backend.device(), observer),
      memory_(StepMemory::Create(plan_, backend, batch_size_max, role, formats, watch_)),
      moments_(static_cast<size_t>(plan.statistic_count)) {}

Replica::~Replica() = default;

// ---------------------------------------------------------------- preparing

absl::Status Replica::Allocate() {
  const absl::Status status = memory_->Allocate();
  if (!absl::IsResourceExhausted(status)) return status;
  return NoMemory(batch_size_max_, ProgramKind::kTraining, 0);
}

absl::Status Replica::Prepare(int64_t n, ProgramKind kind, Cut cut) {
  n_ = n;
  prepared_ = nullptr;
  if (n == 0) return absl::OkStatus();
  CAPSTAN_ASSIGN_OR_RETURN(prepared_, Find(n, kind, cut));
  return absl::OkStatus();
}

const Segments& Replica::segments() const { return prepared_->segments; }

// Finds the program of `n` samples, or prepares it.
absl::StatusOr<Replica::PreparedProgram*> Replica::Find(int64_t n, ProgramKind kind, Cut cut) {
  for (size_t i = 0; i < programs_.size(); ++i) {
    const PreparedProgram& found = *programs_[i];
    if (found.program.n != n || found.kind != kind || found.cut != cut) continue;
    // The least recently used one is first.
    std::rotate(programs_.begin() + i, programs_.begin() + i + 1, programs_.end());
    return programs_.back().get();
  }
  auto prepared = std::make_unique<PreparedProgram>();
  prepared->kind = kind;
  prepared->cut = cut;
  CAPSTAN_ASSIGN_OR_RETURN(prepared->program, BuildProgram(plan_, n, kind, backend_.TensorType()));
  const Program& program = prepared->program;
  CAPSTAN_RETURN_IF_ERROR(ReserveArena(program.arena_bytes, n, kind));
  CAPSTAN_RETURN_IF_ERROR(PrepareSteps(*prepared, program.forward, prepared->forward));
  CAPSTAN_RETURN_IF_ERROR(PrepareSteps(*prepared, program.backward, prepared->backward));
  const int64_t all = plan_.parameter_count;
  prepared->segments =
      CutIntoSegments(program, all, cut == Cut::kByParts ? memory_->part_elements() : all + 1);
  prepared->forward_graphs = MakeRecorders(backend_, prepared->segments.forward.size());
  prepared->backward_graphs = MakeRecorders(backend_, prepared->segments.backward.size());
  if (programs_.size() == kProgramsMax) programs_.erase(programs_.begin());
  programs_.push_back(std::move(prepared));
  return programs_.back().get();
}

// Makes the arena at least `bytes` large. Its contents are lost: no program is running.
absl::Status Replica::ReserveArena(int64_t bytes, int64_t n, ProgramKind kind) {
  const absl::StatusOr<bool> moved = memory_->ReserveArena(bytes);
  if (absl::IsResourceExhausted(moved.status())) return NoMemory(n, kind, bytes);
  CAPSTAN_RETURN_IF_ERROR(moved.status());
  if (!*moved) return absl::OkStatus();
  for (const std::unique_ptr<PreparedProgram>& program : programs_) {
    Forget(program->forward_graphs);
    Forget(program->backward_graphs);
  }
  return absl::OkStatus();
}

// An error that says why a batch of n, whose arena has `bytes`, does not fit.
absl::Status Replica::NoMemory(int64_t n, ProgramKind kind, int64_t bytes) {
  const int64_t fixed = memory_->FixedBytes(batch_size_max_);
  if (backend_.device() == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for the activations of a batch of ",
                                                     n, ": they need ", bytes,
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
absl::StatusOr<int64_t> Replica::LargestBatch(int64_t n, ProgramKind kind, int64_t bytes) {
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

std::string Replica::LayerName(int layer) const {
  return layer < 0 ? "loss" : absl::StrCat("layer \"", plan_.layers[layer].name, "\"");
}

absl::Status Replica::PrepareSteps(PreparedProgram& prepared, const std::vector<Step>& steps,
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

// ---------------------------------------------------------------- running

absl::Status Replica::Begin(const BatchView& batch, ParameterView parameters,
                            absl::Span<const float> statistics, uint64_t dropout_key) {
  if (prepared_ == nullptr) return absl::OkStatus();
  keys_.clear();
  for (const int layer : prepared_->program.masked_layers) {  // Each draws its own mask.
    const auto words = WordsOfKey(MixKey(dropout_key, static_cast<uint64_t>(layer)));
    keys_.insert(keys_.end(), words.begin(), words.end());
  }
  const bool training = prepared_->kind == ProgramKind::kTraining;
  if (training) CAPSTAN_RETURN_IF_ERROR(watch_.BeginStep());
  return memory_->Begin({.batch = batch,
                         .parameters = parameters,
                         .statistics = statistics,
                         .moments = training ? absl::MakeSpan(moments_) : absl::Span<float>(),
                         .keys = keys_});
}

absl::Status Replica::BeginAgain() {
  if (prepared_ == nullptr) return absl::OkStatus();
  CAPSTAN_RETURN_IF_ERROR(watch_.BeginStep());
  memory_->BeginAgain(absl::MakeSpan(moments_));
  return absl::OkStatus();
}

absl::Status Replica::RunForward(size_t segment) {
  const Pass pass = {prepared_->program.forward, prepared_->forward, prepared_->forward_graphs,
                     StepObserver::Part::kForward, 1.0f};
  return RunSegment(pass, segment, prepared_->segments.forward[segment]);
}

absl::Status Replica::ForwardDone() {
  if (prepared_ == nullptr) return absl::OkStatus();
  return memory_->ForwardDone(prepared_->program.loss, prepared_->program.logits);
}

absl::Status Replica::BeginBackward(float gradient_scale, const BackwardArrays& arrays) {
  memory_->BeginBackward(arrays);
  scale_ = gradient_scale;
  if (prepared_ == nullptr) {
    return backend_.device()->Zero(memory_->base(Place::kGradient),
                                   plan_.parameter_count * static_cast<int64_t>(sizeof(float)));
  }
  if (std::exchange(prepared_->scale, scale_) != scale_) Forget(prepared_->backward_graphs);
  return absl::OkStatus();
}

absl::Status Replica::RunBackward(size_t segment, const std::function<absl::Status()>& then) {
  const Pass pass = {prepared_->program.backward,
                     prepared_->backward,
                     prepared_->backward_graphs,
                     StepObserver::Part::kBackward,
                     scale_,
                     then};
  return RunSegment(pass, segment, prepared_->segments.backward[segment]);
}

// On a device a span is a segment; on the host it is a step.
absl::Status Replica::RunSegment(const Pass& pass, size_t index, const Segment& segment) {
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
    return pass.then == nullptr ? absl::OkStatus() : pass.then();
  };
  return Watched(pass, segment.begin, segment.end - 1, [&] { return pass.graphs[index].Run(run); });
}

// Calls `run`, which runs steps `first` to `last` of a pass, as one span.
template <typename Run>
absl::Status Replica::Watched(const Pass& pass, size_t first, size_t last, const Run& run) {
  if (!watch_.watching()) return run();
  CAPSTAN_RETURN_IF_ERROR(watch_.Begin(kernels::Stream::kCompute, pass.part, [&] {
    const std::string from = LayerName(pass.steps[first].layer);
    return first == last ? absl::StrCat(from, " ", ToString(pass.steps[first].desc))
                         : absl::StrCat(from, " to ", LayerName(pass.steps[last].layer));
  }));
  CAPSTAN_RETURN_IF_ERROR(run());
  return watch_.End(kernels::Stream::kCompute);
}

absl::Status Replica::RunStep(const Pass& pass, size_t index) {
  const Step& step = pass.steps[index];
  std::array<TensorView, kOperandsMax> inputs, outputs;
  for (size_t k = 0; k < step.inputs.size(); ++k) inputs[k] = memory_->Resolve(step.inputs[k]);
  for (size_t k = 0; k < step.outputs.size(); ++k) outputs[k] = memory_->Resolve(step.outputs[k]);
  const absl::Status status =
      backend_.Run(*pass.plans[index], absl::MakeConstSpan(inputs.data(), step.inputs.size()),
                   absl::MakeConstSpan(outputs.data(), step.outputs.size()), {pass.scale});
  return status.ok() ? status : Annotate(status, LayerName(step.layer));
}

absl::Status Replica::End() {
  if (prepared_ != nullptr) CAPSTAN_RETURN_IF_ERROR(memory_->End());
  CAPSTAN_RETURN_IF_ERROR(backend_.Synchronize());
  CAPSTAN_RETURN_IF_ERROR(watch_.EndStep());
  if (prepared_ == nullptr) return absl::OkStatus();
  // The steps read the biased variances, so they become unbiased only now.
  for (const BatchMoments& moments : prepared_->program.moments) MakeUnbiased(moments);
  return absl::OkStatus();
}

absl::Status Replica::GiveUp() {
  watch_.GiveUp();
  return backend_.Synchronize();
}

// ---------------------------------------------------------------- results

double Replica::LossSum() const {
  double sum = 0;
  for (int64_t i = 0; i < n_; ++i) sum += memory_->loss()[i];
  return sum;
}

int64_t Replica::Correct(absl::Span<const int32_t> labels) const {
  int64_t correct = 0;
  for (int64_t i = 0; i < n_; ++i) {
    if (Predicted(LogitsOf(i)) == labels[static_cast<size_t>(i)]) ++correct;
  }
  return correct;
}

void Replica::AppendLogits(std::vector<float>* logits) const {
  for (int64_t i = 0; i < n_; ++i) {
    const absl::Span<const float> one = LogitsOf(i);
    logits->insert(logits->end(), one.begin(), one.end());
  }
}

absl::Span<const float> Replica::LogitsOf(int64_t i) const {
  const TensorView& logits = memory_->logits();
  const auto classes = static_cast<size_t>(plan_.classes);
  const int64_t first = i * plan_.classes;
  if (!kernels::IsHalf(logits.dtype)) return {logits.f32() + first, classes};
  widened_.resize(classes);
  const NumberFormat format =
      logits.dtype == kernels::DataType::kBfloat16 ? NumberFormat::kBf16 : NumberFormat::kFp16;
  const auto* const halves = static_cast<const uint16_t*>(logits.data) + first;
  DecodeNumbers(format, reinterpret_cast<const char*>(halves), absl::MakeSpan(widened_));
  return widened_;
}

void Replica::MakeUnbiased(const BatchMoments& moments) {
  const int64_t offset = moments.variance.offset / static_cast<int64_t>(sizeof(float));
  for (float& variance : absl::MakeSpan(moments_).subspan(
           static_cast<size_t>(offset), static_cast<size_t>(moments.variance.count))) {
    variance *= moments.unbiased_factor;
  }
}

}  // namespace capstan::worker
