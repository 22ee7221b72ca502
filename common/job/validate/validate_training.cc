#include "common/job/validate/validate_training.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/spec/objective.h"

namespace capstan {
namespace {

using Metric = v1::Training::Metric;

bool HasMetric(Objective objective, Metric metric) {
  const bool numbers = objective == Objective::kNumbers, labels = objective == Objective::kLabels;
  switch (metric) {
    case v1::Training::LOSS:
      return true;
    case v1::Training::ACCURACY:
      return HasAccuracy(objective);
    case v1::Training::AUC:
      return objective == Objective::kClicks || labels;
    case v1::Training::RMSE:
      return objective == Objective::kRatings || numbers;
    case v1::Training::MAE:
      return numbers;
    case v1::Training::F1:
      return labels;
    case v1::Training::TOP5_ACCURACY:
      return objective == Objective::kClasses;
    default:
      return false;
  }
}

// Returns the metrics of an objective, such as "LOSS or ACCURACY or AUC".
std::string MetricsOf(Objective objective) {
  std::string names = "LOSS";
  for (int i = v1::Training::Metric_MIN + 1; i <= v1::Training::Metric_MAX; ++i) {
    if (!v1::Training::Metric_IsValid(i) || !HasMetric(objective, static_cast<Metric>(i))) continue;
    absl::StrAppend(&names, " or ", v1::Training::Metric_Name(static_cast<Metric>(i)));
  }
  return names;
}

void ValidateMetric(const v1::JobSpec& spec, bool decides, FieldChecker check) {
  const Metric metric = spec.training().metric();
  if (metric == v1::Training::LOSS) return;
  const std::string name = v1::Training::Metric_IsValid(metric)
                               ? v1::Training::Metric_Name(metric)
                               : absl::StrCat(static_cast<int>(metric));
  if (!decides) {
    check.Wrong("metric", name,
                "nothing without early_stopping, keep_best or reduce_on_plateau, which decide by "
                "it");
    return;
  }
  if (spec.has_program()) {
    if (metric != v1::Training::ACCURACY) check.Wrong("metric", name, "LOSS or ACCURACY");
    return;
  }
  const Objective objective = ObjectiveOf(spec.model(), spec.data());
  if (HasMetric(objective, metric)) return;
  check.Wrong("metric", name,
              absl::StrCat(MetricsOf(objective), ", which the model's evaluation has"));
}

bool IsEvaluated(const v1::JobSpec& spec) {
  return spec.data().has_validation() || spec.data().has_test() ||
         spec.program().test_samples() > 0;
}

void ValidatePlateau(const v1::JobSpec& spec, FieldChecker check) {
  const v1::Training::ReduceOnPlateau& plateau = spec.training().reduce_on_plateau();
  check.Real("factor", plateau.factor(), OpenOpen(0, 1), Presence::kImplicit);
  check.IntegerAtLeast("patience", plateau.patience(), 1, Presence::kImplicit);
  check.Real("min_delta", plateau.min_delta(), AtLeast(0), Presence::kExplicit);
  if (plateau.has_minimum()) {
    check.Real("minimum", plateau.minimum(), OpenClosed(0, 1), Presence::kExplicit);
  }
  if (!spec.optimizer().has_ftrl()) return;
  check.Wrong("", "a value", "nothing with ftrl, whose state rests on the rate of each update");
}

}  // namespace

absl::string_view LossName(const v1::Model& model) {
  switch (model.loss().kind_case()) {
    case v1::Model::Loss::kSquared:
      return "squared";
    case v1::Model::Loss::kHuber:
      return "huber";
    case v1::Model::Loss::kQuantile:
      return "quantile";
    case v1::Model::Loss::kSigmoidCrossEntropy:
      return "sigmoid_cross_entropy";
    case v1::Model::Loss::kSoftmaxCrossEntropy:
    case v1::Model::Loss::KIND_NOT_SET:
      break;
  }
  return "softmax_cross_entropy";
}

void ValidateLossWeights(const v1::JobSpec& spec, FieldChecker check) {
  const v1::Training& training = spec.training();
  const Objective objective = ObjectiveOf(spec.model(), spec.data());
  const auto only = [&](const char* field, int count, Objective whose, const char* loss) {
    if (count == 0 || objective == whose) return;
    check.Wrong(field, absl::StrCat(count, count == 1 ? " weight" : " weights"),
                absl::StrCat("nothing: they are for the loss ", loss, ", and ",
                             spec.model().has_sparse()
                                 ? "model.sparse has another"
                                 : absl::StrCat("model.loss is ", LossName(spec.model()))));
  };
  only("class_weights", training.class_weights_size(), Objective::kClasses,
       "softmax_cross_entropy");
  only("positive_weights", training.positive_weights_size(), Objective::kLabels,
       "sigmoid_cross_entropy");
  for (int i = 0; i < training.class_weights_size(); ++i) {
    check.Real(absl::StrCat("class_weights[", i, "]"), training.class_weights(i), AtLeast(0),
               Presence::kExplicit);
  }
  for (int i = 0; i < training.positive_weights_size(); ++i) {
    check.Real(absl::StrCat("positive_weights[", i, "]"), training.positive_weights(i), Above(0),
               Presence::kExplicit);
  }
  const bool all_zero =
      training.class_weights_size() > 0 &&
      std::all_of(training.class_weights().begin(), training.class_weights().end(),
                  [](float weight) { return weight == 0; });
  if (all_zero) check.Wrong("class_weights", "zeros", "at least one above 0");
}

void ValidateDecisions(const v1::JobSpec& spec, FieldChecker check) {
  const v1::Training& training = spec.training();
  const char* decides = nullptr;
  if (training.has_reduce_on_plateau()) decides = "reduce_on_plateau";
  if (training.keep_best()) decides = "keep_best";
  if (training.has_early_stopping()) decides = "early_stopping";
  ValidateMetric(spec, decides != nullptr, check);
  if (decides != nullptr && !IsEvaluated(spec)) {
    check.Wrong(decides, "a value",
                spec.has_program()
                    ? "program.test_samples beside it: it decides by their figures"
                    : "data.validation (or data.test) beside it: it decides by the figures of "
                      "that split");
  }
  if (training.has_early_stopping()) {
    FieldChecker in = check.In("early_stopping");
    in.IntegerAtLeast("patience", training.early_stopping().patience(), 1, Presence::kImplicit);
    in.Real("min_delta", training.early_stopping().min_delta(), AtLeast(0), Presence::kExplicit);
  }
  if (training.has_reduce_on_plateau()) ValidatePlateau(spec, check.In("reduce_on_plateau"));
}

}  // namespace capstan
