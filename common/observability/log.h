// Logs: one line = time, level, role and rank, job, iteration, message; text or JSON.
//
//   InitLogging({.role = "server-1"});
//   LogInfo({.job = "lenet-1", .iteration = 40}, "applied {} shards", count);   // fmt syntax
//
// Text: 2026-01-31T12:00:00.123Z INFO server-1 job=lenet-1 iteration=40 applied 8 shards
// Thread safety: InitLogging once, before other threads; the rest is thread-safe.
#ifndef CAPSTAN_COMMON_OBSERVABILITY_LOG_H_
#define CAPSTAN_COMMON_OBSERVABILITY_LOG_H_

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace capstan {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

struct LogOptions {
  std::string role;  // "scheduler", "server-1", "worker-1", "task lenet-1/0".
  std::string file;  // Empty: standard error.
  bool json = false;
  LogLevel level = LogLevel::kInfo;
};

struct LogContext {
  std::string_view job = {};  // Empty: none.
  int64_t iteration = -1;     // -1: none.
};

void InitLogging(const LogOptions& options);
// Changes the role once it is known (a daemon learns its name when it registers).
void SetLogRole(const std::string& role);
void LogLine(LogLevel level, const LogContext& context, std::string_view message);

template <typename... Args>
void LogDebug(const LogContext& context, fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kDebug, context, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogInfo(const LogContext& context, fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kInfo, context, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogWarning(const LogContext& context, fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kWarning, context, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogError(const LogContext& context, fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kError, context, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace capstan

#endif  // CAPSTAN_COMMON_OBSERVABILITY_LOG_H_
