// PredictionText: predictions as lines of CSV or JSON, and the figures of all of them as text.
//
// Columns (JSON: keys), by what the outputs are:
//   kLogits  index, label, predicted, probability (of the predicted class), and if asked for
//            p0, p1, ... (JSON: "probabilities": [...])
//   kLogit   index, label, predicted (1 or 0), probability (of a click)
//   kValue   index, label, predicted
//   kLoss    index, loss
//   kValues  index, label, predicted; numbered from 0 if there are several: label0, predicted0, ...
//   kFlags   index, label, predicted (1 or 0), probability; numbered likewise
// Examples without labels have no label. Of equal probabilities the first class is predicted, as
// in evaluation. Numbers have 7 digits, at most; one that is not finite is "nan" or "inf" in CSV,
// null in JSON.
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
    int64_t width = 1;               // Outputs of a sample.
    bool labelled = true;            // Otherwise labels mean nothing, and are left out.
    bool all_probabilities = false;  // kLogits: of every class.
  };

  explicit PredictionText(const Options& options) : options_(options) {}

  std::string Header() const;  // CSV: the names of the columns, as a line. JSON: nothing.
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
  bool first_column_ = true;           // Of the line.
  std::vector<double> probabilities_;  // Of the sample.
};

// "accuracy 89.42 %, loss 0.3021, top-5 accuracy 0.9971 on 10000 samples": the figure that the
// model is judged by first, and what training does not report last.
std::string FiguresText(Objective objective, const EvaluationFigures& figures,
                        const NamedFigures& more, int64_t samples);
// As one JSON object on a line; what an objective does not have is left out. Names of `more` are in
// small letters, with "_" for other characters: top_5_accuracy.
std::string FiguresJson(const EvaluationFigures& figures, const NamedFigures& more,
                        int64_t samples);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_PREDICTION_PREDICTION_TEXT_H_
