// MetricsLog: appends a job's reports to metrics.jsonl, one JSON object a line.
//
// A reader sees whole lines, also after a crash (line_file.h).
// Thread safety: MetricsLog is thread-compatible; ToJsonLine is a pure function.
#ifndef CAPSTAN_COMMON_REPORT_METRICS_LOG_H_
#define CAPSTAN_COMMON_REPORT_METRICS_LOG_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/report/line_file.h"

namespace capstan {

struct MetricsRecord {
  enum class Phase { kTrain, kTest, kValidation };

  std::string job;
  Phase phase = Phase::kTrain;
  int64_t unix_ms = 0;    // Milliseconds since 1970.
  int64_t epoch = 0;      // Counts from 1.
  int64_t iteration = 0;  // Iterations (BSP) or batches done.
  double loss = 0.0;      // Mean over samples.
  // The line has only figures that are set. NaN: the figure is set, but these samples have none.
  std::optional<double> accuracy = {};  // Share, 0 to 1.
  std::optional<double> auc = {};       // 0 to 1.
  std::optional<double> rmse = {};
  std::optional<double> mae = {};
  std::optional<double> f1 = {};             // 0 to 1.
  std::optional<double> top5_accuracy = {};  // Share, 0 to 1.
  double samples_per_second = 0.0;
  std::vector<int64_t> staleness;  // [k]: pulls that saw staleness k. Empty: nothing to say.
  // Rows that workers had kept, and those that they pulled; left out where both are 0.
  int64_t rows_cached = 0;
  int64_t rows_pulled = 0;
};

// The record as one line of JSON with its newline. Keys, in this order: "job", "phase" ("train",
// "test" or "validation"), "unix_ms", "epoch", "iteration", "loss", of "accuracy", "auc", "rmse",
// "mae", "f1" and "top5_accuracy" those that are set, "samples_per_second", "staleness" (array),
// "rows_cached" and "rows_pulled". NaN and infinities, which JSON does not have, become null.
std::string ToJsonLine(const MetricsRecord& record);

class MetricsLog {
 public:
  // Errors, also of Append: those of LineFile.
  static absl::StatusOr<std::unique_ptr<MetricsLog>> Open(const std::string& path);

  // Appends the record's line.
  absl::Status Append(const MetricsRecord& record) { return file_->Append(ToJsonLine(record)); }

 private:
  explicit MetricsLog(std::unique_ptr<LineFile> file) : file_(std::move(file)) {}

  const std::unique_ptr<LineFile> file_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_REPORT_METRICS_LOG_H_
