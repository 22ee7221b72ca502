#include "worker/prediction/prediction_job.h"

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/examples/sets/example_set.h"
#include "common/job/parse/job_file.h"
#include "common/job/validate/validate.h"
#include "common/status/status_macros.h"

namespace capstan::worker {
namespace {

absl::Status CountExamples(const v1::Data& data, v1::Split* split) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<int64_t> blocks, CountBlocks(data, *split));
  split->mutable_block_examples()->Assign(blocks.begin(), blocks.end());
  return absl::OkStatus();
}

// Other fields of a model's job may have written-out defaults that are not valid in a job file.
bool Matters(const std::string& field) {
  return absl::StartsWith(field, "data") || absl::StartsWith(field, "model") ||
         field == "resources.threads";
}

absl::Status NoSplit(const std::string& name, const PredictionData& data) {
  return absl::InvalidArgumentError(absl::StrCat(
      data.job_file.empty() ? name : data.job_file, ": data.", data.split,
      " is missing; name its files with --data=JOBFILE or --set data.", data.split,
      ".files=PATH, or take another split with --split=", data.split == "test" ? "train" : "test"));
}

}  // namespace

absl::StatusOr<v1::JobSpec> CheckedPredictionJob(const v1::JobSpec& model,
                                                 const std::string& model_name,
                                                 const PredictionData& data) {
  v1::JobSpec job = model;
  if (!data.job_file.empty()) {
    CAPSTAN_ASSIGN_OR_RETURN(const JobFile other, JobFile::Load(data.job_file));
    v1::Data other_data = other.spec().data();
    // Labels keep the numbers that the model has learnt, also if there are fewer folders.
    if (other_data.format() == v1::Data::IMAGE_FOLDER && other_data.class_names().empty()) {
      *other_data.mutable_class_names() = model.data().class_names();
    }
    *job.mutable_data() = std::move(other_data);
  }
  JobFile file = JobFile::OfSpec(model_name, std::move(job));
  for (const std::string& assignment : data.overrides) {
    CAPSTAN_RETURN_IF_ERROR(file.Set(assignment));
  }
  job = file.spec();
  v1::Data& all = *job.mutable_data();
  const bool there = data.split == "train"        ? all.has_train()
                     : data.split == "validation" ? all.has_validation()
                                                  : all.has_test();
  if (!there) return NoSplit(model_name, data);
  if (data.split == "train") *all.mutable_test() = all.train();
  if (data.split == "validation") *all.mutable_test() = all.validation();
  all.clear_validation();
  if (!all.has_train()) *all.mutable_train() = all.test();
  std::string lines;
  for (const Diagnostic& diagnostic : ValidateJob(job)) {
    if (!Matters(diagnostic.field)) continue;
    absl::StrAppend(&lines, lines.empty() ? "" : "\n", file.Render(diagnostic));
  }
  if (!lines.empty()) return absl::InvalidArgumentError(lines);
  if (!job.model().has_sparse()) return job;
  CAPSTAN_RETURN_IF_ERROR(CountExamples(all, all.mutable_test()));
  // Only this model needs the examples that it was trained on.
  if (job.model().sparse().has_skip_gram()) {
    CAPSTAN_RETURN_IF_ERROR(CountExamples(all, all.mutable_train()));
  }
  return job;
}

}  // namespace capstan::worker
