#include "common/job/check/check_job.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/data/dataset.h"
#include "common/job/check/asynchrony_advice.h"
#include "common/job/check/check_examples.h"
#include "common/job/fields/field_checker.h"
#include "common/job/spec/consistency_of.h"
#include "common/job/spec/optimizer_fields.h"
#include "common/job/spec/program_tables.h"
#include "common/job/validate/validate.h"
#include "common/metrics/evaluation.h"
#include "common/model/plan_model.h"
#include "common/model/tables.h"
#include "common/tensor/initial_weights.h"
#include "common/types/job_limits.h"
#include "common/types/shard_size.h"

namespace capstan {
namespace {

// Holds what the checks need of a split once its pixels are freed.
struct SplitFacts {
  SampleShape shape;
  int64_t count = 0;
  int64_t classes = 0;
  float label_min = 0, label_max = 0;
};

// Returns the field of `split` whose path begins `message`; the split itself if none does.
std::string FieldOfPath(const v1::Split& split, const std::string& field,
                        absl::string_view message) {
  const auto about = [&](const std::string& path) {
    return !path.empty() && absl::StartsWith(message, absl::StrCat(path, ":"));
  };
  if (about(split.images())) return absl::StrCat(field, ".images");
  if (about(split.labels())) return absl::StrCat(field, ".labels");
  for (int i = 0; i < split.files_size(); ++i) {
    if (about(split.files(i))) return absl::StrCat(field, ".files[", i, "]");
  }
  return field;
}

template <typename Label>
void TakeRange(const std::vector<Label>& labels, SplitFacts* facts) {
  if (labels.empty()) return;
  const auto [low, high] = std::minmax_element(labels.begin(), labels.end());
  facts->label_min = static_cast<float>(*low);
  facts->label_max = static_cast<float>(*high);
}

bool ReadSplit(const v1::Data& data, const v1::Split& split, const std::string& field,
               LabelKind labels, SplitFacts* facts, std::vector<Diagnostic>* diagnostics) {
  const absl::StatusOr<Dataset> dataset = LoadDataset(data, split, labels);
  if (!dataset.ok()) {
    const std::string message(dataset.status().message());
    diagnostics->push_back({FieldOfPath(split, field, message), "", "", message});
    return false;
  }
  facts->shape = dataset->shape;
  facts->count = dataset->count;
  facts->classes = dataset->classes;
  TakeRange(dataset->labels, facts);
  TakeRange(dataset->targets, facts);
  return true;
}

void WarnOf(const SplitFacts& facts, const std::string& field, JobCheck* result) {
  if (facts.count < 2 || facts.label_min < facts.label_max) return;
  result->warnings.push_back(
      absl::StrCat(field, ": all ", facts.count, " images have the label ", facts.label_min));
}

// Compares a split that is evaluated with the training split.
void CompareWithTrain(const SplitFacts& train, const SplitFacts& facts, const char* field,
                      LabelKind labels, FieldChecker check) {
  if (!(facts.shape == train.shape)) {
    check.Wrong(field, absl::StrCat("images of ", ToString(facts.shape)),
                absl::StrCat(ToString(train.shape), ", as in data.train"));
  }
  if (labels != LabelKind::kClasses && facts.classes != train.classes) {
    check.Wrong(absl::StrCat(field, ".labels"), absl::StrCat(facts.classes, " numbers an image"),
                absl::StrCat(train.classes, ", as in data.train"));
  }
}

// Checks that there is one weight for each of `outputs`, or none, and that there are enough outputs
// for TOP5_ACCURACY.
void CheckWeights(const v1::JobSpec& spec, int64_t outputs, FieldChecker check) {
  const auto count = [&](const char* field, int found, const char* of) {
    if (found == 0 || found == outputs) return;
    check.Wrong(field, absl::StrCat(found, found == 1 ? " weight" : " weights"),
                absl::StrCat(outputs, ", one for each ", of));
  };
  count("training.class_weights", spec.training().class_weights_size(), "class");
  count("training.positive_weights", spec.training().positive_weights_size(), "label");
  if (spec.training().metric() == v1::Training::TOP5_ACCURACY && outputs <= OutputSums::kTop) {
    check.Wrong("training.metric", "TOP5_ACCURACY",
                absl::StrCat("another, since the model tells only ", outputs, " classes apart"));
  }
}

void CompareSplits(const v1::JobSpec& spec, const SplitFacts& train, const SplitFacts& test,
                   const SplitFacts& validation, std::vector<Diagnostic>* diagnostics) {
  FieldChecker check("", diagnostics);
  const LabelKind kind = LabelsOf(spec.model());
  if (spec.data().has_test()) CompareWithTrain(train, test, "data.test", kind, check);
  if (spec.data().has_validation()) {
    CompareWithTrain(train, validation, "data.validation", kind, check);
  }
  const auto labels =
      static_cast<int64_t>(std::max({train.label_max, test.label_max, validation.label_max}) + 1);
  if (spec.model().has_classes() && spec.model().classes() < labels) {
    check.Wrong("model.classes", absl::StrCat(spec.model().classes()),
                absl::StrCat("at least ", labels, ", as the data has label ", labels - 1));
  }
  CheckWeights(spec, spec.model().has_classes() ? spec.model().classes() : train.classes, check);
  if (spec.training().batch_size() > train.count) {
    check.Wrong("training.batch_size", absl::StrCat(spec.training().batch_size()),
                absl::StrCat("at most ", train.count, ", the number of training images"));
  }
  const auto channels = [&](const char* field, int count) {
    if (count == 0 || count == train.shape.c) return;
    check.Wrong(
        absl::StrCat("data.augmentation.", field), absl::StrCat(count, " values"),
        absl::StrCat(train.shape.c, ", one a channel of images of ", ToString(train.shape)));
  };
  channels("mean", spec.data().augmentation().mean_size());
  channels("std", spec.data().augmentation().std_size());
  const int64_t side = std::min(train.shape.h, train.shape.w);
  if (spec.data().augmentation().crop_padding() > side) {
    check.Wrong("data.augmentation.crop_padding",
                absl::StrCat(spec.data().augmentation().crop_padding()),
                absl::StrCat("at most ", side, ", as images are ", ToString(train.shape)));
  }
}

void ReadWeights(const v1::Training& training, JobCheck* result) {
  if (training.initial_weights().empty()) return;
  const std::string field = "training.initial_weights";
  absl::StatusOr<InitialWeights> weights = ReadInitialWeights(
      training.initial_weights(), result->tables, SeedOf(training),
      training.initial_weights_partial() ? WeightsFit::kWhatFits : WeightsFit::kAll);
  if (!weights.ok()) {
    result->diagnostics.push_back({field, "", "", std::string(weights.status().message())});
    return;
  }
  result->initial_values = std::move(weights->tables);
  for (const std::string& left : weights->left) {
    result->warnings.push_back(absl::StrCat(field, ": ", left));
  }
}

// Returns the field of the job that an error of PlanModel is about: `layer "b": convolution.kernel
// is ...` is about model.layers[1].convolution.kernel.
std::string FieldOfPlanError(const v1::Model& model, absl::string_view message) {
  if (!model.zoo().empty()) return "model.zoo";
  absl::string_view rest = message;
  if (!absl::ConsumePrefix(&rest, "layer \"")) return "model";
  const absl::string_view name = rest.substr(0, rest.find('"'));
  for (int i = 0; i < model.layers_size(); ++i) {
    if (model.layers(i).name() != name) continue;
    rest.remove_prefix(name.size());
    if (!absl::ConsumePrefix(&rest, "\": ")) return absl::StrCat("model.layers[", i, "]");
    const absl::string_view word = rest.substr(0, rest.find(' '));
    const bool is_field = absl::StrContains(word, '.') || absl::StartsWith(word, "inputs");
    return absl::StrCat("model.layers[", i, "]", is_field ? "." : "", is_field ? word : "");
  }
  return "model";
}

// Checks the limit of tensors that no shard may cut.
void CheckTensorSizes(const v1::Optimizer& of_job, const std::vector<v1::TableSpec>& tables,
                      std::vector<Diagnostic>* diagnostics) {
  for (const v1::TableSpec& table : tables) {
    const v1::Optimizer& optimizer = OptimizerOf(table, of_job);
    if (table.rule() != v1::OPTIMIZER || !NeedsWholeTensors(OptimizerName(optimizer))) continue;
    for (const v1::TensorSpec& tensor : table.tensors()) {
      if (ElementCount(tensor) <= kWholeTensorElementsMax) continue;
      FieldChecker("optimizer", diagnostics)
          .Wrong(OptimizerName(optimizer),
                 absl::StrCat(tensor.name(), " of ", ElementCount(tensor), " elements"),
                 absl::StrCat("tensors of at most ", kWholeTensorElementsMax,
                              " elements, since their norms are taken on one server"));
    }
  }
}

// Checks a valid job whose model has layers.
JobCheck CheckLayers(const v1::JobSpec& spec) {
  JobCheck result;
  SplitFacts train, test, validation;
  const v1::Data& data = spec.data();
  const auto read = [&](const v1::Split& split, const char* field, SplitFacts* facts) {
    return ReadSplit(data, split, field, LabelsOf(spec.model()), facts, &result.diagnostics);
  };
  const bool train_read = read(data.train(), "data.train", &train);
  const bool test_read = !data.has_test() || read(data.test(), "data.test", &test);
  const bool validation_read =
      !data.has_validation() || read(data.validation(), "data.validation", &validation);
  if (!train_read || !test_read || !validation_read) return result;
  WarnOf(train, "data.train", &result);
  WarnOf(test, "data.test", &result);
  WarnOf(validation, "data.validation", &result);
  CompareSplits(spec, train, test, validation, &result.diagnostics);
  if (!result.diagnostics.empty()) return result;
  for (std::string& advice : AdviseOnAsynchrony(spec, train.count)) {
    result.warnings.push_back(std::move(advice));
  }
  if (data.format() == v1::Data::IMAGE_FOLDER) {
    absl::StatusOr<std::vector<std::string>> names = ClassNamesOf(data);  // Reading worked before.
    if (names.ok()) result.class_names = *std::move(names);
  }

  const int64_t classes = spec.model().has_classes() ? spec.model().classes() : train.classes;
  absl::StatusOr<ModelPlan> plan = PlanModel(spec.model(), train.shape, classes);
  if (!plan.ok()) {
    const std::string message(plan.status().message());
    result.diagnostics.push_back({FieldOfPlanError(spec.model(), message), "", "", message});
    return result;
  }
  result.plan = *std::move(plan);
  result.tables = MakeTables(result.plan);
  CheckTensorSizes(spec.optimizer(), result.tables, &result.diagnostics);
  if (!result.diagnostics.empty()) return result;
  result.train_count = train.count;
  result.test_count = test.count;
  result.validation_count = validation.count;
  result.train_blocks = {train.count};
  if (data.has_test()) result.test_blocks = {test.count};
  if (data.has_validation()) result.validation_blocks = {validation.count};
  ReadWeights(spec.training(), &result);
  return result;
}

// Checks a valid job of a program.
JobCheck CheckProgram(const v1::JobSpec& spec) {
  JobCheck result;
  const v1::Program& program = spec.program();
  const bool own_pace = program.own_pace();
  if (!own_pace && spec.training().batch_size() > program.samples()) {
    FieldChecker("training", &result.diagnostics)
        .Wrong("batch_size", absl::StrCat(spec.training().batch_size()),
               absl::StrCat("at most ", program.samples(), ", program.samples"));
  }
  result.tables = ProgramTables(program);
  CheckTensorSizes(spec.optimizer(), result.tables, &result.diagnostics);
  CheckRowTables(result.tables, "program.rows", &result.diagnostics);
  if (!result.diagnostics.empty()) return result;
  result.train_count = own_pace ? spec.resources().workers() : program.samples();  // A run each.
  result.test_count = program.test_samples();
  ReadWeights(spec.training(), &result);
  return result;
}

// Checks that the samples of all epochs together can be counted.
void CheckEpochs(const v1::JobSpec& spec, JobCheck* result) {
  const int64_t most = kSamplesMax / result->train_count;
  if (spec.training().epochs() <= most) return;
  FieldChecker("training", &result->diagnostics)
      .Wrong("epochs", absl::StrCat(spec.training().epochs()),
             absl::StrCat("1 to ", most, ", as an epoch has ", result->train_count, " samples"));
}

// With backups only whole iterations are trained (scheduler/core/plan/epoch_plan.h).
void CheckBackups(const v1::JobSpec& spec, JobCheck* result) {
  const ConsistencyRule rule = ConsistencyOf(spec);
  if (rule.backups == 0) return;
  const int workers = spec.resources().workers();
  const int slots_a_worker = (rule.slots + workers - 1) / workers;
  if (slots_a_worker > rule.backups) {
    result->warnings.push_back(absl::StrCat(
        "consistency.bsp.backups: ", rule.backups, " is less than the ", slots_a_worker,
        " slots of a worker, so that each iteration waits for every worker; as many workers as ",
        "slots would make each a slot"));
  }
  const int64_t iteration = int64_t{rule.slots} * spec.training().batch_size();
  if (result->train_count >= iteration) return;
  FieldChecker("consistency.bsp", &result->diagnostics)
      .Wrong("backups", absl::StrCat(rule.backups),
             absl::StrCat("0, since an epoch of ", result->train_count,
                          " samples has no whole iteration of ", rule.slots, " slots of ",
                          spec.training().batch_size()));
}

}  // namespace

JobCheck CheckJob(const v1::JobSpec& spec) {
  JobCheck result;
  result.diagnostics = ValidateJob(spec);
  if (!result.diagnostics.empty()) return result;
  result = spec.has_program()          ? CheckProgram(spec)
           : spec.model().has_sparse() ? CheckExamples(spec)
                                       : CheckLayers(spec);
  if (!result.diagnostics.empty()) return result;
  CheckEpochs(spec, &result);
  CheckBackups(spec, &result);
  return result;
}

}  // namespace capstan
