#include "worker/prediction/more_figures.h"

#include <cmath>
#include <cstddef>

namespace capstan::worker {
namespace {

constexpr int64_t kTop = 5;

}  // namespace

void MoreFigures::AddClasses(const Predictions& predictions, int64_t width) {
  const auto classes = static_cast<size_t>(width);
  for (size_t i = 0; i < predictions.labels.size(); ++i) {
    const float* const logits = predictions.outputs.data() + i * classes;
    const auto label = static_cast<size_t>(predictions.labels[i]);
    int64_t before = 0;  // Classes that stand before it.
    for (size_t k = 0; k < classes; ++k) {
      before += logits[k] > logits[label] || (logits[k] == logits[label] && k < label);
    }
    // A NaN stands before nothing and behind nothing: it is no prediction.
    if (before < kTop && !std::isnan(logits[label])) ++among_five_;
  }
}

void MoreFigures::Add(const Predictions& predictions, int64_t width) {
  samples_ += static_cast<int64_t>(predictions.labels.size());
  width_ = width;
  if (objective_ == Objective::kClasses) return AddClasses(predictions, width);
  for (size_t i = 0; i < predictions.labels.size(); ++i) {
    const float output = predictions.outputs[i], label = predictions.labels[i];
    predicted_ += output > 0;
    clicks_ += label > 0;
    hits_ += output > 0 && label > 0;
    absolute_errors_ += std::abs(double{output} - double{label});
  }
}

NamedFigures MoreFigures::Figures() const {
  NamedFigures figures;
  const auto share = [&figures](const char* name, int64_t part, int64_t of) {
    if (of > 0) figures.emplace_back(name, static_cast<double>(part) / static_cast<double>(of));
  };
  switch (objective_) {
    case Objective::kClasses:
      if (width_ > kTop) share("top-5 accuracy", among_five_, samples_);
      break;
    case Objective::kClicks:
      share("precision", hits_, predicted_);
      share("recall", hits_, clicks_);
      // The harmonic mean of both.
      share("F1", 2 * hits_, predicted_ + clicks_);
      break;
    case Objective::kRatings:
      if (samples_ > 0) figures.emplace_back("MAE", absolute_errors_ / double(samples_));
      break;
    case Objective::kWords:
    case Objective::kUnlabeled:
      break;
  }
  return figures;
}

}  // namespace capstan::worker
