#include "worker/daemon/log_uploader.h"

#include <string>
#include <utility>

namespace capstan::worker {

LogUploader::LogUploader(Options options) : options_(std::move(options)) {}

LogUploader::~LogUploader() { Stop(); }

void LogUploader::Start() { thread_ = std::thread(&LogUploader::Run, this); }

void LogUploader::Stop() {
  {
    const absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void LogUploader::Watch(const TaskName& task) {
  const absl::MutexLock lock(&mutex_);
  tasks_.emplace(task, kUnknown);
  if (tasks_.size() > kTasksMax) tasks_.erase(tasks_.begin());
}

size_t LogUploader::watched() const {
  const absl::MutexLock lock(&mutex_);
  return tasks_.size();
}

void LogUploader::Run() {
  bool stopping = false;
  while (!stopping) {
    {
      const absl::MutexLock lock(&mutex_);
      stopping = mutex_.AwaitWithTimeout(absl::Condition(&stopping_), options_.interval);
    }
    Round();
  }
}

bool LogUploader::Round() {
  std::map<TaskName, int64_t> tasks;
  {
    const absl::MutexLock lock(&mutex_);
    tasks = tasks_;
  }
  for (auto& [task, next] : tasks) {
    const Outcome outcome = Upload(task, &next);
    if (outcome == Outcome::kSchedulerAway) return false;
    const absl::MutexLock lock(&mutex_);
    const auto watched = tasks_.find(task);
    if (watched == tasks_.end()) continue;
    if (outcome == Outcome::kForget) {
      tasks_.erase(watched);
    } else {
      watched->second = next;
    }
  }
  return true;
}

absl::StatusOr<v1::ReadTaskLogResponse> LogUploader::Read(const TaskName& task, int64_t offset,
                                                          int32_t bytes_max) const {
  v1::ReadTaskLogRequest request;
  request.set_job_id(task.job);
  request.set_rank(task.rank.value());
  request.set_incarnation(task.incarnation.value());
  request.set_offset(offset);
  request.set_bytes_max(bytes_max);
  return options_.read(request);
}

LogUploader::Outcome LogUploader::Send(const TaskName& task, const std::string& data,
                                       int64_t* next) const {
  v1::KeepTaskLogRequest request;
  request.set_job_id(task.job);
  request.set_rank(task.rank.value());
  request.set_incarnation(task.incarnation.value());
  request.set_offset(*next == kUnknown ? 0 : *next);
  request.set_data(data);
  const absl::StatusOr<int64_t> kept = options_.keep(request);
  if (kept.ok()) {
    *next = *kept;
    return Outcome::kWatchOn;
  }
  switch (kept.status().code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return Outcome::kSchedulerAway;
    case absl::StatusCode::kResourceExhausted:
      return Outcome::kLater;  // The scheduler may have room the next time.
    default:
      return Outcome::kForget;  // The scheduler does not know the job, or keeps no logs.
  }
}

LogUploader::Outcome LogUploader::Upload(const TaskName& task, int64_t* next) const {
  if (*next == kUnknown) {
    const Outcome asked = Send(task, "", next);
    if (asked != Outcome::kWatchOn) return asked;
  }
  // Finds the offset at which the last behind_max bytes begin.
  absl::StatusOr<v1::ReadTaskLogResponse> part = Read(task, -options_.behind_max, 1);
  if (part.ok()) {
    const int64_t begin = part->next_offset() - static_cast<int64_t>(part->data().size());
    if (begin > *next) *next = begin;
  }
  for (int64_t sent = 0; part.ok() && sent < options_.behind_max;) {
    part = Read(task, *next, kPieceBytesMax);
    if (!part.ok()) break;
    if (part->data().empty()) return part->ended() ? Outcome::kForget : Outcome::kWatchOn;
    const int64_t before = *next;
    const Outcome outcome = Send(task, part->data(), next);
    if (outcome != Outcome::kWatchOn) return outcome;
    if (*next <= before) return Outcome::kForget;  // The scheduler does not accept the data.
    sent += static_cast<int64_t>(part->data().size());
  }
  // If the read has failed, the log has been removed or cannot be read.
  return part.ok() ? Outcome::kWatchOn : Outcome::kForget;
}

}  // namespace capstan::worker
