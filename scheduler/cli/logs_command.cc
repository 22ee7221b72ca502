#include "scheduler/cli/logs_command.h"

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/strings/str_cat.h"
#include "scheduler/cli/client.h"
#include "scheduler/cli/console.h"
#include "scheduler/cli/exit_code.h"
#include "scheduler/cli/interrupts.h"
#include "scheduler/cli/patience.h"
#include "scheduler/cli/view/format.h"

namespace capstan::cli {
namespace {

constexpr int kAllRanks = -1;
constexpr int32_t kChunkBytes = 1 << 18;
constexpr absl::Duration kPollInterval = absl::Milliseconds(300);

struct LogArguments {
  std::string job;
  int rank = kAllRanks;
  bool follow = false;
};

// Splits what arrives into lines and prints each whole, after a prefix.
class LinePrinter {
 public:
  explicit LinePrinter(std::string prefix) : prefix_(std::move(prefix)) {}

  void Add(const std::string& data) {
    pending_ += data;
    size_t begin = 0;
    for (size_t end; (end = pending_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      Print(absl::StrCat(prefix_, pending_.substr(begin, end + 1 - begin)));
    }
    pending_.erase(0, begin);
  }

  void Finish() {
    if (!pending_.empty()) Print(absl::StrCat(prefix_, pending_, "\n"));
    pending_.clear();
  }

 private:
  const std::string prefix_;
  std::string pending_;
};

// The log of one rank through its lives.
class TaskLog {
 public:
  TaskLog(std::string job, int rank, const std::string& prefix)
      : job_(std::move(job)), rank_(rank), printer_(prefix) {}

  // Prints what is new in the log of the life that `task` names.
  absl::Status Read(const v1::TaskStatus& task) {
    if (task.incarnation() != incarnation_ || task.address() != address_) {
      printer_.Finish();
      incarnation_ = task.incarnation();
      address_ = task.address();
      offset_ = 0;
      worker_ = std::make_unique<WorkerClient>(task.node_id(), task.address());
    }
    while (Interrupts::Signal() == 0) {
      v1::ReadTaskLogRequest request;
      request.set_job_id(job_);
      request.set_rank(rank_);
      request.set_incarnation(incarnation_);
      request.set_offset(offset_);
      request.set_bytes_max(kChunkBytes);
      const auto part = worker_->ReadTaskLog(request);
      if (!part.ok()) return part.status();
      printer_.Add(part->data());
      if (part->next_offset() <= offset_) break;
      offset_ = part->next_offset();
      if (part->ended()) break;
    }
    return absl::OkStatus();
  }

  void Finish() { printer_.Finish(); }

 private:
  const std::string job_;
  const int rank_;
  LinePrinter printer_;
  std::unique_ptr<WorkerClient> worker_;
  std::string address_;
  uint64_t incarnation_ = 0;
  int64_t offset_ = 0;
};

// Reads all logs. A worker that cannot be asked is reported once and does not keep the others from
// being read.
class JobLogs {
 public:
  explicit JobLogs(const LogArguments& arguments) : arguments_(arguments) {}

  bool Read(const v1::JobStatus& job) {
    const bool several = arguments_.rank == kAllRanks && job.tasks_size() > 1;
    bool found = false;
    for (const v1::TaskStatus& task : job.tasks()) {
      if (arguments_.rank != kAllRanks && task.rank() != arguments_.rank) continue;
      found = true;
      const std::string prefix = several ? absl::StrCat("[rank ", task.rank(), "] ") : "";
      TaskLog& log =
          logs_.try_emplace(task.rank(), arguments_.job, task.rank(), prefix).first->second;
      if (task.address().empty()) continue;  // Not placed yet.
      const absl::Status status = log.Read(task);
      std::string& told = told_[task.rank()];
      if (!status.ok() && told != status.message()) {
        told = std::string(status.message());
        std::fprintf(stderr, "capstan: rank %d: %s\n", task.rank(), told.c_str());
      }
      failed_ = failed_ || !status.ok();
    }
    return found;
  }

  void Finish() {
    for (auto& [rank, log] : logs_) log.Finish();
  }
  bool failed() const { return failed_; }

 private:
  const LogArguments& arguments_;
  absl::btree_map<int, TaskLog> logs_;
  absl::btree_map<int, std::string> told_;
  bool failed_ = false;
};

int NoTask(const v1::JobStatus& job, int rank) {
  const std::string which = rank == kAllRanks ? "no task" : absl::StrCat("no task of rank ", rank);
  return Fail(absl::NotFoundError(absl::StrCat(job.job_id(), " has ", which, ": it is ",
                                               StateName(job.state()), ". ", job.detail())));
}

int Logs(const Settings& settings, const LogArguments& arguments) {
  const Interrupts interrupts;
  SchedulerClient scheduler(settings.scheduler);
  JobLogs logs(arguments);
  Patience patience(scheduler.address(), {.meanwhile = "the job goes on"});
  while (Interrupts::Signal() == 0) {
    const auto job = scheduler.GetJob(arguments.job);
    if (arguments.follow && patience.AsksAgain(job.status())) continue;
    if (!job.ok()) return Fail(job.status());
    const bool found = logs.Read(*job);
    const bool last = !arguments.follow || HasEnded(job->state());
    if (last && !found) return NoTask(*job, arguments.rank);
    if (last) {
      logs.Finish();
      return logs.failed() ? kExitFailed : kExitDone;
    }
    Interrupts::Sleep(kPollInterval);
  }
  return kExitSignal + Interrupts::Signal();
}

}  // namespace

void AddLogsCommand(CLI::App& job, CommandLine& line) {
  auto arguments = std::make_shared<LogArguments>();
  CLI::App* logs = AddCommand(
      job, "logs", "What a job's tasks wrote",
      "  capstan job logs lenet-1\n"
      "  capstan job logs lenet-1 --rank 0 --follow",
      line, [arguments](const Settings& settings) { return Logs(settings, *arguments); });
  logs->add_option("JOB", arguments->job, "Id of the job")->required();
  logs->add_option("--rank", arguments->rank, "Only this task, from 0")
      ->check(CLI::NonNegativeNumber)
      ->type_name("RANK");
  logs->add_flag("-f,--follow", arguments->follow, "Go on until the job ends");
}

}  // namespace capstan::cli
