#include "worker/prediction/prediction_command.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/command_line/command.h"
#include "common/job/spec/objective.h"
#include "common/net/node/daemon.h"
#include "common/observability/printable.h"
#include "common/status/status_macros.h"
#include "common/tensor/model_file.h"
#include "common/tensor/model_reader.h"
#include "common/tensor/safetensors/durable_file.h"
#include "worker/prediction/more_figures.h"
#include "worker/prediction/prediction_job.h"
#include "worker/prediction/prediction_text.h"
#include "worker/prediction/predictor.h"

namespace capstan::worker {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
// This is four batches of images. Examples and their rows take some megabytes.
constexpr int64_t kSamplesAtOnce = 1024;

struct Flags {
  std::string model;
  std::string split = "test";
  PredictionData data;
  std::string format = "csv";
  std::string to;
  bool probabilities = false;
  std::string output = "table";
};

void AddCommonFlags(Command program, Flags* flags) {
  program
      .AddOption("MODEL", flags->model,
                 "Folder of an exported model (model.json, model.safetensors)")
      .Required();
  program
      .AddOption("--split", flags->split, "Which data of the job file: test, validation or train")
      .OneOf({"test", "validation", "train"})
      .ShowDefault();
  program
      .AddOption("--data", flags->data.job_file,
                 "Job file whose data takes the place of what the model was trained with")
      .ValueName("JOBFILE");
  program
      .AddOption("--set", flags->data.overrides,
                 "Override a field of the model's job: FIELD=VALUE; may be repeated")
      .ValueName("FIELD=VALUE")
      .OneValueEach();
  program.AddOption("-o,--output", flags->output, "Form of the figures: table or json")
      .ValueName("FORM")
      .OneOf({"table", "json"})
      .LastCounts();
}

void AddPredictFlags(Command program, Flags* flags) {
  program.AddOption("--format", flags->format, "Form of the predictions: csv or jsonl")
      .OneOf({"csv", "jsonl"})
      .ShowDefault();
  program.AddOption("--to", flags->to, "File for the predictions; default: standard output")
      .ValueName("FILE");
  program.AddFlag("--probabilities", flags->probabilities,
                  "Of models of layers: the probability of every class");
}

// The destination of the lines: a file that appears whole or not at all, standard output, or none.
class Sink {
 public:
  enum class Where { kFile, kStandardOutput, kNowhere };

  static absl::StatusOr<Sink> Open(Where where, const std::string& path) {
    Sink sink(where);
    if (where == Where::kFile) {
      CAPSTAN_ASSIGN_OR_RETURN(sink.file_, DurableFile::Create(path));
    }
    return sink;
  }
  absl::Status Append(const std::string& text) {
    if (where_ == Where::kFile) return file_->Append(text);
    if (where_ == Where::kNowhere || text.empty()) return absl::OkStatus();
    if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size()) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, "standard output");
  }
  absl::Status Finish() {
    if (where_ == Where::kFile) return file_->Commit();
    if (std::fflush(stdout) == 0) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, "standard output");
  }

 private:
  explicit Sink(Where where) : where_(where) {}

  Where where_;
  std::unique_ptr<DurableFile> file_;
};

Sink::Where SinkOf(const Flags& flags, bool predict) {
  if (!predict) return Sink::Where::kNowhere;
  return flags.to.empty() ? Sink::Where::kStandardOutput : Sink::Where::kFile;
}

// Figures of `predict` go to standard error, because standard output may have the predictions.
void TellFigures(const Flags& flags, bool predict, Objective objective, const EvaluationSum& sum,
                 const ScoreCounts& scores, const MoreFigures& more) {
  const EvaluationFigures figures = FiguresOf(objective, sum, scores);
  std::string text =
      flags.output == "json"
          ? FiguresJson(figures, more.Figures(), sum.samples)
          : absl::StrCat(flags.split, ": ",
                         FiguresText(objective, figures, more.Figures(), sum.samples), "\n");
  std::fputs(text.c_str(), predict ? stderr : stdout);
}

absl::Status Run(const Flags& flags, bool predict) {
  CAPSTAN_ASSIGN_OR_RETURN(const ModelReader model, ModelReader::Open(flags.model));
  PredictionData data = flags.data;
  data.split = flags.split;
  CAPSTAN_ASSIGN_OR_RETURN(
      const v1::JobSpec job,
      CheckedPredictionJob(model.manifest().spec(),
                           absl::StrCat(flags.model, "/", kModelManifestFile), data));
  CAPSTAN_ASSIGN_OR_RETURN(const auto predictor, Predictor::Create(job, model));
  const Objective objective = ObjectiveOf(job.model(), job.data());
  PredictionText text({.form = flags.format == "csv" ? PredictionText::Form::kCsv
                                                     : PredictionText::Form::kJsonLines,
                       .kind = predictor->kind(),
                       .width = predictor->width(),
                       .labelled = objective != Objective::kUnlabeled,
                       .all_probabilities = flags.probabilities});
  CAPSTAN_ASSIGN_OR_RETURN(Sink sink, Sink::Open(SinkOf(flags, predict), flags.to));
  CAPSTAN_RETURN_IF_ERROR(sink.Append(text.Header()));
  EvaluationSum sum;
  ScoreCounts scores;
  MoreFigures more(objective);
  Predictions predictions;
  std::string lines;
  for (int64_t begin = 0; begin < predictor->count(); begin += kSamplesAtOnce) {
    const Range numbers = {begin, std::min(begin + kSamplesAtOnce, predictor->count())};
    CAPSTAN_RETURN_IF_ERROR(predictor->Predict(numbers, &predictions, &sum, &scores));
    more.Add(predictions);
    lines.clear();
    if (predict) text.Append(predictions, &lines);
    CAPSTAN_RETURN_IF_ERROR(sink.Append(lines));
  }
  CAPSTAN_RETURN_IF_ERROR(sink.Finish());
  TellFigures(flags, predict, objective, sum, scores, more);
  return absl::OkStatus();
}

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
      return kExitUsage;
    default:
      return kExitFailed;
  }
}

}  // namespace

bool IsPrediction(const std::string& name) { return name == "predict" || name == "evaluate"; }

int RunPrediction(int argc, const char* const* argv) {
  const bool predict = std::string(argv[0]) == "predict";
  Program program(
      predict ? "Predict with an exported model: a line for each sample"
              : "The loss, accuracy, AUC or RMSE of an exported model, as in training, and more",
      absl::StrCat("capstan ", argv[0]));
  Flags flags;
  AddCommonFlags(program, &flags);
  if (predict) AddPredictFlags(program, &flags);
  program.SetFooter(predict ? "Examples:\n"
                              "  capstan predict out/lenet > predictions.csv\n"
                              "  capstan predict out/lenet --format=jsonl --to=predictions.jsonl\n"
                              "  capstan predict out/clicks --set data.test.files=new.csv\n"
                              "The figures of all predictions go to standard error."
                            : "Examples:\n"
                              "  capstan evaluate out/lenet\n"
                              "  capstan evaluate out/lenet --split=train -o json\n"
                              "  capstan evaluate out/clicks --set data.test.files=new.csv");
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  const absl::Status status = Run(flags, predict);
  if (status.ok()) return 0;
  const std::string message =
      Printable({status.message().data(), status.message().size()}, Lines::kMany);
  std::fprintf(stderr, "capstan: %s\n", message.c_str());
  return ExitCodeOf(status);
}

}  // namespace capstan::worker
