#include "scheduler/output/job_output.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status/status_macros.h"
#include "common/storage/files/regular_file.h"
#include "common/storage/files/replace_file.h"

namespace capstan::scheduler {
namespace {

constexpr int64_t kStatusBytesMax = 64 << 20;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

void KeepEverySecond(std::vector<CurvePoint>& points) {
  size_t kept = 0;
  for (size_t i = 0; i < points.size(); i += 2) points[kept++] = points[i];
  points.resize(kept);
}

// Reads the next line into `line`, without its end. False at the end of the file.
bool ReadLine(FILE* file, std::string& line) {
  line.clear();
  int c = file == nullptr ? EOF : getc_unlocked(file);
  if (c == EOF) return false;
  for (; c != EOF && c != '\n'; c = getc_unlocked(file)) line.push_back(static_cast<char>(c));
  return true;
}

}  // namespace

JobOutput::JobOutput(std::string folder, JobId job, const std::string& mode,
                     const JobFigures& figures, std::unique_ptr<MetricsLog> metrics)
    : folder_(std::move(folder)),
      job_(std::move(job)),
      figures_(figures),
      metrics_(std::move(metrics)) {
  curve_.title = job_;
  curve_.subtitle = mode;
}

absl::StatusOr<std::unique_ptr<JobOutput>> JobOutput::Open(const std::string& folder,
                                                           const JobId& job,
                                                           const std::string& mode,
                                                           const JobFigures& figures) {
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<MetricsLog> metrics,
                           MetricsLog::Open(absl::StrCat(folder, "/metrics.jsonl")));
  std::unique_ptr<JobOutput> output(new JobOutput(folder, job, mode, figures, std::move(metrics)));
  output->ReadCurve(absl::StrCat(folder, "/metrics.jsonl"));
  return output;
}

// Skips lines of other jobs and lines that cannot be read: the curve is only a picture.
void JobOutput::ReadCurve(const std::string& path) {
  absl::StatusOr<RegularFile> opened = OpenRegularFile(path);
  if (!opened.ok()) return;
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fdopen(opened->fd.Release(), "r"), fclose);
  const std::string mine = absl::StrCat("\"job\":\"", job_, "\"");
  for (std::string line; ReadLine(file.get(), line);) {
    google::protobuf::Struct object;
    if (!absl::StrContains(line, mine)) continue;
    if (!google::protobuf::util::JsonStringToMessage(line, &object).ok()) continue;
    // Returns NaN if the key is missing or its value is not a number.
    const auto number = [&object](const char* name) {
      const google::protobuf::Value& value = (*object.mutable_fields())[name];
      return value.has_number_value() ? value.number_value() : kNan;
    };
    const auto whole = [&number](const char* name) {
      const double value = number(name);
      return std::isnan(value) ? 0 : static_cast<int64_t>(value);
    };
    const double accuracy = figures_.Accuracy(number("accuracy")).value_or(kNan);
    const int64_t iteration = whole("iteration");
    const std::string phase = (*object.mutable_fields())["phase"].string_value();
    if (phase == "train") {
      AddPoint({iteration, number("loss"), accuracy});
    } else if (phase == "validation" || curve_.evaluated != "validation") {
      if (phase == "validation") curve_.evaluated = phase;
      curve_.epochs.push_back({.epoch = whole("epoch") - 1,
                               .last_iteration = iteration,
                               .test_loss = number("loss"),
                               .test_accuracy = accuracy,
                               .test_auc = number("auc")});
    }
  }
}

void JobOutput::AddPoint(const CurvePoint& point) {
  if (curve_.points.size() >= kCurvePointsMax) KeepEverySecond(curve_.points);
  curve_.points.push_back(point);
}

absl::Status JobOutput::Add(const Report& report, int64_t unix_ms) {
  const std::optional<double> accuracy = figures_.Accuracy(report.accuracy);
  AddPoint({report.iteration, report.loss, accuracy.value_or(kNan)});
  return metrics_->Append({.job = job_,
                           .phase = MetricsRecord::Phase::kTrain,
                           .unix_ms = unix_ms,
                           .epoch = report.epoch.value() + 1,
                           .iteration = report.iteration,
                           .loss = report.loss,
                           .accuracy = accuracy,
                           .samples_per_second = report.samples_per_second,
                           .staleness = report.staleness_counts,
                           .rows_cached = report.rows_cached,
                           .rows_pulled = report.rows_pulled});
}

absl::Status JobOutput::Add(const EpochDone& done, int64_t unix_ms) {
  const EpochResult& result = done.result;
  CurveEpoch epoch{.epoch = result.epoch.value(), .last_iteration = done.iteration};
  const EvaluationFigures figures = result.validation.value_or(TestFigures(result));
  if (figures.samples > 0) {
    epoch.test_loss = figures.loss;
    epoch.test_accuracy = figures_.Accuracy(figures.accuracy.value_or(0)).value_or(kNan);
    epoch.test_auc = figures.auc.value_or(kNan);
  }
  if (result.validation) curve_.evaluated = "validation";
  curve_.epochs.push_back(epoch);
  CAPSTAN_RETURN_IF_ERROR(WriteCurve());
  if (figures.samples == 0) return absl::OkStatus();
  using Phase = MetricsRecord::Phase;
  return Append(result.validation ? Phase::kValidation : Phase::kTest, figures, result.epoch,
                done.iteration, unix_ms);
}

absl::Status JobOutput::Add(const ModelTested& tested, int64_t unix_ms) {
  return Append(MetricsRecord::Phase::kTest, TestFigures(tested.result), tested.result.epoch,
                tested.iteration, unix_ms);
}

absl::Status JobOutput::Append(MetricsRecord::Phase phase, const EvaluationFigures& figures,
                               Epoch epoch, int64_t iteration, int64_t unix_ms) {
  std::optional<double> auc = figures.auc;
  const Objective objective = figures_.objective;
  const bool has_auc = objective == Objective::kClicks || objective == Objective::kLabels;
  if (has_auc && !auc) auc = kNan;
  return metrics_->Append({.job = job_,
                           .phase = phase,
                           .unix_ms = unix_ms,
                           .epoch = epoch.value() + 1,
                           .iteration = iteration,
                           .loss = figures.loss,
                           .accuracy = figures_.Accuracy(figures.accuracy.value_or(0)),
                           .auc = auc,
                           .rmse = figures.rmse,
                           .mae = figures.mae,
                           .f1 = figures.f1,
                           .top5_accuracy = figures.top5_accuracy,
                           .staleness = {}});
}

absl::Status JobOutput::Add(const UpdatesRecorded& recorded, const std::string& unique_id,
                            const std::vector<v1::TableSpec>& tables) {
  if (updates_ == nullptr) {
    CAPSTAN_ASSIGN_OR_RETURN(
        updates_, UpdateLog::Open(absl::StrCat(folder_, "/", kUpdateLogName), unique_id));
  }
  std::vector<std::string> names;
  for (const v1::TableSpec& table : tables) names.push_back(table.name());
  std::vector<TableUpdate> lines;
  for (const UpdateHashes& update : recorded.updates) {
    for (const TableHashes& hashes : update.tables) {
      if (hashes.table < 0 || hashes.table >= static_cast<int32_t>(names.size())) continue;
      lines.push_back({.iteration = update.iteration.value(),
                       .epoch = update.epoch.value() + 1,
                       .slot = update.slot.value(),
                       .positions = update.positions,
                       .table = hashes.table,
                       .parameters = hashes.parameters,
                       .gradient = hashes.gradient,
                       .keys = hashes.keys,
                       .rank = recorded.task.rank.value()});
    }
  }
  return updates_->Append(lines, names);
}

absl::Status JobOutput::WriteStatus(const v1::JobStatus& status) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto converted = google::protobuf::util::MessageToJsonString(status, &json, options);
  if (!converted.ok()) return absl::InternalError(absl::StrCat(job_, ": ", converted.ToString()));
  return ReplaceFile(absl::StrCat(folder_, "/job.json"), json);
}

bool JobOutput::HasStatus(v1::JobState state) const {
  const std::string path = absl::StrCat(folder_, "/job.json");
  const absl::StatusOr<RegularFile> file = OpenRegularFile(path);
  if (!file.ok() || file->bytes > kStatusBytesMax) return false;
  std::string text(static_cast<size_t>(file->bytes), '\0');
  if (!ReadFileAt(*file, path, 0, absl::MakeSpan(text)).ok()) return false;
  v1::JobStatus status;
  return google::protobuf::util::JsonStringToMessage(text, &status).ok() &&
         status.job_id() == job_ && status.state() == state;
}

// A program may count correct samples later, or never.
bool JobOutput::HasAccuracies() const {
  if (!figures_.of_program) return HasAccuracy(figures_.objective);
  return std::any_of(curve_.points.begin(), curve_.points.end(),
                     [](const CurvePoint& point) { return std::isfinite(point.accuracy); }) ||
         std::any_of(curve_.epochs.begin(), curve_.epochs.end(),
                     [](const CurveEpoch& epoch) { return std::isfinite(epoch.test_accuracy); });
}

absl::Status JobOutput::WriteCurve() {
  curve_.with_accuracy = HasAccuracies();
  return ReplaceFile(absl::StrCat(folder_, "/curve.svg"), CurveSvg(curve_));
}

}  // namespace capstan::scheduler
