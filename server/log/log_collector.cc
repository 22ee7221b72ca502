#include "server/log/log_collector.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/observability/log.h"
#include "common/storage/write_durably.h"

namespace capstan::server {
namespace {

constexpr int64_t kMarkBytesMax = 32;

}  // namespace

LogCollector::LogCollector(ServerLog* log, Options options)
    : log_(log), options_(std::move(options)) {}

std::string LogCollector::MarkOf(const std::string& log) const {
  return absl::StrCat(options_.folder, "/", log, "/", kMark);
}

// Writes the mark anew if it is missing, cannot be read, or lies in the future.
absl::Time LogCollector::UnclaimedSince(const std::string& log) {
  const absl::Time now = options_.now();
  int64_t seconds = 0;
  const auto mark = options_.disk->Read(MarkOf(log), kMarkBytesMax);
  if (mark.ok() && absl::SimpleAtoi(*mark, &seconds) && absl::FromUnixSeconds(seconds) <= now) {
    return absl::FromUnixSeconds(seconds);
  }
  const std::string text = absl::StrCat(absl::ToUnixSeconds(now));
  const absl::Status written = WriteDurably(*options_.disk, MarkOf(log), {text});
  if (!written.ok()) LogWarning({}, "log {}: {}", log, std::string(written.message()));
  return now;
}

void LogCollector::OnLiving(const std::set<std::string>& living) {
  unclaimed_.clear();
  for (const ServerLog::LogName& log : log_->Names()) {
    if (living.contains(log.unique_id)) {
      options_.disk->Remove(MarkOf(log.name)).IgnoreError();  // Most logs have no mark.
      continue;
    }
    const absl::Time since = UnclaimedSince(log.name);
    unclaimed_[log.name] = {.unique_id = log.unique_id, .since = since};
    LogWarning({},
               "log {}: the scheduler knows no living job of it; it is removed at {} (`capstan job "
               "recover` takes up jobs whose scheduler has lost its store)",
               log.name, absl::FormatTime(since + options_.grace));
  }
}

std::vector<std::string> LogCollector::CollectDue() {
  std::vector<std::string> removed;
  if (unclaimed_.empty()) return removed;
  const absl::Time now = options_.now();
  std::erase_if(unclaimed_, [&](const auto& log) {
    if (log_->IsIdentified(log.first)) {
      options_.disk->Remove(MarkOf(log.first)).IgnoreError();
      return true;
    }
    if (now < log.second.since + options_.grace) return false;
    LogInfo({}, "log {}: removed, unclaimed since {}", log.first,
            absl::FormatTime(log.second.since));
    log_->Remove(log.first);
    removed.push_back(log.second.unique_id);
    return true;
  });
  return removed;
}

}  // namespace capstan::server
