#include "scheduler/job_output.h"

#include <google/protobuf/util/json_util.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "scheduler/write_file.h"

namespace capstan::scheduler {
namespace {

void KeepEverySecond(std::vector<CurvePoint>& points) {
  size_t kept = 0;
  for (size_t i = 0; i < points.size(); i += 2) points[kept++] = points[i];
  points.resize(kept);
}

}  // namespace

JobOutput::JobOutput(std::string folder, JobId job, const std::string& mode,
                     std::unique_ptr<MetricsLog> metrics)
    : folder_(std::move(folder)), job_(std::move(job)), metrics_(std::move(metrics)) {
  curve_.title = job_;
  curve_.subtitle = mode;
}

absl::StatusOr<std::unique_ptr<JobOutput>> JobOutput::Open(const std::string& folder, const JobId& job,
                                                           const std::string& mode) {
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<MetricsLog> metrics,
                           MetricsLog::Open(absl::StrCat(folder, "/metrics.jsonl")));
  return std::unique_ptr<JobOutput>(new JobOutput(folder, job, mode, std::move(metrics)));
}

absl::Status JobOutput::Add(const Report& report, int64_t unix_ms) {
  if (curve_.points.size() >= kCurvePointsMax) KeepEverySecond(curve_.points);
  curve_.points.push_back({report.iteration, report.loss, report.accuracy});
  return metrics_->Append({.job = job_,
                           .phase = MetricsRecord::Phase::kTrain,
                           .unix_ms = unix_ms,
                           .epoch = report.epoch.value(),
                           .iteration = report.iteration,
                           .loss = report.loss,
                           .accuracy = report.accuracy,
                           .samples_per_second = report.samples_per_second,
                           .staleness = report.staleness_counts});
}

absl::Status JobOutput::Add(const EpochDone& done, int64_t unix_ms) {
  const EpochResult& result = done.result;
  CurveEpoch epoch{.epoch = result.epoch.value(), .last_iteration = done.iteration};
  if (result.test_samples > 0) {
    epoch.test_loss = result.test_loss;
    epoch.test_accuracy = result.test_accuracy;
  }
  curve_.epochs.push_back(epoch);
  CAPSTAN_RETURN_IF_ERROR(WriteCurve());
  if (result.test_samples == 0) return absl::OkStatus();
  return metrics_->Append({.job = job_,
                           .phase = MetricsRecord::Phase::kTest,
                           .unix_ms = unix_ms,
                           .epoch = result.epoch.value(),
                           .iteration = done.iteration,
                           .loss = result.test_loss,
                           .accuracy = result.test_accuracy,
                           .staleness = {}});
}

absl::Status JobOutput::WriteStatus(const v1::JobStatus& status) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto converted = google::protobuf::util::MessageToJsonString(status, &json, options);
  if (!converted.ok()) return absl::InternalError(absl::StrCat(job_, ": ", converted.ToString()));
  return WriteFileAtomically(absl::StrCat(folder_, "/job.json"), json);
}

absl::Status JobOutput::WriteCurve() {
  return WriteFileAtomically(absl::StrCat(folder_, "/curve.svg"), CurveSvg(curve_));
}

}  // namespace capstan::scheduler
