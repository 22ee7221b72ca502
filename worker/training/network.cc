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
#include "worker/training/program.h"

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
  // Equal steps share a plan: they run one after the other.
  absl::btree_map<kernels::OpDesc, std::unique_ptr<kernels::Plan>> plans;
  std::vector<kernels::Plan*> forward, backward;  // One a step.
  // One a backward step: once it has run, parameters and gradient are done with from this element
  // on.
  std::vector<int64_t> done_from;
};

// The highest element, plus one, of parameters or gradient that a step touches.
int64_t ParametersEnd(const Step& step) {
  int64_t end = 0;
  for (const std::vector<Operand>* operands : {&step.inputs, &step.outputs}) {
    for (const Operand& operand : *operands) {
      if (operand.place != Place::kParameters && operand.place != Place::kGradient) continue;
      const int64_t begin = operand.offset / static_cast<int64_t>(sizeof(float));
      end = std::max(end, begin + operand.count);
    }
  }
  return end;
}

std::vector<int64_t> DoneFrom(const std::vector<Step>& backward) {
  std::vector<int64_t> done(backward.size());
  int64_t end = 0;
  for (size_t i = backward.size(); i-- > 0;) {
    done[i] = end;
    end = std::max(end, ParametersEnd(backward[i]));
  }
  return done;
}

// First address of every Place.
using Bases = std::array<std::byte*, kPlaceCount>;

template <typename T>
std::byte* BaseOf(absl::Span<T> values) {
  // Operands are read or written as their op says; views know no const.
  return reinterpret_cast<std::byte*>(const_cast<std::remove_const_t<T>*>(values.data()));
}

TensorView Resolve(const Operand& operand, const Bases& bases) {
  std::byte* base = bases[static_cast<size_t>(operand.place)];
  return {base + operand.offset, operand.count, operand.dtype};
}

class NetworkImpl final : public Network {
 public:
  NetworkImpl(const ModelPlan& plan, kernels::Backend& backend, int64_t batch_size_max)
      : plan_(plan),
        backend_(backend),
        batch_size_max_(batch_size_max),
        arena_(nullptr, kernels::BackendDeleter{&backend}) {}

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
    CAPSTAN_ASSIGN_OR_RETURN(prepared->program, BuildProgram(plan_, n, kind));
    CAPSTAN_RETURN_IF_ERROR(ReserveArena(prepared->program.arena_bytes, n));
    CAPSTAN_RETURN_IF_ERROR(PrepareSteps(*prepared, prepared->program.forward, prepared->forward));
    CAPSTAN_RETURN_IF_ERROR(
        PrepareSteps(*prepared, prepared->program.backward, prepared->backward));
    prepared->done_from = DoneFrom(prepared->program.backward);
    if (programs_.size() == kProgramsMax) programs_.erase(programs_.begin());
    programs_.push_back(std::move(prepared));
    return programs_.back().get();
  }

  absl::StatusOr<BatchResult> Train(const BatchView& batch, absl::Span<const float> parameters,
                                    float gradient_scale, uint64_t dropout_key,
                                    absl::Span<float> gradient, absl::Span<float> batch_statistics,
                                    const GradientReady& ready) override {
    CAPSTAN_RETURN_IF_ERROR(CheckBatch(batch));
    CAPSTAN_RETURN_IF_ERROR(CheckCount("parameters", parameters.size(), plan_.parameter_count));
    CAPSTAN_RETURN_IF_ERROR(CheckCount("gradient", gradient.size(), plan_.parameter_count));
    CAPSTAN_RETURN_IF_ERROR(
        CheckCount("batch_statistics", batch_statistics.size(), plan_.statistic_count));
    CAPSTAN_ASSIGN_OR_RETURN(PreparedProgram * prepared,
                             Prepare(batch.n(), ProgramKind::kTraining));
    const Program& program = prepared->program;
    const Bases bases = MakeBases(batch, parameters, gradient, {});
    CAPSTAN_RETURN_IF_ERROR(Run(program.forward, prepared->forward, bases, 1.0f, dropout_key));
    const BatchResult result = ReadResult(program, batch, bases);
    for (const BatchMoments& moments : program.moments) {
      ReadMoments(moments, bases, batch_statistics);
    }
    CAPSTAN_RETURN_IF_ERROR(RunBackward(*prepared, bases, gradient_scale, dropout_key, ready));
    return result;
  }

  absl::StatusOr<BatchResult> Evaluate(const BatchView& batch, absl::Span<const float> parameters,
                                       absl::Span<const float> statistics) override {
    CAPSTAN_RETURN_IF_ERROR(CheckBatch(batch));
    CAPSTAN_RETURN_IF_ERROR(CheckCount("parameters", parameters.size(), plan_.parameter_count));
    CAPSTAN_RETURN_IF_ERROR(CheckCount("statistics", statistics.size(), plan_.statistic_count));
    CAPSTAN_ASSIGN_OR_RETURN(PreparedProgram * prepared,
                             Prepare(batch.n(), ProgramKind::kEvaluation));
    const Bases bases = MakeBases(batch, parameters, {}, statistics);
    CAPSTAN_RETURN_IF_ERROR(
        Run(prepared->program.forward, prepared->forward, bases, 1.0f, /*dropout_key=*/0));
    return ReadResult(prepared->program, batch, bases);
  }

 private:
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
  absl::Status ReserveArena(int64_t bytes, int64_t n) {
    if (bytes <= arena_bytes_) return absl::OkStatus();
    arena_.reset();
    arena_bytes_ = 0;
    arena_.reset(backend_.Allocate(bytes));
    if (arena_ == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory for the activations of a batch of ", n, ": they need ", bytes,
                       " bytes; take a smaller batch_size"));
    }
    arena_bytes_ = bytes;
    return absl::OkStatus();
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

  Bases MakeBases(const BatchView& batch, absl::Span<const float> parameters,
                  absl::Span<float> gradient, absl::Span<const float> statistics) const {
    Bases bases{};
    bases[static_cast<size_t>(Place::kArena)] = static_cast<std::byte*>(arena_.get());
    bases[static_cast<size_t>(Place::kImages)] = BaseOf(batch.images);
    bases[static_cast<size_t>(Place::kLabels)] = BaseOf(batch.labels);
    bases[static_cast<size_t>(Place::kParameters)] = BaseOf(parameters);
    bases[static_cast<size_t>(Place::kGradient)] = BaseOf(gradient);
    bases[static_cast<size_t>(Place::kStatistics)] = BaseOf(statistics);
    return bases;
  }

  absl::Status RunStep(const Step& step, kernels::Plan& plan, const Bases& bases, float scale,
                       uint64_t dropout_key) {
    std::array<TensorView, kOperandsMax> inputs, outputs;
    for (size_t k = 0; k < step.inputs.size(); ++k) inputs[k] = Resolve(step.inputs[k], bases);
    for (size_t k = 0; k < step.outputs.size(); ++k) outputs[k] = Resolve(step.outputs[k], bases);
    // Every dropout layer has masks of its own.
    const uint64_t key = MixKey(dropout_key, static_cast<uint64_t>(std::max(step.layer, 0)));
    const absl::Status status =
        backend_.Run(plan, absl::MakeConstSpan(inputs.data(), step.inputs.size()),
                     absl::MakeConstSpan(outputs.data(), step.outputs.size()), {key, scale});
    return status.ok() ? status : Annotate(status, LayerName(step.layer));
  }

  absl::Status Run(const std::vector<Step>& steps, const std::vector<kernels::Plan*>& plans,
                   const Bases& bases, float scale, uint64_t dropout_key) {
    for (size_t i = 0; i < steps.size(); ++i) {
      CAPSTAN_RETURN_IF_ERROR(RunStep(steps[i], *plans[i], bases, scale, dropout_key));
    }
    return backend_.Synchronize();
  }

  absl::Status RunBackward(const PreparedProgram& prepared, const Bases& bases, float scale,
                           uint64_t dropout_key, const GradientReady& ready) {
    int64_t told = plan_.parameter_count;
    for (size_t i = 0; i < prepared.backward.size(); ++i) {
      CAPSTAN_RETURN_IF_ERROR(
          RunStep(prepared.program.backward[i], *prepared.backward[i], bases, scale, dropout_key));
      if (ready == nullptr || prepared.done_from[i] >= told || prepared.done_from[i] == 0) continue;
      CAPSTAN_RETURN_IF_ERROR(backend_.Synchronize());
      told = prepared.done_from[i];
      ready(told);
    }
    return backend_.Synchronize();
  }

  BatchResult ReadResult(const Program& program, const BatchView& batch, const Bases& bases) const {
    BatchResult result;
    const float* loss = Resolve(program.loss, bases).f32();
    const float* logits = Resolve(program.logits, bases).f32();
    for (int64_t i = 0; i < batch.n(); ++i) {
      result.loss_sum += loss[i];
      const float* row = logits + i * plan_.classes;
      if (std::max_element(row, row + plan_.classes) - row == batch.labels[i]) ++result.correct;
    }
    return result;
  }

  static void ReadMoments(const BatchMoments& moments, const Bases& bases,
                          absl::Span<float> statistics) {
    const float* mean = Resolve(moments.mean, bases).f32();
    const float* variance = Resolve(moments.variance, bases).f32();
    for (int64_t c = 0; c < moments.mean.count; ++c) {
      statistics[moments.mean_offset + c] = mean[c];
      statistics[moments.variance_offset + c] = variance[c] * moments.unbiased_factor;
    }
  }

  const ModelPlan plan_;
  kernels::Backend& backend_;
  const int64_t batch_size_max_;
  kernels::BackendMemory arena_;  // Shared by all programs: one runs at a time.
  int64_t arena_bytes_ = 0;
  std::vector<std::unique_ptr<PreparedProgram>> programs_;  // The most recently used last.
};

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> Network::Create(const ModelPlan& plan,
                                                         kernels::Backend& backend,
                                                         int64_t batch_size_max) {
  if (batch_size_max < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch_size_max is ", batch_size_max, ", expected at least 1"));
  }
  return std::make_unique<NetworkImpl>(plan, backend, batch_size_max);
}

}  // namespace capstan::worker
