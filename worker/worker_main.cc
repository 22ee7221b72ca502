// capstan-worker: the worker daemon, (with --task) the process of one of its tasks, and the program
// that `capstan predict` and `capstan evaluate` run.
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/command_line/command.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc/credentials.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/net/node/daemon.h"
#include "common/net/node/node_daemon.h"
#include "common/observability/log.h"
#include "common/process/keep_memory.h"
#include "common/process/lock_order.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/storage/files/private_files.h"
#include "proto/task_logs.grpc.pb.h"
#include "worker/daemon/devices/device_probe.h"
#include "worker/daemon/log_uploader.h"
#include "worker/daemon/program_uids.h"
#include "worker/daemon/task_files.h"
#include "worker/daemon/task_supervisor.h"
#include "worker/daemon/worker_service.h"
#include "worker/prediction/prediction_command.h"
#include "worker/task/computation/backend.h"
#include "worker/task/run_task.h"

namespace capstan::worker {
namespace {

constexpr int kExitBadSpec = 2;
constexpr int kTaskCapacityMax = 4096;
constexpr char kOff[] = "off";
constexpr absl::Duration kLeaveTimeout = absl::Seconds(2);
constexpr absl::Duration kKeepLogTimeout = absl::Seconds(2);

struct Flags {
  NodeFlags node;
  std::string work_dir = "capstan-work";
  int task_capacity = 1;
  bool run_programs = false;
  std::string program_uids;  // Empty: kDynamicUids for root, else off.
  bool task = false;
  std::string spec;
};

// Returns what is wrong with the range, or an empty text.
std::string CheckProgramUids(const std::string& text) {
  return text == kOff ? "" : std::string(ParseUidRange(text).status().message());
}

std::optional<UidRange> ProgramUidsOf(const Flags& flags) {
  if (flags.program_uids == kOff) return std::nullopt;
  if (!flags.program_uids.empty()) return ParseUidRange(flags.program_uids).value();
  return geteuid() == 0 ? std::optional(kDynamicUids) : std::nullopt;
}

void AddFlags(Program& program, Flags* flags) {
  AddNodeFlags(program, "capstan-worker", &flags->node);
  program.AddOption("--work-dir", flags->work_dir, "Folder for the specs and logs of tasks")
      .ShowDefault();
  program.AddOption("--task-capacity", flags->task_capacity, "Tasks that it runs at a time")
      .Between(1, kTaskCapacityMax)
      .ShowDefault();
  program.AddFlag(
      "--run-programs", flags->run_programs,
      "Run the programs that jobs name: if this is root, as users of their own, else with "
      "the rights of this daemon");
  program
      .AddOption("--program-uids", flags->program_uids,
                 "FIRST-LAST: the programs of each job run as one of these users, which nobody "
                 "else has; only root can do that, and does by default, with 61184-65519. off: "
                 "they run as this daemon's user, also if it is root")
      .ValueName("FIRST-LAST")
      .Check(CheckProgramUids);
  // The daemon passes these flags to its children; they are not for users.
  Option task = program.AddFlag("--task", flags->task, "").Hidden();
  Option spec = program.AddOption("--spec", flags->spec, "").Hidden();
  task.Needs(spec);
  spec.Needs(task);
  program.SetFooter(
      "Example:\n  capstan-worker --scheduler=node-1:7070 --listen=0.0.0.0:7080 "
      "--work-dir=/var/lib/capstan");
}

int RunTaskProcess(const Flags& flags) {
  signal(SIGPIPE, SIG_IGN);
  const absl::StatusOr<v1::TaskAssignment> assignment = ReadTaskSpec(flags.spec);
  if (!assignment.ok()) {
    InitDaemonLogging(flags.node.daemon, "task");
    LogError({}, "{}", std::string(assignment.status().message()));
    return kExitBadSpec;
  }
  InitDaemonLogging(flags.node.daemon,
                    absl::StrCat("task ", assignment->job_id(), "/", assignment->rank()));
  const absl::StatusOr<std::unique_ptr<Credentials>> credentials =
      OpenCredentials(flags.node.daemon, PeerRole::kWorker, /*listens=*/{});
  if (!credentials.ok()) {
    LogError({}, "{}", std::string(credentials.status().message()));
    return kExitBadSpec;
  }
  const std::string folder = std::filesystem::path(flags.spec).parent_path().string();
  if (const auto confined = ConfineDaemon(flags.node.daemon, folder); !confined.ok()) {
    LogError({}, "{}", std::string(confined.status().message()));
    return kExitBadSpec;
  }
  return RunTask(*assignment, flags.node.scheduler, credentials->get(), folder,
                 Computation::Create);
}

// The parts of the daemon, in the order in which they start.
class Daemon final : public NodeProgram {
 public:
  Daemon(const Flags& flags, NodeDaemon* node) : flags_(flags), node_(node) {}
  ~Daemon() override;
  // Errors: the work folder cannot be made, or the node cannot start.
  absl::Status Start() override;
  // Leaves the cluster, ends the tasks and reports their ends: others get their leases at once.
  void Stop() override;

 private:
  absl::StatusOr<int64_t> KeepLog(const v1::KeepTaskLogRequest& request);

  const Flags flags_;
  NodeDaemon* const node_;
  std::unique_ptr<TaskSupervisor> tasks_;
  std::unique_ptr<WorkerService> service_;
  std::unique_ptr<v1::TaskLogs::Stub> logs_;
  std::unique_ptr<LogUploader> uploader_;
};

Daemon::~Daemon() {
  node_->StopServing();  // Its calls use tasks_.
  node_->StopSyncing();  // Its thread uses tasks_.
  uploader_.reset();     // It uses tasks_, and tasks_ uses it...
  tasks_.reset();        // ...and the node: all threads end before any of the objects is destroyed.
}

Devices FindDevices() {
  DeviceProbe probe({.backend_problem = GpuBackendProblem});
  Devices devices = probe.Find();
  for (const Gpu& gpu : devices.gpus) {
    LogInfo({}, "GPU {}: {}, {} MiB, compute capability {}", gpu.index, gpu.name,
            gpu.memory_bytes >> 20, gpu.compute_capability);
  }
  for (const std::string& gpu : probe.left_out()) LogWarning({}, "{}", gpu);
  if (!devices.unusable.empty()) LogInfo({}, "tasks compute on the CPU: {}", devices.unusable);
  return devices;
}

absl::StatusOr<int64_t> Daemon::KeepLog(const v1::KeepTaskLogRequest& request) {
  grpc::ClientContext context;
  SetDeadline(context, kKeepLogTimeout);
  v1::KeepTaskLogResponse response;
  CAPSTAN_RETURN_IF_ERROR(FromGrpcStatus(logs_->KeepTaskLog(&context, request, &response)));
  return response.next_offset();
}

absl::Status Daemon::Start() {
  TaskSupervisor::Options options;
  absl::StatusOr<std::string> work_dir = ConfineDaemon(flags_.node.daemon, flags_.work_dir);
  if (!work_dir.ok()) {
    return Annotate(work_dir.status(), absl::StrCat("--work-dir=", flags_.work_dir));
  }
  options.work_dir = *std::move(work_dir);
  options.allow_path = flags_.node.daemon.allow_path;
  node_->KeepStateIn(options.work_dir);
  options.scheduler = flags_.node.scheduler;
  options.tls_dir = flags_.node.daemon.tls_dir;
  options.log_format = flags_.node.daemon.log_format;
  options.run_programs = flags_.run_programs;
  options.program_uids = ProgramUidsOf(flags_);
  options.devices = FindDevices();
  options.on_change = [this] { node_->Wake(); };  // There are no tasks before the node starts.
  options.on_start = [this](const TaskName& task) { uploader_->Watch(task); };
  logs_ = v1::TaskLogs::NewStub(
      MakeChannel(flags_.node.scheduler, ChannelKind::kControl, node_->credentials()));
  uploader_ = std::make_unique<LogUploader>(LogUploader::Options{
      .read =
          [this, work_dir = options.work_dir](const v1::ReadTaskLogRequest& request) {
            return ReadTaskLog(work_dir, request,
                               [this](const TaskName& task) { return tasks_->IsRunning(task); });
          },
      .keep = [this](const v1::KeepTaskLogRequest& request) { return KeepLog(request); }});
  tasks_ = std::make_unique<TaskSupervisor>(options);
  CAPSTAN_RETURN_IF_ERROR(tasks_->Start());
  service_ = std::make_unique<WorkerService>(
      options.work_dir, [this](const TaskName& task) { return tasks_->IsRunning(task); });
  uploader_->Start();
  LogInfo({}, "tasks in {}", options.work_dir);
  return node_->Start(v1::WORKER, flags_.task_capacity, {service_.get()}, tasks_.get());
}

void Daemon::Stop() {
  const absl::Status left = node_->Leave(kLeaveTimeout);
  if (!left.ok()) LogWarning({}, "{}", std::string(left.message()));
  if (const int count = tasks_->StopTasks(); count > 0)
    LogWarning({}, "{} tasks do not end", count);
  if (left.ok()) node_->Leave(kLeaveTimeout).IgnoreError();  // Reports the ends of the tasks.
  uploader_->Stop();
  node_->StopSyncing();
  node_->StopServing();
}

}  // namespace
}  // namespace capstan::worker

int main(int argc, char** argv) {
  capstan::KeepNewFilesPrivate();
  capstan::RequireTls13();
  capstan::KeepFreedMemory();
  capstan::SkipLockOrderChecks();
  if (argc > 1 && capstan::worker::IsPrediction(argv[1])) {
    return capstan::worker::RunPrediction(argc - 1, argv + 1);
  }
  capstan::Program program(
      "capstan-worker: runs the training tasks that a Capstan scheduler assigns to it");
  capstan::worker::Flags flags;
  capstan::worker::AddFlags(program, &flags);
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  if (flags.task) return capstan::worker::RunTaskProcess(flags);
  return capstan::RunNodeDaemon(flags.node, capstan::PeerRole::kWorker, {},
                                [&flags](capstan::NodeDaemon* node) {
                                  return std::make_unique<capstan::worker::Daemon>(flags, node);
                                });
}
