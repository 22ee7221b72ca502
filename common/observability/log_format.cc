#include "common/observability/log_format.h"

#include "absl/strings/str_cat.h"
#include "common/observability/json_quote.h"

namespace capstan {
namespace {

std::string FormatTimestamp(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
}

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

void AppendText(std::string_view text, std::string* out) {
  for (const char c : text) {
    const std::string escape = ControlEscape(c);
    if (escape.empty()) {
      out->push_back(c);
    } else {
      out->append(escape);
    }
  }
}

}  // namespace

std::string FormatText(const LogRecord& record) {
  std::string line = absl::StrCat(FormatTimestamp(record.time), " ", View(record.level));
  if (!record.role.empty()) {
    line.push_back(' ');
    AppendText(record.role, &line);
  }
  if (!record.job.empty()) {
    line.append(" job=");
    AppendText(record.job, &line);
  }
  if (record.iteration >= 0) absl::StrAppend(&line, " iteration=", record.iteration);
  line.push_back(' ');
  AppendText(record.message, &line);
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
