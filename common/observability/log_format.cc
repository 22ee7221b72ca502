#include "common/observability/log_format.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/observability/utf8.h"

namespace capstan {
namespace {

std::string FormatTimestamp(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
}

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// Returns the escape that JSON and text share, or empty if `c` is printed as it is.
std::string ControlEscape(char c) {
  switch (c) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      break;
  }
  const unsigned char code = static_cast<unsigned char>(c);
  return code < 0x20 || code == 0x7F ? absl::StrFormat("\\u%04x", code) : "";
}

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

std::string JsonQuote(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    if (length == 0) {
      out.append("\\ufffd");
      text.remove_prefix(1);
      continue;
    }
    const char c = text.front();
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (const std::string escape = ControlEscape(c); !escape.empty()) {
      out.append(escape);
    } else {
      out.append(text.substr(0, length));
    }
    text.remove_prefix(length);
  }
  out.push_back('"');
  return out;
}

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
                                  ",\"level\":", JsonQuote(record.level));
  if (!record.role.empty()) absl::StrAppend(&line, ",\"role\":", JsonQuote(record.role));
  if (!record.job.empty()) absl::StrAppend(&line, ",\"job\":", JsonQuote(record.job));
  if (record.iteration >= 0) absl::StrAppend(&line, ",\"iteration\":", record.iteration);
  absl::StrAppend(&line, ",\"message\":", JsonQuote(record.message), "}");
  return line;
}

}  // namespace capstan
