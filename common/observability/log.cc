#include "common/observability/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/observability/log_format.h"

namespace capstan {
namespace {

struct Logging {
  absl::Mutex mutex;
  std::string role ABSL_GUARDED_BY(mutex);
  std::shared_ptr<spdlog::logger> logger ABSL_GUARDED_BY(mutex);  // Nobody else uses it.
  std::atomic<bool> json = false;
  std::atomic<LogLevel> level = LogLevel::kInfo;
};

std::shared_ptr<spdlog::logger> MakeLogger(spdlog::sink_ptr sink) {
  auto logger = std::make_shared<spdlog::logger>("capstan", std::move(sink));
  logger->set_pattern("%v");  // Lines come formatted.
  logger->set_level(spdlog::level::trace);
  logger->flush_on(spdlog::level::trace);  // The last line before a crash is the one that counts.
  return logger;
}

std::shared_ptr<spdlog::logger> MakeStderrLogger() {
  return MakeLogger(std::make_shared<spdlog::sinks::stderr_sink_mt>());
}

// The state is never destroyed, so that threads may log until the very end of the process.
Logging& State() {
  static Logging* const state = [] {
    auto* made = new Logging;
    absl::MutexLock lock(&made->mutex);
    made->logger = MakeStderrLogger();
    return made;
  }();
  return *state;
}

std::string_view LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "DEBUG";
    case LogLevel::kInfo:
      return "INFO";
    case LogLevel::kWarning:
      return "WARN";
    case LogLevel::kError:
      return "ERROR";
  }
  return "ERROR";
}

}  // namespace

void InitLogging(const LogOptions& options) {
  std::shared_ptr<spdlog::logger> logger;
  std::string problem;
  if (!options.file.empty()) {
    try {
      logger = MakeLogger(std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file));
    } catch (const spdlog::spdlog_ex& error) {  // spdlog reports it only this way.
      problem = error.what();
    }
  }
  if (logger == nullptr) logger = MakeStderrLogger();
  Logging& state = State();
  state.json = options.json;
  state.level = options.level;
  {
    absl::MutexLock lock(&state.mutex);
    state.role = options.role;
    state.logger = std::move(logger);
  }
  if (!problem.empty()) {
    LogError({}, "log file {}: {}; logging to standard error instead", options.file, problem);
  }
}

void SetLogRole(const std::string& role) {
  absl::MutexLock lock(&State().mutex);
  State().role = role;
}

void LogLine(LogLevel level, const LogContext& context, std::string_view message) {
  Logging& state = State();
  if (level < state.level.load(std::memory_order_relaxed)) return;
  std::string role;
  std::shared_ptr<spdlog::logger> logger;
  {
    absl::MutexLock lock(&state.mutex);
    role = state.role;
    logger = state.logger;
  }
  const LogRecord record{absl::Now(), LevelName(level),  role,
                         context.job, context.iteration, message};
  logger->log(spdlog::level::info, state.json ? FormatJson(record) : FormatText(record));
}

}  // namespace capstan
