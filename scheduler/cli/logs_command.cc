#include <memory>
#include <string>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "scheduler/cli/client.h"
#include "scheduler/cli/commands.h"
#include "scheduler/cli/console.h"
#include "scheduler/cli/exit_code.h"
#include "scheduler/cli/interrupts.h"
#include "scheduler/cli/patience.h"
#include "scheduler/cli/view/format.h"
#include "scheduler/cli/view/job_view.h"

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

// Splits the received text into lines and prints each complete line after a prefix.
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

// Reads the log of one rank over all its incarnations: from its worker or, if the worker cannot be
// asked, from the part that the scheduler stores.
class TaskLog {
 public:
  TaskLog(SchedulerClient& scheduler, std::string job, int rank, const std::string& prefix)
      : scheduler_(scheduler), job_(std::move(job)), rank_(rank), printer_(prefix) {}

  // Prints the new part of the log of the incarnation that `task` names.
  // Errors: those of the worker, if the scheduler has no part of the log either.
  absl::Status Read(const v1::TaskStatus& task) {
    if (task.incarnation() != incarnation_ || task.address() != address_) {
      printer_.Finish();
      incarnation_ = task.incarnation();
      address_ = task.address();
      offset_ = 0;
      worker_ =
          std::make_unique<WorkerClient>(task.node_id(), task.address(), scheduler_.credentials());
    }
    while (Interrupts::Signal() == 0) {
      v1::ReadTaskLogRequest request;
      request.set_job_id(job_);
      request.set_rank(rank_);
      request.set_incarnation(incarnation_);
      request.set_offset(offset_);
      request.set_bytes_max(kChunkBytes);
      const auto part = Ask(request);
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
  absl::StatusOr<v1::ReadTaskLogResponse> Ask(const v1::ReadTaskLogRequest& request) {
    auto part = worker_->ReadTaskLog(request);
    if (part.ok()) {
      told_kept_ = false;
      return part;
    }
    auto kept = scheduler_.ReadKeptLog(request);
    if (!kept.ok()) return part.status();
    if (!std::exchange(told_kept_, true)) {
      const int64_t begin = kept->next_offset() - static_cast<int64_t>(kept->data().size());
      Note(absl::StrCat(
          "rank ", rank_, ": ", part.status().message(), "; here is what the scheduler keeps",
          begin > request.offset()
              ? absl::StrCat(", without ", begin - request.offset(), " bytes before it")
              : ""));
    }
    return kept;
  }

  SchedulerClient& scheduler_;
  const std::string job_;
  const int rank_;
  LinePrinter printer_;
  std::unique_ptr<WorkerClient> worker_;
  std::string address_;
  uint64_t incarnation_ = 0;
  int64_t offset_ = 0;
  bool told_kept_ = false;  // The user knows that the worker cannot be asked.
};

// Reads all logs. Reports a log that cannot be read once, and goes on with the other logs.
class JobLogs {
 public:
  JobLogs(SchedulerClient& scheduler, const LogArguments& arguments)
      : scheduler_(scheduler), arguments_(arguments) {}

  bool Read(const v1::JobStatus& job) {
    const bool several = arguments_.rank == kAllRanks && job.tasks_size() > 1;
    bool found = false;
    for (const v1::TaskStatus& task : job.tasks()) {
      if (arguments_.rank != kAllRanks && task.rank() != arguments_.rank) continue;
      found = true;
      const std::string prefix = several ? absl::StrCat("[rank ", task.rank(), "] ") : "";
      TaskLog& log = logs_.try_emplace(task.rank(), scheduler_, arguments_.job, task.rank(), prefix)
                         .first->second;
      if (task.address().empty()) continue;  // The task is not placed yet.
      const absl::Status status = log.Read(task);
      std::string& told = told_[task.rank()];
      if (!status.ok() && told != status.message()) {
        told = std::string(status.message());
        Note(absl::StrCat("rank ", task.rank(), ": ", told));
      }
      failed_ = failed_ || !status.ok();
    }
    return found;
  }

  // Prints the results of epochs that have ended since the last call.
  void ReadEpochs(const v1::JobStatus& job) {
    if (arguments_.rank != kAllRanks) return;
    for (; epochs_told_ < job.results_size(); ++epochs_told_) {
      Print(absl::StrCat("[job] ", EpochLine(job.results(epochs_told_), job), "\n"));
    }
  }

  void Finish() {
    for (auto& [rank, log] : logs_) log.Finish();
  }
  bool failed() const { return failed_; }

 private:
  SchedulerClient& scheduler_;
  const LogArguments& arguments_;
  int epochs_told_ = 0;
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
  SchedulerClient scheduler(settings.scheduler, settings.credentials.get());
  JobLogs logs(scheduler, arguments);
  Patience patience(scheduler.address(), {.meanwhile = "the job goes on"});
  while (Interrupts::Signal() == 0) {
    const auto job = scheduler.GetJob(arguments.job);
    if (arguments.follow && patience.AsksAgain(job.status())) continue;
    if (!job.ok()) return Fail(job.status());
    const bool found = logs.Read(*job);
    const bool last = !arguments.follow || HasEnded(job->state());
    if (last && !found) return NoTask(*job, arguments.rank);
    if (last) logs.Finish();
    logs.ReadEpochs(*job);
    if (last) {
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
      job, "logs", "What a job's tasks wrote, and the figures of each epoch",
      "  capstan job logs lenet-1\n"
      "  capstan job logs lenet-1 --rank 0 --follow\n"
      "Lines of [job] have loss and accuracy of each epoch; --rank leaves them out. Where a task's "
      "worker\n"
      "is gone, the last MiB of its log, which the scheduler keeps, is shown. A terminal gets "
      "control\n"
      "characters as \\u001b and the like; a file or pipe gets the bytes that the task wrote.",
      line, [arguments](const Settings& settings) { return Logs(settings, *arguments); });
  logs->add_option("JOB", arguments->job, "Id of the job")->required();
  logs->add_option("--rank", arguments->rank, "Only this task, from 0")
      ->check(CLI::NonNegativeNumber)
      ->type_name("RANK");
  logs->add_flag("-f,--follow", arguments->follow, "Go on until the job ends");
}

}  // namespace capstan::cli
