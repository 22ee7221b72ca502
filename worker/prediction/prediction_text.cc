#include "worker/prediction/prediction_text.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/sparse_models/losses.h"

namespace capstan::worker {
namespace {

// The softmax of `width` logits; computed relative to the largest, so that none overflows.
void Softmax(const float* logits, size_t width, std::vector<double>* probabilities) {
  const double largest = *std::max_element(logits, logits + width);
  double sum = 0;
  probabilities->clear();
  for (size_t k = 0; k < width; ++k) {
    probabilities->push_back(std::exp(static_cast<double>(logits[k]) - largest));
    sum += probabilities->back();
  }
  for (double& probability : *probabilities) probability /= sum;
}

std::string NumberText(double value, bool json) {
  if (!std::isfinite(value) && json) return "null";
  return absl::StrFormat("%.7g", value);
}

}  // namespace

std::string PredictionText::Header() const {
  if (options_.form == Form::kJsonLines) return "";
  std::vector<std::string> names = {"index"};
  if (options_.kind == OutputKind::kLoss) return "index,loss\n";
  if (IsWide()) {
    for (int64_t k = 0; k < options_.width; ++k) {
      for (const std::string name : {"label", "predicted", "probability"}) {
        if (name == "probability" && options_.kind == OutputKind::kValues) continue;
        names.push_back(NameOf(name.c_str(), k));
      }
    }
    return absl::StrCat(absl::StrJoin(names, ","), "\n");
  }
  if (options_.labelled) names.push_back("label");
  names.push_back("predicted");
  if (options_.kind != OutputKind::kValue) names.push_back("probability");
  if (options_.kind == OutputKind::kLogits && options_.all_probabilities) {
    for (int64_t k = 0; k < options_.width; ++k) names.push_back(absl::StrCat("p", k));
  }
  return absl::StrCat(absl::StrJoin(names, ","), "\n");
}

void PredictionText::AddNumber(const char* name, double value, std::string* text) {
  const bool json = options_.form == Form::kJsonLines;
  if (!std::exchange(first_column_, false)) text->append(json ? ", " : ",");
  if (json) absl::StrAppend(text, "\"", name, "\": ");
  text->append(NumberText(value, json));
}

// The column's name for output k, numbered if there are several outputs.
std::string PredictionText::NameOf(const char* name, int64_t k) const {
  return options_.width == 1 ? name : absl::StrCat(name, k);
}

void PredictionText::AppendOutputs(const float* labels, const float* outputs, std::string* text) {
  const bool flags = options_.kind == OutputKind::kFlags;
  for (int64_t k = 0; k < options_.width; ++k) {
    AddNumber(NameOf("label", k).c_str(), labels[k], text);
    const double predicted = flags ? (outputs[k] > 0 ? 1 : 0) : outputs[k];
    AddNumber(NameOf("predicted", k).c_str(), predicted, text);
    if (flags) AddNumber(NameOf("probability", k).c_str(), Sigmoid(outputs[k]), text);
  }
}

void PredictionText::AppendSample(int64_t index, const float* labels, const float* outputs,
                                  std::string* text) {
  const bool json = options_.form == Form::kJsonLines;
  first_column_ = true;
  if (json) text->append("{\"index\": ");
  absl::StrAppend(text, index);  // An index has all of its digits.
  first_column_ = false;
  if (IsWide()) {
    AppendOutputs(labels, outputs, text);
  } else if (options_.kind == OutputKind::kLoss) {
    AddNumber("loss", outputs[0], text);
  } else if (options_.labelled) {
    AddNumber("label", labels[0], text);
  }
  if (options_.kind == OutputKind::kValue) AddNumber("predicted", outputs[0], text);
  if (options_.kind == OutputKind::kLogit) {
    AddNumber("predicted", outputs[0] > 0 ? 1 : 0, text);
    AddNumber("probability", Sigmoid(outputs[0]), text);
  }
  if (options_.kind == OutputKind::kLogits) {
    const auto width = static_cast<size_t>(options_.width);
    const auto best = static_cast<size_t>(std::max_element(outputs, outputs + width) - outputs);
    Softmax(outputs, width, &probabilities_);
    AddNumber("predicted", static_cast<double>(best), text);
    AddNumber("probability", probabilities_[best], text);
    if (options_.all_probabilities) {
      const auto number = [json](std::string* out, double value) {
        out->append(NumberText(value, json));
      };
      const std::string all = absl::StrJoin(probabilities_, json ? ", " : ",", number);
      absl::StrAppend(text, json ? ", \"probabilities\": [" : ",", all, json ? "]" : "");
    }
  }
  text->append(json ? "}\n" : "\n");
}

void PredictionText::Append(const Predictions& predictions, std::string* text) {
  const auto width = static_cast<size_t>(options_.width);
  const size_t labels = IsWide() ? width : 1;
  for (size_t i = 0; i * labels < predictions.labels.size(); ++i) {
    AppendSample(predictions.first + static_cast<int64_t>(i),
                 predictions.labels.data() + i * labels, predictions.outputs.data() + i * width,
                 text);
  }
}

std::string FiguresText(Objective objective, const EvaluationFigures& figures,
                        const NamedFigures& more, int64_t samples) {
  std::vector<std::string> parts;
  if (objective == Objective::kClicks || objective == Objective::kLabels) {
    parts.push_back(figures.auc.has_value() ? absl::StrFormat("AUC %.4f", *figures.auc) : "AUC -");
  }
  if (figures.rmse.has_value()) parts.push_back(absl::StrFormat("RMSE %.4f", *figures.rmse));
  if (figures.mae.has_value()) parts.push_back(absl::StrFormat("MAE %.4f", *figures.mae));
  if (figures.f1.has_value()) parts.push_back(absl::StrFormat("F1 %.4f", *figures.f1));
  if (figures.accuracy.has_value()) {
    parts.push_back(absl::StrFormat("accuracy %.2f %%", *figures.accuracy * 100));
  }
  parts.push_back(absl::StrFormat("loss %.4f", figures.loss));
  if (figures.top5_accuracy.has_value()) {
    parts.push_back(absl::StrFormat("top-5 accuracy %.4f", *figures.top5_accuracy));
  }
  for (const auto& [name, value] : more) parts.push_back(absl::StrFormat("%s %.4f", name, value));
  return absl::StrCat(absl::StrJoin(parts, ", "), " on ", samples,
                      samples == 1 ? " sample" : " samples");
}

std::string FiguresJson(const EvaluationFigures& figures, const NamedFigures& more,
                        int64_t samples) {
  std::string json = absl::StrCat("{\"samples\": ", samples);
  const auto add = [&json](const std::string& name, const std::optional<double>& value) {
    if (!value.has_value()) return;
    absl::StrAppend(&json, ", \"", name,
                    "\": ", std::isfinite(*value) ? absl::StrFormat("%.17g", *value) : "null");
  };
  add("loss", figures.loss);
  add("accuracy", figures.accuracy);
  add("auc", figures.auc);
  add("rmse", figures.rmse);
  add("mae", figures.mae);
  add("f1", figures.f1);
  add("top_5_accuracy", figures.top5_accuracy);
  for (const auto& [name, value] : more) {
    std::string key = absl::AsciiStrToLower(name);
    for (char& c : key) {
      if (!absl::ascii_isalnum(static_cast<unsigned char>(c))) c = '_';
    }
    add(key, value);
  }
  return json + "}\n";
}

}  // namespace capstan::worker
