#include "scheduler/cli/job/job_logs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/time/clock.h"
#include "common/time/instant.h"
#include "scheduler/cli/console/interrupts.h"

namespace capstan::cli {
namespace {

constexpr int32_t kChunkBytes = 1 << 18;
constexpr absl::Duration kEndInterval = absl::Milliseconds(50);  // Between reads at a job's end.

}  // namespace

void LineCutter::Add(const std::string& data) {
  pending_ += data;
  size_t begin = 0;
  for (size_t end; (end = pending_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    line_(pending_.substr(begin, end - begin));
  }
  pending_.erase(0, begin);
  if (pending_.size() > kLineBytesMax) Finish();
}

void LineCutter::Finish() {
  if (!pending_.empty()) line_(pending_);
  pending_.clear();
}

// The logs of one rank, over all its incarnations.
class JobLogs::TaskLog {
 public:
  TaskLog(JobLogs* logs, int rank, const std::string& prefix)
      : logs_(logs), rank_(rank), lines_([logs, prefix](const std::string& line) {
          logs->options_.print(absl::StrCat(prefix, line));
        }) {}

  // Prints what is new in the log of the incarnation that `task` names, after the rest of the one
  // before. Errors: those of the worker, if the scheduler has no part of the log either.
  absl::Status Read(const v1::TaskStatus& task) {
    if (task.incarnation() != incarnation_ || task.address() != address_) {
      if (worker_ != nullptr) ReadOn().IgnoreError();  // It may have died with its worker.
      lines_.Finish();
      incarnation_ = task.incarnation();
      address_ = task.address();
      offset_ = 0;
      worker_ = std::make_unique<WorkerClient>(task.node_id(), task.address(),
                                               logs_->scheduler_.credentials());
    }
    return ReadOn();
  }

  void Finish() { lines_.Finish(); }
  // False if the task's process may still write: its worker has said so at the last read.
  bool is_whole() const { return whole_; }

 private:
  absl::Status ReadOn() {
    whole_ = true;
    while (Interrupts::Signal() == 0) {
      v1::ReadTaskLogRequest request;
      request.set_job_id(logs_->job_);
      request.set_rank(rank_);
      request.set_incarnation(incarnation_);
      request.set_offset(offset_);
      request.set_bytes_max(kChunkBytes);
      const auto part = Ask(request);
      if (!part.ok()) return part.status();
      whole_ = part->ended() || told_kept_;
      lines_.Add(part->data());
      if (part->next_offset() <= offset_) break;
      offset_ = part->next_offset();
      if (part->ended()) break;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<v1::ReadTaskLogResponse> Ask(const v1::ReadTaskLogRequest& request) {
    auto part = worker_->ReadTaskLog(request);
    if (part.ok()) {
      told_kept_ = false;
      return part;
    }
    auto kept = logs_->scheduler_.ReadKeptLog(request);
    if (!kept.ok()) return part.status();
    if (!std::exchange(told_kept_, true)) {
      const int64_t begin = kept->next_offset() - static_cast<int64_t>(kept->data().size());
      logs_->options_.say(absl::StrCat(
          "rank ", rank_, ": ", part.status().message(), "; here is what the scheduler keeps",
          begin > request.offset()
              ? absl::StrCat(", without ", begin - request.offset(), " bytes before it")
              : ""));
    }
    return kept;
  }

  JobLogs* const logs_;
  const int rank_;
  LineCutter lines_;
  std::unique_ptr<WorkerClient> worker_;
  std::string address_;
  uint64_t incarnation_ = 0;
  int64_t offset_ = 0;
  bool whole_ = true;
  bool told_kept_ = false;  // The user knows that the worker cannot be asked.
};

JobLogs::JobLogs(SchedulerClient& scheduler, std::string job, Options options)
    : scheduler_(scheduler), job_(std::move(job)), options_(std::move(options)) {}

JobLogs::~JobLogs() = default;

bool JobLogs::Read(const v1::JobStatus& job) {
  const bool prefixed = options_.prefix == Options::Prefix::kAlways ||
                        (options_.rank == kAllRanks && job.tasks_size() > 1);
  bool found = false;
  for (const v1::TaskStatus& task : job.tasks()) {
    if (options_.rank != kAllRanks && task.rank() != options_.rank) continue;
    found = true;
    std::unique_ptr<TaskLog>& log = logs_[task.rank()];
    if (log == nullptr) {
      log = std::make_unique<TaskLog>(this, task.rank(),
                                      prefixed ? absl::StrCat("[rank ", task.rank(), "] ") : "");
    }
    if (task.address().empty()) continue;  // The task is not placed yet.
    const absl::Status status = log->Read(task);
    std::string& told = told_[task.rank()];
    if (!status.ok() && told != status.message()) {
      told = std::string(status.message());
      options_.say(absl::StrCat("rank ", task.rank(), ": ", told));
    }
    failed_ = failed_ || !status.ok();
  }
  return found;
}

void JobLogs::ReadToEnd(const v1::JobStatus& job, absl::Duration limit) {
  const SteadyClock clock;
  const Instant deadline = clock.Now() + limit;
  do {
    Read(job);
    const bool whole = std::all_of(logs_.begin(), logs_.end(),
                                   [](const auto& log) { return log.second->is_whole(); });
    if (whole || clock.Now() >= deadline) break;
  } while (!Interrupts::Sleep(kEndInterval));
  Finish();
}

void JobLogs::Finish() {
  for (auto& [rank, log] : logs_) log->Finish();
}

}  // namespace capstan::cli
