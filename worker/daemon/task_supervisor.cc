#include "worker/daemon/task_supervisor.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/devices/devices_codec.h"
#include "common/observability/log.h"
#include "common/process/harmless_variables.h"
#include "common/process/last_lines.h"
#include "common/status/status_macros.h"

namespace capstan::worker {
namespace {

constexpr int kExitNotStarted = 127;  // Shells use the same code.
constexpr int kLastLinesMax = 20;
constexpr char kPlansVariable[] = "CAPSTAN_CUDA_PLANS";  // worker/task/computation/backend.h
constexpr int64_t kLastBytesMax = 4096;
constexpr absl::Duration kKillPatience = absl::Seconds(5);

TaskName NameOf(const v1::TaskAssignment& assignment) {
  return {assignment.job_id(), Rank(assignment.rank()), Incarnation(assignment.incarnation())};
}

std::string Describe(const TaskEnd& end) {
  if (end.signal == 0) return absl::StrCat("with exit code ", end.exit_code);
  return absl::StrCat("by signal ", end.signal, " (", strsignal(end.signal), ")");
}

// How a process ended, with the last lines of its log if it failed.
TaskEnd EndOf(const absl::StatusOr<ExitStatus>& end, const std::string& log) {
  if (!end.ok()) {
    return {.exit_code = kExitNotStarted, .signal = 0, .last_lines = end.status().ToString()};
  }
  TaskEnd task_end{.exit_code = end->code, .signal = end->signal, .last_lines = ""};
  if (end->code != 0 || end->signal != 0) {
    task_end.last_lines = LastLines(log, kLastLinesMax, kLastBytesMax).value_or("");
  }
  return task_end;
}

std::string AbsoluteOrEmpty(const std::string& path) {
  return path.empty() ? "" : std::filesystem::absolute(path).string();
}

}  // namespace

TaskSupervisor::TaskSupervisor(Options options)
    : options_(std::move(options)),
      supervisor_([this](uint64_t id, const absl::StatusOr<ExitStatus>& end) {
        OnProcessEnd(ProcessId(id), end);
      }) {}

TaskSupervisor::~TaskSupervisor() { supervisor_.Stop(absl::ZeroDuration()); }

absl::Status TaskSupervisor::Start() {
  if (options_.run_programs && options_.program_uids.has_value()) {
    program_users_ = std::make_unique<ProgramUsers>(
        ProgramUsers::Options{.uids = *options_.program_uids,
                              .work_dir = options_.work_dir,
                              .tls_dir = AbsoluteOrEmpty(options_.tls_dir)});
    CAPSTAN_RETURN_IF_ERROR(program_users_->Start());
  }
  DeleteOldFiles();  // Deletes the files of this daemon's earlier incarnations.
  return supervisor_.Start();
}

void TaskSupervisor::DeleteOldFiles() const {
  const int deleted = DeleteOldTasks(options_.work_dir, options_.ended_tasks_kept,
                                     [this](const TaskName& task) { return IsRunning(task); });
  if (deleted > 0) LogInfo({}, "deleted the files of {} old tasks", deleted);
}

int TaskSupervisor::StopTasks() {
  TaskActions actions;
  {
    absl::MutexLock lock(&mutex_);
    table_.StopAll(&actions);
  }
  Perform(actions, {});
  absl::MutexLock lock(&mutex_);
  const auto all_ended = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return table_.running_count() == 0;
  };
  mutex_.AwaitWithTimeout(absl::Condition(&all_ended), options_.stop_grace + kKillPatience);
  return table_.running_count();
}

bool TaskSupervisor::IsRunning(const TaskName& task) const {
  absl::MutexLock lock(&mutex_);
  return table_.IsRunning(task);
}

void TaskSupervisor::FillRegistration(v1::RegisterRequest& request) {
  DevicesToProto(options_.devices, *request.mutable_devices());
}

void TaskSupervisor::Restarted(const NodeId& node_id, Incarnation) {
  SetLogRole(node_id);
  TaskActions actions;
  {
    absl::MutexLock lock(&mutex_);
    table_.NewIncarnation(&actions);
  }
  if (!actions.kill.empty())
    LogWarning({}, "killing {} tasks of an earlier incarnation", actions.kill.size());
  Perform(actions, {});
}

void TaskSupervisor::FillState(v1::SyncNodeRequest& request) {
  absl::MutexLock lock(&mutex_);
  for (const TaskReport& report : table_.Report()) {
    v1::TaskState& state = *request.add_tasks();
    state.set_job_id(report.task.job);
    state.set_rank(report.task.rank.value());
    state.set_incarnation(report.task.incarnation.value());
    state.set_exited(report.exited);
    if (!report.exited) continue;
    state.set_exit_code(report.end.exit_code);
    state.set_signal(report.end.signal);
    state.set_last_lines(report.end.last_lines);
  }
}

void TaskSupervisor::TakeDesired(const v1::SyncNodeResponse& response) {
  std::map<TaskName, const v1::TaskAssignment*> assignments;
  std::vector<TaskName> desired;
  for (const v1::TaskAssignment& assignment : response.tasks()) {
    desired.push_back(NameOf(assignment));
    assignments.emplace(desired.back(), &assignment);
  }
  TaskActions actions;
  {
    absl::MutexLock lock(&mutex_);
    table_.TakeDesired(desired, &actions);
  }
  Perform(actions, assignments);
}

void TaskSupervisor::Perform(const TaskActions& actions,
                             const std::map<TaskName, const v1::TaskAssignment*>& assignments) {
  for (const ProcessId process : actions.kill) {
    supervisor_.Terminate(process.value(), absl::ZeroDuration());
  }
  for (const ProcessId process : actions.terminate) {
    supervisor_.Terminate(process.value(), options_.stop_grace);
  }
  for (const TaskActions::Start& start : actions.start) {
    const absl::Status started = StartTask(start.process, start.task, *assignments.at(start.task));
    if (started.ok()) continue;
    LogError({.job = start.task.job}, "task {} (incarnation {}) cannot be started: {}",
             start.task.rank.value(), start.task.incarnation.value(), started.ToString());
    Ended(start.process,
          {.exit_code = kExitNotStarted, .signal = 0, .last_lines = started.ToString()});
  }
  if (actions.report && options_.on_change) options_.on_change();
}

SpawnOptions TaskSupervisor::ModelTask(const TaskFiles& files) const {
  SpawnOptions options;
  options.program = options_.program;
  options.name = "capstan-worker";
  options.args = {"--task", "--scheduler=" + options_.scheduler, "--spec=" + files.spec,
                  "--log-format=" + options_.log_format};
  if (!options_.tls_dir.empty()) options.args.push_back("--tls-dir=" + options_.tls_dir);
  for (const std::string& rules : options_.allow_path) {
    options.args.push_back("--allow-path=" + rules);
  }
  return options;
}

absl::StatusOr<SpawnOptions> TaskSupervisor::ProgramOf(const TaskName& task,
                                                       const v1::TaskAssignment& assignment,
                                                       const TaskFiles& files) {
  if (!options_.run_programs) {
    return absl::FailedPreconditionError(
        "this worker runs no programs of users: it was started without --run-programs");
  }
  const v1::Program& program = assignment.spec().program();
  SpawnOptions options;
  ProgramUsers::Place place{
      .folder = files.folder, .spec = files.spec, .tls_dir = AbsoluteOrEmpty(options_.tls_dir)};
  if (program_users_ != nullptr) {
    CAPSTAN_ASSIGN_OR_RETURN(place, program_users_->TaskStarts(task, files, assignment));
    options.user = place.user;
    // The daemon's folders are not open to it.
    options.environment = {{"HOME", place.folder}, {"TMPDIR", place.folder + "/tmp"}};
  }
  options.no_new_privileges = true;
  options.program = "/usr/bin/env";  // Finds it on PATH.
  options.name = "env";
  options.args = {"--"};
  if (program.command_size() > 0 &&
      (absl::StrContains(program.command(0), '=') || program.command(0) == "-")) {
    // env would take it for a variable, or for its option -i; a shell finds it just as well.
    options.args.insert(options.args.end(), {"sh", "-c", "exec \"$0\" \"$@\""});
  }
  options.args.insert(options.args.end(), program.command().begin(), program.command().end());
  options.directory = program.directory().empty() ? place.folder : program.directory();
  for (const auto& [name, value] : program.environment()) {
    options.environment.push_back({name, value});
  }
  // The variables that torch.distributed's launcher sets, too, with each task as a group of its
  // own, and then those that the library reads. The job cannot replace them.
  const std::string rank = std::to_string(assignment.rank());
  const std::string world = std::to_string(assignment.spec().resources().workers());
  for (const auto& [name, value] :
       {std::pair("RANK", rank), std::pair("WORLD_SIZE", world), std::pair("GROUP_RANK", rank),
        std::pair("GROUP_WORLD_SIZE", world), std::pair("LOCAL_RANK", std::string("0")),
        std::pair("LOCAL_WORLD_SIZE", std::string("1")), std::pair("CAPSTAN_TASK_SPEC", place.spec),
        std::pair("CAPSTAN_SCHEDULER", options_.scheduler),
        std::pair("CAPSTAN_TLS_DIR", place.tls_dir),
        std::pair("CAPSTAN_LOG_FORMAT", options_.log_format)}) {
    options.environment.push_back({name, value});
  }
  return options;
}

absl::Status TaskSupervisor::StartTask(ProcessId process, const TaskName& task,
                                       const v1::TaskAssignment& assignment) {
  CAPSTAN_ASSIGN_OR_RETURN(const TaskFiles files, TaskFilesOf(options_.work_dir, task));
  DeleteOldFiles();
  CAPSTAN_RETURN_IF_ERROR(WriteTaskSpec(files, assignment));
  const v1::Resources& resources = assignment.spec().resources();
  const int threads = resources.has_threads() ? std::max(1, resources.threads()) : 1;
  SpawnOptions options;
  if (assignment.spec().has_program()) {
    CAPSTAN_ASSIGN_OR_RETURN(options, ProgramOf(task, assignment, files));
  } else {
    options = ModelTask(files);
  }
  options.inherits = IsHarmlessVariable;
  std::vector<std::pair<std::string, std::string>> defaults = {
      {"OMP_NUM_THREADS", std::to_string(threads)}};
  // The fastest plans on its GPUs, which one task measures and later tasks reuse.
  if (std::getenv(kPlansVariable) == nullptr) {
    defaults.push_back({kPlansVariable, options_.work_dir + "/.cuda-plans"});
  }
  options.environment.insert(options.environment.begin(), defaults.begin(), defaults.end());
  options.output_file = files.log;
  {
    absl::MutexLock lock(&mutex_);
    processes_[process] = {task, files, options.user.has_value()};
  }
  LogInfo({.job = task.job}, "starting task {} (incarnation {}), log {}", task.rank.value(),
          task.incarnation.value(), files.log);
  if (options_.on_start) options_.on_start(task);
  supervisor_.Spawn(process.value(), std::move(options));
  absl::MutexLock lock(&mutex_);  // StopTasks may have come first and found no process.
  if (table_.stopping()) supervisor_.Terminate(process.value(), options_.stop_grace);
  return absl::OkStatus();
}

void TaskSupervisor::OnProcessEnd(ProcessId process, const absl::StatusOr<ExitStatus>& end) {
  Process ended;
  {
    absl::MutexLock lock(&mutex_);
    ended = processes_.at(process);
    processes_.erase(process);
  }
  if (ended.has_user) program_users_->TaskEnded(ended.task, ended.files);
  TaskEnd task_end = EndOf(end, ended.files.log);
  const bool bad = task_end.exit_code != 0 || task_end.signal != 0;
  LogLine(bad ? LogLevel::kWarning : LogLevel::kInfo, {.job = ended.task.job},
          fmt::format("task {} (incarnation {}) ended {}", ended.task.rank.value(),
                      ended.task.incarnation.value(), Describe(task_end)));
  Ended(process, std::move(task_end));
}

void TaskSupervisor::Ended(ProcessId process, TaskEnd end) {
  TaskActions actions;
  {
    absl::MutexLock lock(&mutex_);
    table_.ProcessEnded(process, std::move(end), &actions);
  }
  Perform(actions, {});
}

}  // namespace capstan::worker
