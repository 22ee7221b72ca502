#include "common/report/metrics_log.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/observability/json_quote.h"
#include "common/status/status_macros.h"

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
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<LineFile> file, LineFile::Open(path));
  return std::unique_ptr<MetricsLog>(new MetricsLog(std::move(file)));
}

}  // namespace capstan
