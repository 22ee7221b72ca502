// MetricsLog: appends a job's reports to metrics.jsonl, one JSON object a line.
//
// A line is handed to the operating system in one write before Append returns, so a reader that
// follows the file, or reads it after a crash of this process, sees whole lines. Opening a file
// whose last line is torn (the machine went down in mid-write) starts a new line first.
// Thread safety: MetricsLog is thread-compatible; ToJsonLine is a pure function.
#ifndef CAPSTAN_COMMON_REPORT_METRICS_LOG_H_
#define CAPSTAN_COMMON_REPORT_METRICS_LOG_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace capstan {

struct MetricsRecord {
  enum class Phase { kTrain, kTest, kValidation };

  std::string job;
  Phase phase = Phase::kTrain;
  int64_t unix_ms = 0;    // Milliseconds since 1970.
  int64_t epoch = 0;      // Counts from 1.
  int64_t iteration = 0;  // Iterations (BSP) or batches done.
  double loss = 0.0;      // Mean over samples.
  // Left out of the line where there is no such figure; NaN: there is, but these samples have none.
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
  // Opens `path` for appending and makes it (mode 0644) if it is missing; its folder must exist.
  // Errors: those of open(2) and read(2), with the path.
  static absl::StatusOr<std::unique_ptr<MetricsLog>> Open(const std::string& path);

  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  // Appends the record's line.
  // Errors: those of write(2), with the path (kResourceExhausted: no space left). The line may then
  // stand in the file in part; the next Append starts a new line.
  absl::Status Append(const MetricsRecord& record);

 private:
  MetricsLog(std::string path, int fd, bool torn);

  const std::string path_;
  const int fd_;  // Owned; closed by the destructor.
  bool torn_;     // The file's last line has no newline.
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_REPORT_METRICS_LOG_H_
