#include "worker/training/network.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/random/philox.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "kernels/device_backend.h"
#include "kernels/op_check.h"
#include "kernels/tree_sum.h"
#include "worker/training/batch_parts.h"
#include "worker/training/output_sums.h"
#include "worker/training/step/replica.h"
#include "worker/training/step/step_exchange.h"
#include "worker/training/step/step_memory.h"

namespace capstan::worker {
namespace {

using Replicas = std::vector<std::unique_ptr<Replica>>;

std::vector<StepMemory*> MemoriesOf(const Replicas& replicas) {
  std::vector<StepMemory*> memories;
  for (const auto& replica : replicas) memories.push_back(&replica->memory());
  return memories;
}

// Drives one replica, or several at once: their enqueued work runs in parallel.
class NetworkImpl final : public Network {
 public:
  NetworkImpl(const ModelPlan& plan, const std::vector<kernels::Backend*>& backends,
              kernels::Collective* collective, int64_t batch_size_max, StepObserver* observer,
              const ExchangeFormats& formats)
      : plan_(plan),
        backends_(backends),
        batch_size_max_(batch_size_max),
        formats_(on_device() ? formats : ExchangeFormats()),
        replicas_(MakeReplicas(observer)),
        exchange_(MemoriesOf(replicas_), collective, plan.parameter_count) {}

  ~NetworkImpl() override { GiveUpStep().IgnoreError(); }

  absl::Status Allocate() {
    return ForEach([](Replica& replica, size_t) { return replica.Allocate(); });
  }

  ExchangeFormats exchanges() const override { return formats_; }

  absl::Status Forward(const BatchView& batch, ParameterView parameters, uint64_t dropout_key,
                       const ParametersNeeded& needed) override {
    CAPSTAN_RETURN_IF_ERROR(
        Begin(batch, parameters, {}, dropout_key, ProgramKind::kTraining, Parameters::kNew));
    CAPSTAN_RETURN_IF_ERROR(RunForward(needed));
    passed_ = Passed::kForward;
    return absl::OkStatus();
  }

  absl::StatusOr<BatchResult> Backward(float gradient_scale, GradientView gradient,
                                       absl::Span<float> batch_statistics,
                                       const GradientReady& ready,
                                       const std::function<void()>& enqueued) override {
    if (std::exchange(passed_, Passed::kNothing) != Passed::kForward) {
      return absl::FailedPreconditionError("a backward pass, and no forward pass before it");
    }
    CAPSTAN_RETURN_IF_ERROR(CheckCount(
        "gradient",
        formats_.gradients == NumberFormat::kFp32 ? gradient.floats.size() : gradient.halves.size(),
        plan_.parameter_count));
    CAPSTAN_RETURN_IF_ERROR(
        CheckCount("batch_statistics", batch_statistics.size(), plan_.statistic_count));
    // The first replica gives the gradient of all.
    const BackwardArrays all = {.gradient = gradient, .ready = ready, .enqueued = enqueued};
    CAPSTAN_RETURN_IF_ERROR(ForEach([&](Replica& replica, size_t i) {
      return replica.BeginBackward(gradient_scale, i == 0 ? all : BackwardArrays{});
    }));
    CAPSTAN_RETURN_IF_ERROR(RunBackward());
    CAPSTAN_RETURN_IF_ERROR(End());
    TakeMoments(batch_statistics);
    passed_ = Passed::kBackward;
    BatchResult result = ReadResult();
    result.gradient_finite = replicas_[0]->memory().gradient_finite();
    return result;
  }

  absl::Status Repeat() override {
    if (std::exchange(passed_, Passed::kNothing) != Passed::kBackward || !on_device()) {
      return absl::FailedPreconditionError("no step of a device to repeat");
    }
    under_way_ = true;
    exchange_.Begin(Parameters::kSame);
    CAPSTAN_RETURN_IF_ERROR(ForEach([](Replica& replica, size_t) { return replica.BeginAgain(); }));
    CAPSTAN_RETURN_IF_ERROR(RunForward(/*needed=*/nullptr));
    passed_ = Passed::kForward;
    return absl::OkStatus();
  }

  absl::StatusOr<BatchResult> Evaluate(const BatchView& batch, absl::Span<const float> parameters,
                                       absl::Span<const float> statistics,
                                       Parameters which) override {
    CAPSTAN_RETURN_IF_ERROR(CheckCount("statistics", statistics.size(), plan_.statistic_count));
    const bool kept = which == Parameters::kSame && passed_ == Passed::kEvaluation;
    CAPSTAN_RETURN_IF_ERROR(Begin(batch, parameters, statistics, /*dropout_key=*/0,
                                  ProgramKind::kEvaluation,
                                  kept ? Parameters::kSame : Parameters::kNew));
    CAPSTAN_RETURN_IF_ERROR(RunForward(/*needed=*/nullptr));
    for (const auto& replica : replicas_) replica->memory().BeginBackward({});  // It has no steps.
    CAPSTAN_RETURN_IF_ERROR(End());
    passed_ = Passed::kEvaluation;
    BatchResult result = ReadResult();
    std::vector<float> logits;
    AppendLogits(&logits);
    SumOutputs(plan_.loss, plan_.classes, logits, batch.labels, batch.targets, &result.outputs,
               &result.scores);
    return result;
  }

  void AppendLogits(std::vector<float>* logits) const override {
    for (const auto& replica : replicas_) replica->AppendLogits(logits);
  }

  absl::StatusOr<BatchResult> TrainInPlace(const BatchView& batch,
                                           absl::Span<const float> parameters, uint64_t dropout_key,
                                           float gradient_scale, absl::Span<float> batch_statistics,
                                           const UpdateInPlace& update,
                                           const std::function<void()>& enqueued) override {
    if (!on_device() || replicas_.size() != 1) {
      return absl::FailedPreconditionError("parameters stay on one device, and there is not one");
    }
    CAPSTAN_RETURN_IF_ERROR(
        CheckCount("batch_statistics", batch_statistics.size(), plan_.statistic_count));
    const Parameters which = passed_ == Passed::kInPlace ? Parameters::kSame : Parameters::kNew;
    CAPSTAN_RETURN_IF_ERROR(
        Begin(batch, parameters, {}, dropout_key, ProgramKind::kTraining, which, Cut::kNot));
    CAPSTAN_RETURN_IF_ERROR(RunForward(/*needed=*/nullptr));
    Replica& replica = *replicas_[0];
    CAPSTAN_RETURN_IF_ERROR(replica.BeginBackward(gradient_scale, {.enqueued = enqueued}));
    CAPSTAN_RETURN_IF_ERROR(
        replica.RunBackward(0, [&] { return replica.memory().UpdateParameters(update); }));
    CAPSTAN_RETURN_IF_ERROR(End());
    TakeMoments(batch_statistics);
    passed_ = Passed::kInPlace;
    return ReadResult();
  }

  absl::Status Stage(const BatchView& batch) override {
    CAPSTAN_RETURN_IF_ERROR(CheckBatch(batch));
    return ForEach([&](Replica& replica, size_t i) {
      const BatchPart part = Part(batch, i);
      return part.n() == 0 ? absl::OkStatus() : replica.memory().Stage(ViewOf(batch, part));
    });
  }

 private:
  Replicas MakeReplicas(StepObserver* observer) const {
    const auto members = static_cast<int64_t>(backends_.size());
    const int64_t part_max = PartOf(batch_size_max_, 0, members).n();
    Replicas replicas;
    for (kernels::Backend* const backend : backends_) {
      const bool first = replicas.empty();
      replicas.push_back(std::make_unique<Replica>(plan_, *backend, part_max,
                                                   first ? StepRole::kFirst : StepRole::kFollower,
                                                   formats_, first ? observer : nullptr));
    }
    return replicas;
  }

  bool on_device() const { return backends_[0]->device() != nullptr; }

  BatchPart Part(const BatchView& batch, size_t member) const {
    return PartOf(batch.n(), static_cast<int64_t>(member), static_cast<int64_t>(replicas_.size()));
  }

  // Calls call(replica, member) for each; if there are several, an error names its device.
  template <typename Call>
  absl::Status ForEach(const Call& call) {
    for (size_t i = 0; i < replicas_.size(); ++i) {
      const absl::Status status = call(*replicas_[i], i);
      if (!status.ok()) return Named(status, i);
    }
    return absl::OkStatus();
  }

  absl::Status Named(const absl::Status& status, size_t member) const {
    if (replicas_.size() == 1) return status;
    return Annotate(status, absl::StrCat(backends_[member]->device()->Label(), ", one of ",
                                         replicas_.size(), " that share each batch"));
  }

  absl::Status CheckCount(const char* what, size_t count, int64_t expected) const {
    if (static_cast<int64_t>(count) == expected) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has ", count, " elements, expected ", expected));
  }

  absl::Status CheckImages(const BatchView& batch) const {
    const int64_t values = batch.n() * plan_.input.count();
    if (batch.pixels.empty()) return CheckCount("images", batch.images.size(), values);
    if (!on_device()) {
      return absl::InvalidArgumentError("images as bytes, expected numbers: it is no device");
    }
    CAPSTAN_RETURN_IF_ERROR(CheckCount("pixels", batch.pixels.size(), values));
    return CheckCount("pixel values", batch.pixel_values.size(), 256 * plan_.input.c);
  }

  absl::Status CheckBatch(const BatchView& batch) const {
    if (batch.n() < 1 || batch.n() > batch_size_max_) {
      return absl::InvalidArgumentError(
          absl::StrCat("a batch of ", batch.n(), " samples, expected 1 to ", batch_size_max_));
    }
    CAPSTAN_RETURN_IF_ERROR(CheckImages(batch));
    if (!plan_.loss.of_classes()) {
      CAPSTAN_RETURN_IF_ERROR(
          CheckCount("targets", batch.targets.size(), batch.n() * plan_.classes));
    }
    // A device would report a bad label too late, after parts of the gradient; the host's ops do
    // not.
    return on_device() ? kernels::CheckLabels(batch.labels, plan_.classes) : absl::OkStatus();
  }

  // ------------------------------------------------------------- running

  absl::Status Begin(const BatchView& batch, ParameterView parameters,
                     absl::Span<const float> statistics, uint64_t dropout_key, ProgramKind kind,
                     Parameters which, Cut cut = Cut::kByParts) {
    CAPSTAN_RETURN_IF_ERROR(GiveUpStep());
    CAPSTAN_RETURN_IF_ERROR(CheckBatch(batch));
    const bool halves = formats_.parameters != NumberFormat::kFp32 && parameters.floats.empty();
    CAPSTAN_RETURN_IF_ERROR(CheckCount("parameters",
                                       halves ? parameters.halves.size() : parameters.floats.size(),
                                       plan_.parameter_count));
    // Prepares all of them before anything is enqueued, because Prepare waits for devices.
    CAPSTAN_RETURN_IF_ERROR(ForEach([&](Replica& replica, size_t i) {
      return replica.Prepare(Part(batch, i).n(), kind, cut);
    }));
    under_way_ = true;
    batch_ = batch;
    exchange_.Begin(which);
    return ForEach([&](Replica& replica, size_t i) {
      // Every device draws its own masks.
      const uint64_t key = i == 0 ? dropout_key : MixKey(dropout_key, i);
      return replica.Begin(ViewOf(batch, Part(batch, i)), parameters, statistics, key);
    });
  }

  // Calls run(replica) for each replica that has samples. All must have `count` segments.
  template <typename Run>
  absl::Status RunAll(size_t count, std::vector<Segment> Segments::*pass, const Run& run) {
    return ForEach([&](Replica& replica, size_t) -> absl::Status {
      if (replica.n() == 0) return absl::OkStatus();
      if ((replica.segments().*pass).size() != count) {
        return absl::InternalError("parts of one batch are cut into different segments");
      }
      return run(replica);
    });
  }

  absl::Status RunForward(const ParametersNeeded& needed) {
    const std::vector<Segment>& segments = replicas_[0]->segments().forward;
    int64_t there = 0;
    for (size_t i = 0; i < segments.size(); ++i) {
      const int64_t end = segments[i].reads_end;
      if (needed != nullptr && end > there && !needed(end)) {
        return absl::CancelledError(absl::StrCat("parameters up to ", end, " will not come"));
      }
      there = end;
      CAPSTAN_RETURN_IF_ERROR(exchange_.NeedParameters(end));
      CAPSTAN_RETURN_IF_ERROR(RunAll(segments.size(), &Segments::forward,
                                     [i](Replica& replica) { return replica.RunForward(i); }));
    }
    return ForEach([](Replica& replica, size_t) { return replica.ForwardDone(); });
  }

  absl::Status RunBackward() {
    const std::vector<Segment>& segments = replicas_[0]->segments().backward;
    for (size_t i = 0; i < segments.size(); ++i) {
      CAPSTAN_RETURN_IF_ERROR(RunAll(segments.size(), &Segments::backward,
                                     [i](Replica& replica) { return replica.RunBackward(i); }));
      CAPSTAN_RETURN_IF_ERROR(exchange_.GradientDone(segments[i].done_from));
    }
    return absl::OkStatus();
  }

  // Gives up a step: waits until a device does not use its plans and memory any more.
  absl::Status GiveUpStep() {
    passed_ = Passed::kNothing;
    if (!std::exchange(under_way_, false)) return absl::OkStatus();
    absl::Status first;  // All replicas, also those after one that has failed: they still run.
    for (size_t i = 0; i < replicas_.size(); ++i) {
      first.Update(Named(replicas_[i]->GiveUp(), i));
    }
    return first;
  }

  absl::Status End() {
    // The first replica's end includes the end of the reductions of all.
    CAPSTAN_RETURN_IF_ERROR(ForEach([](Replica& replica, size_t) { return replica.End(); }));
    under_way_ = false;
    return absl::OkStatus();
  }

  // ------------------------------------------------------------- results

  // Gives the mean over the samples: each replica's moments times its share, added up as servers
  // add up those of slots.
  void TakeMoments(absl::Span<float> statistics) const {
    if (replicas_.size() == 1) {
      const absl::Span<const float> moments = replicas_[0]->moments();
      std::copy(moments.begin(), moments.end(), statistics.begin());
      return;
    }
    std::vector<std::vector<float>> parts;
    for (const auto& replica : replicas_) {
      if (replica->n() == 0) break;  // The replicas after it have no samples either.
      const auto share =
          static_cast<float>(static_cast<double>(replica->n()) / static_cast<double>(batch_.n()));
      parts.emplace_back(replica->moments().begin(), replica->moments().end());
      for (float& value : parts.back()) value *= share;
    }
    kernels::TreeSum(parts);
    std::copy(parts[0].begin(), parts[0].end(), statistics.begin());
  }

  BatchResult ReadResult() const {
    BatchResult result;
    for (size_t i = 0; i < replicas_.size(); ++i) {
      const BatchPart part = Part(batch_, i);
      result.loss_sum += replicas_[i]->LossSum();
      if (!plan_.loss.of_classes()) continue;
      result.correct += replicas_[i]->Correct(
          batch_.labels.subspan(static_cast<size_t>(part.begin), static_cast<size_t>(part.n())));
    }
    return result;
  }

  // How far the last step has come.
  enum class Passed { kNothing, kForward, kBackward, kEvaluation, kInPlace };

  const ModelPlan plan_;
  const std::vector<kernels::Backend*> backends_;
  const int64_t batch_size_max_;
  const ExchangeFormats formats_;
  const Replicas replicas_;  // One per backend; the first exchanges parameters and gradient.
  StepExchange exchange_;
  bool under_way_ = false;  // A step has begun, and not ended.
  Passed passed_ = Passed::kNothing;
  BatchView batch_;  // The batch of the current step.
};

absl::StatusOr<std::unique_ptr<Network>> MakeNetwork(const ModelPlan& plan,
                                                     const std::vector<kernels::Backend*>& backends,
                                                     kernels::Collective* collective,
                                                     int64_t batch_size_max, StepObserver* observer,
                                                     const ExchangeFormats& formats) {
  if (batch_size_max < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch_size_max is ", batch_size_max, ", expected at least 1"));
  }
  const bool on_device = backends[0]->device() != nullptr;
  if (on_device && (!plan.loss.of_classes() || !plan.loss.weights.empty())) {
    return absl::UnimplementedError(
        "losses of numbers and weights of a loss are computed by CPUs only");
  }
  auto network =
      std::make_unique<NetworkImpl>(plan, backends, collective, batch_size_max, observer, formats);
  CAPSTAN_RETURN_IF_ERROR(network->Allocate());
  return network;
}

}  // namespace

absl::StatusOr<BatchResult> Network::Train(const BatchView& batch, ParameterView parameters,
                                           float gradient_scale, uint64_t dropout_key,
                                           GradientView gradient,
                                           absl::Span<float> batch_statistics,
                                           const GradientReady& ready,
                                           const std::function<void()>& enqueued) {
  CAPSTAN_RETURN_IF_ERROR(Forward(batch, parameters, dropout_key));
  return Backward(gradient_scale, gradient, batch_statistics, ready, enqueued);
}

absl::StatusOr<std::unique_ptr<Network>> Network::Create(const ModelPlan& plan,
                                                         kernels::Backend& backend,
                                                         int64_t batch_size_max,
                                                         StepObserver* observer,
                                                         const ExchangeFormats& formats) {
  return MakeNetwork(plan, {&backend}, /*collective=*/nullptr, batch_size_max, observer, formats);
}

absl::StatusOr<std::unique_ptr<Network>> Network::Create(const ModelPlan& plan,
                                                         const kernels::BackendGroup& group,
                                                         int64_t batch_size_max,
                                                         StepObserver* observer,
                                                         const ExchangeFormats& formats) {
  std::vector<kernels::Backend*> backends;
  for (size_t i = 0; i < group.size(); ++i) backends.push_back(&group[i]);
  return MakeNetwork(plan, backends, group.collective(), batch_size_max, observer, formats);
}

}  // namespace capstan::worker
