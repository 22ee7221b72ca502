#include "common/observability/log_format.h"

#include "absl/strings/str_cat.h"
#include "common/observability/json_quote.h"
#include "common/observability/printable.h"

namespace capstan {
namespace {

std::string FormatTimestamp(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
}

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

std::string FormatText(const LogRecord& record) {
  std::string line = absl::StrCat(FormatTimestamp(record.time), " ", View(record.level));
  if (!record.role.empty()) {
    line.push_back(' ');
    line.append(Printable(record.role));
  }
  if (!record.job.empty()) {
    line.append(" job=");
    line.append(Printable(record.job));
  }
  if (record.iteration >= 0) absl::StrAppend(&line, " iteration=", record.iteration);
  line.push_back(' ');
  line.append(Printable(record.message));
  return line;
}

std::string FormatJson(const LogRecord& record) {
  std::string line = absl::StrCat("{\"time\":\"", FormatTimestamp(record.time), "\"",
                                  ",\"level\":", JsonQuote(View(record.level)));
  if (!record.role.empty()) absl::StrAppend(&line, ",\"role\":", JsonQuote(View(record.role)));
  if (!record.job.empty()) absl::StrAppend(&line, ",\"job\":", JsonQuote(View(record.job)));
  if (record.iteration >= 0) absl::StrAppend(&line, ",\"iteration\":", record.iteration);
  absl::StrAppend(&line, ",\"message\":", JsonQuote(View(record.message)), "}");
  return line;
}

}  // namespace capstan
