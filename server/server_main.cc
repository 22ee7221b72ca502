// capstan-server: holds parameter shards of any number of jobs and applies updates to them.
#include <unistd.h>

#include <CLI/App.hpp>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/net/daemon.h"
#include "common/net/grpc_server.h"
#include "common/net/host_port.h"
#include "common/net/node_agent.h"
#include "common/observability/log.h"
#include "common/process/keep_memory.h"
#include "common/status/status_macros.h"
#include "common/storage/folder_lock.h"
#include "common/storage/posix_disk.h"
#include "common/time/clock.h"
#include "server/agent/server_agent.h"
#include "server/service/deadline_timer.h"
#include "server/service/grpc_replica_transport.h"
#include "server/service/held_jobs.h"
#include "server/service/parameter_service.h"
#include "server/storage/checkpoint_writer.h"
#include "server/storage/disk_table_source.h"
#include "server/storage/server_log.h"

namespace capstan::server {
namespace {

constexpr int kExitFailed = 1;
constexpr absl::Duration kLeaveTimeout = absl::Seconds(2);
constexpr absl::Duration kServerGrace = absl::Seconds(1);

struct Flags {
  DaemonFlags daemon;
  std::string scheduler;
  std::string data_dir;
};

void AddFlags(CLI::App& app, Flags* flags) {
  AddDaemonFlags(app, "capstan-server", &flags->daemon);
  AddSchedulerFlag(app, &flags->scheduler);
  AddAdvertiseFlag(app, &flags->daemon);
  app.add_option("--data-dir", flags->data_dir,
                 "Folder for the write-ahead logs of jobs with durability LOG, of this server "
                 "alone; without it such jobs are refused");
  app.footer(
      "Example:\n  capstan-server --scheduler=node-1:7070 --listen=0.0.0.0:7071 "
      "--data-dir=/var/lib/capstan-server");
}

// The parts of the daemon, in the order in which they start.
class Daemon {
 public:
  Daemon();
  ~Daemon();
  // Errors: the folder for logs cannot be used, the address not be listened on, or the port file
  //         not be written.
  absl::Status Start(const Flags& flags);
  // Waits for a signal or a refusal by the scheduler; the latter is the result.
  absl::Status Wait();
  // Says good-bye and ends every call.
  void Stop();

 private:
  void OnFatal(const absl::Status& status);
  NodeAgent::Options AgentOptions(const Flags& flags);
  ServerAgent::Options TableOptions();
  absl::Status OpenLog(const std::string& folder);

  SteadyClock clock_;
  HeldJobs jobs_;
  DeadlineTimer timer_;
  GrpcReplicaTransport transport_;
  PosixDisk disk_;
  std::optional<FolderLock> folder_lock_;
  std::unique_ptr<ServerLog> log_;  // Null: no folder was given.
  std::unique_ptr<DiskTableSource> source_;
  CheckpointWriter checkpoints_;
  std::unique_ptr<ServerAgent> tables_;
  ParameterService service_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<NodeAgent> agent_;

  absl::Mutex mutex_;
  absl::Status fatal_ ABSL_GUARDED_BY(mutex_);
};

Daemon::Daemon()
    : timer_(&clock_, [this](Instant now) { return jobs_.Tick(now); }),
      checkpoints_(&disk_, nullptr),
      service_(&jobs_) {}

ServerAgent::Options Daemon::TableOptions() {
  ServerAgent::Options options;
  options.jobs = &jobs_;
  options.clock = &clock_;
  options.transport = &transport_;
  options.log = log_.get();
  if (log_ != nullptr) options.stored = [this] { return log_->Stored(); };
  options.source = source_.get();
  options.checkpoints = &checkpoints_;
  options.on_change = [this] { agent_->Wake(); };  // Nothing changes before the agent starts.
  options.schedule_tick = [this](Instant at) { timer_.Schedule(at); };
  return options;
}

Daemon::~Daemon() {
  if (agent_ != nullptr) agent_->Stop();    // It calls the tables...
  if (tables_ != nullptr) tables_->Stop();  // ...and they call it, as those below do, which end
  checkpoints_.Stop();                      // before anything goes.
  jobs_.DropAll(absl::UnavailableError("this server stops"));
  timer_.Stop();
  transport_.Stop();
  if (log_ != nullptr) log_->Stop();
  server_.reset();
}

// Its records are acknowledged through jobs_, so it is opened before any job is there.
absl::Status Daemon::OpenLog(const std::string& folder) {
  CAPSTAN_RETURN_IF_ERROR(disk_.MakeFolder(folder));
  CAPSTAN_ASSIGN_OR_RETURN(folder_lock_, FolderLock::Take(folder));
  ServerLog::Options options;
  options.disk = &disk_;
  options.folder = folder + "/logs";
  options.on_logged = [this](const JobId& job, const ShardKey& shard, Term term,
                             Position position) { jobs_.OnLogged(job, shard, term, position); };
  options.on_failed = [this](const JobId& job, const absl::Status& status) {
    jobs_.OnLogFailed(job, status);
  };
  CAPSTAN_RETURN_IF_ERROR(disk_.MakeFolder(options.folder));
  log_ = std::make_unique<ServerLog>(std::move(options));
  CAPSTAN_RETURN_IF_ERROR(log_->Open());
  for (const auto& [job, status] : log_->Unreadable()) {
    LogError({.job = job}, "its log cannot be read: {}", std::string(status.message()));
  }
  return absl::OkStatus();
}

absl::Status Daemon::Start(const Flags& flags) {
  if (!flags.data_dir.empty()) CAPSTAN_RETURN_IF_ERROR(OpenLog(flags.data_dir));
  source_ = std::make_unique<DiskTableSource>(&disk_, log_.get());
  tables_ = std::make_unique<ServerAgent>(TableOptions());
  timer_.Start();
  tables_->Start();
  CAPSTAN_ASSIGN_OR_RETURN(server_, GrpcServer::Start({.listen = flags.daemon.listen,
                                                       .reflection = flags.daemon.reflection,
                                                       .services = {&service_}}));
  LogInfo({}, "listening on {}", server_->address());
  const NodeAgent::Options options = AgentOptions(flags);
  agent_ = std::make_unique<NodeAgent>(options, tables_.get());
  if (!flags.daemon.port_file.empty()) {
    CAPSTAN_RETURN_IF_ERROR(WritePortFile(flags.daemon.port_file, options.self.address()));
  }
  agent_->Start();
  return absl::OkStatus();
}

NodeAgent::Options Daemon::AgentOptions(const Flags& flags) {
  const std::string hostname = LocalHostname();
  NodeAgent::Options options;
  options.scheduler = flags.scheduler;
  options.self.set_role(v1::SERVER);
  options.self.set_name(flags.daemon.name);
  options.self.set_address(PeerAddress(flags.daemon, server_->address()));
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
  agent_->Stop();
  jobs_.DropAll(absl::UnavailableError("this server stops"));
  server_->Shutdown(kServerGrace);
}

int RunDaemon(const Flags& flags) {
  BlockSignals();
  InitDaemonLogging(flags.daemon, flags.daemon.name.empty() ? "server" : flags.daemon.name);
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
}  // namespace capstan::server

int main(int argc, char** argv) {
  capstan::KeepFreedMemory();
  CLI::App app("capstan-server: holds parameter shards of training jobs for a Capstan scheduler");
  capstan::server::Flags flags;
  capstan::server::AddFlags(app, &flags);
  if (const auto exit_code = capstan::ParseCommandLine(app, argc, argv)) return *exit_code;
  return capstan::server::RunDaemon(flags);
}
