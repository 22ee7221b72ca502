#include "worker/training/trainer/gradient_step.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/random/philox.h"
#include "common/status/status_macros.h"
#include "common/wire/number_format.h"
#include "worker/training/step/gradient_norm.h"

namespace capstan::worker {
namespace {

// An error that names the first value that is not finite. REQUIRES: there is one.
absl::Status DivergedAt(const std::vector<PlannedTensor>& tensors, const char* what,
                        absl::Span<const float> values) {
  for (const PlannedTensor& tensor : tensors) {
    for (int64_t i = 0; i < tensor.count; ++i) {
      const float value = values[static_cast<size_t>(tensor.offset + i)];
      if (std::isfinite(value)) continue;
      const size_t dot = tensor.name.rfind('.');  // "<layer>.weight"; a layer's name may have dots.
      return absl::OutOfRangeError(
          absl::StrCat("diverged: layer \"", tensor.name.substr(0, dot), "\": the ", what, " ",
                       tensor.name.substr(dot + 1), " [", absl::StrJoin(tensor.shape, ","),
                       "] has ", value, " at element ", i, ", expected finite values"));
    }
  }
  return absl::InternalError(absl::StrCat("no ", what, " holds the value that is not finite"));
}

}  // namespace

GradientStep::GradientStep(const ModelPlan& plan, Network& network, const Options& options)
    : plan_(plan), network_(network), options_(options) {
  if (options.loss_scale.has_value()) loss_scale_.emplace(*options.loss_scale);
}

absl::Status GradientStep::Forward(const MicroBatch& micro_batch, const BatchView& batch,
                                   ParameterView parameters, const ParametersNeeded& needed) {
  const int64_t samples = micro_batch.positions.size();
  if (batch.n() != samples || micro_batch.gradient_samples < std::max<int64_t>(1, samples)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a batch of ", batch.n(), " samples for positions [", micro_batch.positions.begin, ", ",
        micro_batch.positions.end, ") of an update of ", micro_batch.gradient_samples,
        " samples, expected as many as positions and an update at least as large"));
  }
  micro_batch_ = micro_batch;
  if (samples == 0) return absl::OkStatus();
  const uint64_t epoch_key =
      MixKey(MixKey(options_.seed, 3), static_cast<uint64_t>(micro_batch.epoch.value()));
  const uint64_t dropout_key =
      MixKey(epoch_key, static_cast<uint64_t>(micro_batch.positions.begin));
  return network_.Forward(batch, parameters, dropout_key, needed);
}

absl::StatusOr<BatchResult> GradientStep::Backward(GradientView gradient,
                                                   absl::Span<float> statistics,
                                                   const GradientReady& ready,
                                                   const std::function<void()>& enqueued) {
  const int64_t samples = micro_batch_.positions.size();
  if (samples == 0) {
    std::fill(gradient.floats.begin(), gradient.floats.end(), 0.0f);
    std::fill(gradient.halves.begin(), gradient.halves.end(), uint16_t{0});
    std::fill(statistics.begin(), statistics.end(), 0.0f);
    return BatchResult{};
  }
  if (loss_scale_.has_value()) loss_scale_->Begin();
  BatchResult result;
  CAPSTAN_ASSIGN_OR_RETURN(double squares,
                           Compute(loss_scale(), gradient, statistics, ready, enqueued, &result));
  // If the loss is not finite no scale helps.
  while (loss_scale_.has_value() && !std::isfinite(squares) && std::isfinite(result.loss_sum) &&
         loss_scale_->Overflowed()) {
    CAPSTAN_RETURN_IF_ERROR(network_.Repeat());
    CAPSTAN_ASSIGN_OR_RETURN(squares,
                             Compute(loss_scale(), gradient, statistics, ready, nullptr, &result));
  }
  CAPSTAN_RETURN_IF_ERROR(CheckFinite(std::isfinite(squares), gradient, statistics, result));
  const double share =
      static_cast<double>(samples) / static_cast<double>(micro_batch_.gradient_samples);
  const float scale = loss_scale();
  Scale(ClipFactor(squares / scale / scale, options_.clip_norm * share) / scale, gradient.floats);
  if (loss_scale_.has_value()) loss_scale_->Good();
  if (samples != micro_batch_.gradient_samples) Scale(static_cast<float>(share), statistics);
  return result;
}

absl::StatusOr<double> GradientStep::Compute(float scale, GradientView gradient,
                                             absl::Span<float> statistics,
                                             const GradientReady& ready,
                                             const std::function<void()>& enqueued,
                                             BatchResult* result) {
  const bool in_parts = ready != nullptr && LeavesAsComputed(options_);
  const double factor = scale / static_cast<double>(micro_batch_.gradient_samples);
  CAPSTAN_ASSIGN_OR_RETURN(*result,
                           network_.Backward(static_cast<float>(factor), gradient, statistics,
                                             in_parts ? ready : GradientReady(), enqueued));
  if (!result->gradient_finite) return std::numeric_limits<double>::quiet_NaN();
  return in_parts ? 0.0 : SumOfSquares(gradient.floats);
}

absl::Status GradientStep::CheckFinite(bool gradient_is, GradientView gradient,
                                       absl::Span<const float> statistics,
                                       const BatchResult& result) const {
  if (!gradient_is) {
    std::vector<float> widened(gradient.halves.size());
    DecodeNumbers(network_.exchanges().gradients,
                  reinterpret_cast<const char*>(gradient.halves.data()), absl::MakeSpan(widened));
    return DivergedAt(plan_.parameters, "gradient of",
                      widened.empty() ? gradient.floats : absl::MakeSpan(widened));
  }
  if (!std::isfinite(SumOfSquares(statistics))) {
    return DivergedAt(plan_.statistics, "batch's", statistics);
  }
  if (std::isfinite(result.loss_sum)) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("diverged: the loss of a batch of ",
                                            micro_batch_.positions.size(), " is ", result.loss_sum,
                                            ", expected a finite value"));
}

}  // namespace capstan::worker
