// capstan-worker: the worker daemon, and (with --task) the process of one of its tasks.
#include <unistd.h>

#include <CLI/App.hpp>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/net/daemon.h"
#include "common/net/grpc_server.h"
#include "common/net/host_port.h"
#include "common/net/node_agent.h"
#include "common/observability/log.h"
#include "common/process/keep_memory.h"
#include "common/status/status_macros.h"
#include "worker/daemon/task_files.h"
#include "worker/daemon/task_supervisor.h"
#include "worker/daemon/worker_service.h"
#include "worker/task/run_task.h"

namespace capstan::worker {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitBadSpec = 2;
constexpr int kTaskCapacityMax = 4096;
constexpr absl::Duration kLeaveTimeout = absl::Seconds(2);
constexpr absl::Duration kServerGrace = absl::Seconds(1);

struct Flags {
  DaemonFlags daemon;
  std::string scheduler;
  std::string work_dir = "capstan-work";
  int task_capacity = 1;
  bool task = false;
  std::string spec;
};

void AddFlags(CLI::App& app, Flags* flags) {
  AddDaemonFlags(app, "capstan-worker", &flags->daemon);
  AddSchedulerFlag(app, &flags->scheduler);
  AddAdvertiseFlag(app, &flags->daemon);
  app.add_option("--work-dir", flags->work_dir, "Folder for the specs and logs of tasks")
      ->capture_default_str();
  app.add_option("--task-capacity", flags->task_capacity, "Tasks that it runs at a time")
      ->check(CLI::Range(1, kTaskCapacityMax))
      ->capture_default_str();
  // What the daemon passes to its children; not for people.
  CLI::Option* task = app.add_flag("--task", flags->task)->group("");
  CLI::Option* spec = app.add_option("--spec", flags->spec)->group("");
  task->needs(spec);
  spec->needs(task);
  app.footer(
      "Example:\n  capstan-worker --scheduler=node-1:7070 --listen=0.0.0.0:7080 "
      "--work-dir=/var/lib/capstan");
}

int RunTaskProcess(const Flags& flags) {
  signal(SIGPIPE, SIG_IGN);
  const absl::StatusOr<v1::TaskAssignment> assignment = ReadTaskSpec(flags.spec);
  if (!assignment.ok()) {
    InitDaemonLogging(flags.daemon, "task");
    LogError({}, "{}", std::string(assignment.status().message()));
    return kExitBadSpec;
  }
  InitDaemonLogging(flags.daemon,
                    absl::StrCat("task ", assignment->job_id(), "/", assignment->rank()));
  return RunTask(*assignment, flags.scheduler);
}

// The parts of the daemon, in the order in which they start.
class Daemon {
 public:
  ~Daemon();
  // Errors: the work folder cannot be made, or the address cannot be listened on.
  absl::Status Start(const Flags& flags);
  // Waits for a signal or a refusal by the scheduler; the latter is the result.
  absl::Status Wait();
  // Says good-bye, ends the tasks, reports their ends.
  void Stop();

 private:
  void OnFatal(const absl::Status& status);
  NodeAgent::Options AgentOptions(const Flags& flags);

  std::unique_ptr<TaskSupervisor> tasks_;
  std::unique_ptr<WorkerService> service_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<NodeAgent> agent_;

  absl::Mutex mutex_;
  absl::Status fatal_ ABSL_GUARDED_BY(mutex_);
};

Daemon::~Daemon() {
  server_.reset();                        // Its calls ask the tasks.
  if (agent_ != nullptr) agent_->Stop();  // It calls the tasks...
  tasks_.reset();                         // ...and they call it: both threads end before both go.
}

absl::StatusOr<std::string> MakeWorkDir(const std::string& work_dir) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(work_dir, error);
  if (!error) std::filesystem::create_directories(path, error);
  if (!error) return path.string();
  return absl::UnavailableError(absl::StrCat("--work-dir=", work_dir, ": ", error.message()));
}

absl::Status Daemon::Start(const Flags& flags) {
  TaskSupervisor::Options options;
  CAPSTAN_ASSIGN_OR_RETURN(options.work_dir, MakeWorkDir(flags.work_dir));
  options.scheduler = flags.scheduler;
  options.log_format = flags.daemon.log_format;
  options.on_change = [this] { agent_->Wake(); };  // There are no tasks before the agent starts.
  tasks_ = std::make_unique<TaskSupervisor>(options);
  CAPSTAN_RETURN_IF_ERROR(tasks_->Start());
  service_ = std::make_unique<WorkerService>(
      options.work_dir, [this](const TaskName& task) { return tasks_->IsRunning(task); });
  CAPSTAN_ASSIGN_OR_RETURN(server_, GrpcServer::Start({.listen = flags.daemon.listen,
                                                       .reflection = flags.daemon.reflection,
                                                       .services = {service_.get()}}));
  LogInfo({}, "listening on {}, tasks in {}", server_->address(), options.work_dir);
  const NodeAgent::Options agent_options = AgentOptions(flags);
  agent_ = std::make_unique<NodeAgent>(agent_options, tasks_.get());
  if (!flags.daemon.port_file.empty()) {
    CAPSTAN_RETURN_IF_ERROR(WritePortFile(flags.daemon.port_file, agent_options.self.address()));
  }
  agent_->Start();
  return absl::OkStatus();
}

NodeAgent::Options Daemon::AgentOptions(const Flags& flags) {
  const std::string hostname = LocalHostname();
  NodeAgent::Options options;
  options.scheduler = flags.scheduler;
  options.self.set_role(v1::WORKER);
  options.self.set_name(flags.daemon.name);
  options.self.set_address(PeerAddress(flags.daemon, server_->address()));
  options.self.set_task_capacity(flags.task_capacity);
  options.self.set_hostname(hostname);
  options.self.set_pid(getpid());
  options.on_fatal = [this](const absl::Status& status) { OnFatal(status); };
  return options;
}

void Daemon::OnFatal(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    fatal_ = status;
  }
  RequestShutdown();
}

absl::Status Daemon::Wait() {
  const std::optional<int> received = WaitForShutdownSignal(absl::InfiniteDuration());
  absl::MutexLock lock(&mutex_);
  if (fatal_.ok()) LogInfo({}, "stopping: signal {}", received.value_or(0));
  return fatal_;
}

void Daemon::Stop() {
  const absl::Status left = agent_->Leave(kLeaveTimeout);
  if (!left.ok()) LogWarning({}, "{}", std::string(left.message()));
  if (const int count = tasks_->StopTasks(); count > 0)
    LogWarning({}, "{} tasks do not end", count);
  if (left.ok()) agent_->Leave(kLeaveTimeout).IgnoreError();  // The ends of the tasks.
  agent_->Stop();
  server_->Shutdown(kServerGrace);
}

int RunDaemon(const Flags& flags) {
  BlockSignals();
  InitDaemonLogging(flags.daemon, flags.daemon.name.empty() ? "worker" : flags.daemon.name);
  Daemon daemon;
  const absl::Status started = daemon.Start(flags);
  if (!started.ok()) {
    LogError({}, "{}", std::string(started.message()));
    return kExitFailed;
  }
  const absl::Status fatal = daemon.Wait();
  if (fatal.ok()) daemon.Stop();
  return fatal.ok() ? 0 : kExitFailed;
}

}  // namespace
}  // namespace capstan::worker

int main(int argc, char** argv) {
  capstan::KeepFreedMemory();
  CLI::App app("capstan-worker: runs the training tasks that a Capstan scheduler assigns to it");
  capstan::worker::Flags flags;
  capstan::worker::AddFlags(app, &flags);
  if (const auto exit_code = capstan::ParseCommandLine(app, argc, argv)) return *exit_code;
  return flags.task ? capstan::worker::RunTaskProcess(flags) : capstan::worker::RunDaemon(flags);
}
