// PredictionText: formats predictions as lines of CSV or JSON, and the figures of all as text.
//
// Columns (JSON: keys), by the kind of the outputs:
//   kLogits  index, label, predicted, probability (of the predicted class), and if asked for
//            p0, p1, ... (JSON: "probabilities": [...])
//   kLogit   index, label, predicted (1 or 0), probability (of a click)
//   kValue   index, label, predicted
//   kLoss    index, loss
//   kValues  index, label, predicted; numbered from 0 if there are several: label0, predicted0, ...
//   kFlags   index, label, predicted (1 or 0), probability; numbered in the same way
// Examples without labels have no label column. If probabilities are equal the first class is
// predicted, as in evaluation. Numbers have at most 7 digits; a number that is not finite is "nan"
// or "inf" in CSV and null in JSON.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_WORKER_PREDICTION_PREDICTION_TEXT_H_
#define CAPSTAN_WORKER_PREDICTION_PREDICTION_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/metrics/evaluation.h"
#include "worker/prediction/more_figures.h"
#include "worker/prediction/predictor.h"

namespace capstan::worker {

class PredictionText {
 public:
  enum class Form { kCsv, kJsonLines };
  struct Options {
    Form form = Form::kCsv;
    OutputKind kind = OutputKind::kLogits;
    int64_t width = 1;               // Outputs per sample.
    bool labelled = true;            // False: labels have no meaning, and are left out.
    bool all_probabilities = false;  // kLogits: write the probability of every class.
  };

  explicit PredictionText(const Options& options) : options_(options) {}

  std::string Header() const;  // CSV: a line with the names of the columns. JSON: empty.
  // Appends a line for each sample.
  void Append(const Predictions& predictions, std::string* text);

 private:
  bool IsWide() const {
    return options_.kind == OutputKind::kValues || options_.kind == OutputKind::kFlags;
  }
  std::string NameOf(const char* name, int64_t k) const;
  void AppendOutputs(const float* labels, const float* outputs, std::string* text);
  void AppendSample(int64_t index, const float* labels, const float* outputs, std::string* text);
  void AddNumber(const char* name, double value, std::string* text);

  const Options options_;
  bool first_column_ = true;           // The line has no column yet.
  std::vector<double> probabilities_;  // The probabilities of the current sample.
};

// Returns, for example, "accuracy 89.42 %, loss 0.3021, top-5 accuracy 0.9971 on 10000 samples". It
// begins with the objective's main figure, and ends with those that training does not report.
std::string FiguresText(Objective objective, const EvaluationFigures& figures,
                        const NamedFigures& more, int64_t samples);
// The figures as one JSON object on a line, without those that the objective does not have. Names
// of `more` are in small letters, with "_" for other characters: top_5_accuracy.
std::string FiguresJson(const EvaluationFigures& figures, const NamedFigures& more,
                        int64_t samples);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_PREDICTION_PREDICTION_TEXT_H_
