// JobOutput: the files that the scheduler writes into a job's output folder while it runs.
//
//   job.json       the job's status with its whole specification; written at the start and the end
//   metrics.jsonl  a line for each report and each evaluation, in the order of arrival
//   curve.svg      loss and accuracy so far; written after each epoch and at the end
//   updates.csv    hashes of all updates, if the job records them (common/report/update_log.h)
//
// If the folder has files of an earlier run, metrics.jsonl is continued, the others are replaced.
// For a job that an earlier scheduler began, the curve is restored from its lines in metrics.jsonl.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_OUTPUT_JOB_OUTPUT_H_
#define CAPSTAN_SCHEDULER_OUTPUT_JOB_OUTPUT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/report/curve_svg.h"
#include "common/report/metrics_log.h"
#include "common/report/update_log.h"
#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"
#include "proto/scheduler.pb.h"
#include "scheduler/codec/job_figures.h"
#include "scheduler/core/messages/events.h"

namespace capstan::scheduler {

class JobOutput {
 public:
  static constexpr size_t kCurvePointsMax = 20'000;  // At this limit every second one is dropped.

  // Opens the files of `job` in `folder`, which exists. `mode` appears in the curve's title.
  // `figures`: those that are written.
  // Errors: kUnavailable and those of MetricsLog::Open; each names the file.
  static absl::StatusOr<std::unique_ptr<JobOutput>> Open(const std::string& folder,
                                                         const JobId& job, const std::string& mode,
                                                         const JobFigures& figures);

  // Errors of all: as Open's. A line that could not be written is lost; later calls still work.
  absl::Status Add(const Report& report, int64_t unix_ms);
  absl::Status Add(const EpochDone& done, int64_t unix_ms);
  absl::Status Add(const ModelTested& tested, int64_t unix_ms);
  // Adds lines to updates.csv of the job with this unique id, whose tables are `tables`. Hashes of
  // tables that it does not have are left out.
  absl::Status Add(const UpdatesRecorded& recorded, const std::string& unique_id,
                   const std::vector<v1::TableSpec>& tables);
  absl::Status WriteStatus(const v1::JobStatus& status);
  absl::Status WriteCurve();
  // True if job.json says that this job ended in `state`.
  bool HasStatus(v1::JobState state) const;

 private:
  JobOutput(std::string folder, JobId job, const std::string& mode, const JobFigures& figures,
            std::unique_ptr<MetricsLog> metrics);
  void ReadCurve(const std::string& path);
  absl::Status Append(MetricsRecord::Phase phase, const EvaluationFigures& figures, Epoch epoch,
                      int64_t iteration, int64_t unix_ms);
  void AddPoint(const CurvePoint& point);
  bool HasAccuracies() const;  // The curve is to have a line for the accuracy.

  const std::string folder_;
  const JobId job_;
  const JobFigures figures_;
  const std::unique_ptr<MetricsLog> metrics_;
  std::unique_ptr<UpdateLog> updates_;  // Null: no update was recorded yet.
  Curve curve_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_OUTPUT_JOB_OUTPUT_H_
