#include "common/report/metrics_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/observability/json_quote.h"
#include "common/storage/path_access.h"
#include "common/storage/private_files.h"

namespace capstan {
namespace {

// Nine digits are more than any of the reported values is worth.
std::string JsonNumber(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.9g", value) : "null";
}

// Returns ',"name":value', or nothing.
std::string JsonField(absl::string_view name, const std::optional<double>& value) {
  return value ? absl::StrCat(",", JsonQuote(name), ":", JsonNumber(*value)) : "";
}

const char* PhaseName(MetricsRecord::Phase phase) {
  switch (phase) {
    case MetricsRecord::Phase::kTrain:
      return "train";
    case MetricsRecord::Phase::kTest:
      return "test";
    case MetricsRecord::Phase::kValidation:
      return "validation";
  }
  return "";
}

std::string RowFields(const MetricsRecord& record) {
  if (record.rows_cached + record.rows_pulled == 0) return "";
  return absl::StrCat(",\"rows_cached\":", record.rows_cached,
                      ",\"rows_pulled\":", record.rows_pulled);
}

absl::Status Failed(absl::string_view action, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat(action, " ", path));
}

// Returns whether the file's last byte is something else than a newline.
absl::StatusOr<bool> EndsInMidLine(int fd, const std::string& path) {
  const off_t size = lseek(fd, 0, SEEK_END);
  if (size < 0) return Failed("finding the end of", path);
  if (size == 0) return false;
  char last = 0;
  if (pread(fd, &last, 1, size - 1) != 1) return Failed("reading the end of", path);
  return last != '\n';
}

}  // namespace

std::string ToJsonLine(const MetricsRecord& record) {
  return absl::StrCat(
      "{\"job\":", JsonQuote(record.job), ",\"phase\":", JsonQuote(PhaseName(record.phase)),
      ",\"unix_ms\":", record.unix_ms, ",\"epoch\":", record.epoch,
      ",\"iteration\":", record.iteration, ",\"loss\":", JsonNumber(record.loss),
      JsonField("accuracy", record.accuracy), JsonField("auc", record.auc),
      JsonField("rmse", record.rmse), JsonField("mae", record.mae), JsonField("f1", record.f1),
      JsonField("top5_accuracy", record.top5_accuracy),
      ",\"samples_per_second\":", JsonNumber(record.samples_per_second), ",\"staleness\":[",
      absl::StrJoin(record.staleness, ","), "]", RowFields(record), "}\n");
}

absl::StatusOr<std::unique_ptr<MetricsLog>> MetricsLog::Open(const std::string& path) {
  const int fd = OpenPath(path, O_RDWR | O_APPEND | O_CREAT, kPrivateFileMode);
  if (fd < 0) return Failed("opening", path);
  const absl::StatusOr<bool> torn = EndsInMidLine(fd, path);
  if (!torn.ok()) {
    close(fd);
    return torn.status();
  }
  return std::unique_ptr<MetricsLog>(new MetricsLog(path, fd, *torn));
}

MetricsLog::MetricsLog(std::string path, int fd, bool torn)
    : path_(std::move(path)), fd_(fd), torn_(torn) {}

MetricsLog::~MetricsLog() { close(fd_); }

absl::Status MetricsLog::Append(const MetricsRecord& record) {
  const std::string line = absl::StrCat(torn_ ? "\n" : "", ToJsonLine(record));
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t written = write(fd_, line.data() + done, line.size() - done);
    if (written < 0) {
      if (errno == EINTR) continue;
      torn_ = torn_ || done > 0;
      return Failed("appending to", path_);
    }
    done += static_cast<size_t>(written);
  }
  torn_ = false;
  return absl::OkStatus();
}

}  // namespace capstan
