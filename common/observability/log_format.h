// One log record as one line of text or JSON. Pure.
//
// Whatever a message holds, the result has no line break: control characters are escaped, and in
// JSON bytes that are not UTF-8 become U+FFFD.
#ifndef CAPSTAN_COMMON_OBSERVABILITY_LOG_FORMAT_H_
#define CAPSTAN_COMMON_OBSERVABILITY_LOG_FORMAT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace capstan {

struct LogRecord {
  absl::Time time;
  std::string_view level;  // "INFO".
  std::string_view role;   // Empty: left out.
  std::string_view job;    // Empty: left out.
  int64_t iteration = -1;  // -1: left out.
  std::string_view message;
};

// 2026-01-31T12:00:00.123Z INFO server-1 job=lenet-1 iteration=40 applied 8 shards
std::string FormatText(const LogRecord& record);

// {"time":"2026-01-31T12:00:00.123Z","level":"INFO","role":"server-1","job":"lenet-1",
//  "iteration":40,"message":"applied 8 shards"}, in one line.
std::string FormatJson(const LogRecord& record);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_OBSERVABILITY_LOG_FORMAT_H_
