#include "worker/prediction/more_figures.h"

#include <cmath>
#include <cstddef>

namespace capstan::worker {

void MoreFigures::Add(const Predictions& predictions) {
  if (objective_ != Objective::kClicks && objective_ != Objective::kRatings) return;
  samples_ += static_cast<int64_t>(predictions.labels.size());
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
    case Objective::kClicks:
      share("precision", hits_, predicted_);
      share("recall", hits_, clicks_);
      // F1 is the harmonic mean of precision and recall.
      share("F1", 2 * hits_, predicted_ + clicks_);
      break;
    case Objective::kRatings:
      if (samples_ > 0) figures.emplace_back("MAE", absolute_errors_ / double(samples_));
      break;
    case Objective::kClasses:
    case Objective::kNumbers:
    case Objective::kLabels:
    case Objective::kWords:
    case Objective::kUnlabeled:
      break;
  }
  return figures;
}

}  // namespace capstan::worker
