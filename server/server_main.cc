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
#include "common/time/clock.h"
#include "server/agent/server_agent.h"
#include "server/service/deadline_timer.h"
#include "server/service/grpc_replica_transport.h"
#include "server/service/held_jobs.h"
#include "server/service/parameter_service.h"

namespace capstan::server {
namespace {

constexpr int kExitFailed = 1;
constexpr absl::Duration kLeaveTimeout = absl::Seconds(2);
constexpr absl::Duration kServerGrace = absl::Seconds(1);

struct Flags {
  DaemonFlags daemon;
  std::string scheduler;
};

void AddFlags(CLI::App& app, Flags* flags) {
  AddDaemonFlags(app, "capstan-server", &flags->daemon);
  AddSchedulerFlag(app, &flags->scheduler);
  AddAdvertiseFlag(app, &flags->daemon);
  app.footer("Example:\n  capstan-server --scheduler=node-1:7070 --listen=0.0.0.0:7071");
}

// The parts of the daemon, in the order in which they start.
class Daemon {
 public:
  Daemon();
  ~Daemon();
  // Errors: the address cannot be listened on, or the port file not be written.
  absl::Status Start(const Flags& flags);
  // Waits for a signal or a refusal by the scheduler; the latter is the result.
  absl::Status Wait();
  // Says good-bye and ends every call.
  void Stop();

 private:
  void OnFatal(const absl::Status& status);
  NodeAgent::Options AgentOptions(const Flags& flags);
  ServerAgent::Options TableOptions();

  SteadyClock clock_;
  HeldJobs jobs_;
  DeadlineTimer timer_;
  GrpcReplicaTransport transport_;
  ServerAgent tables_;
  ParameterService service_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<NodeAgent> agent_;

  absl::Mutex mutex_;
  absl::Status fatal_ ABSL_GUARDED_BY(mutex_);
};

Daemon::Daemon()
    : timer_(&clock_, [this](Instant now) { return jobs_.Tick(now); }),
      tables_(TableOptions()),
      service_(&jobs_) {}

ServerAgent::Options Daemon::TableOptions() {
  ServerAgent::Options options;
  options.jobs = &jobs_;
  options.clock = &clock_;
  options.transport = &transport_;
  options.on_change = [this] { agent_->Wake(); };  // Nothing changes before the agent starts.
  options.schedule_tick = [this](Instant at) { timer_.Schedule(at); };
  return options;
}

Daemon::~Daemon() {
  if (agent_ != nullptr) agent_->Stop();  // It calls the tables...
  tables_.Stop();                         // ...and they call it: all threads end before both go.
  jobs_.DropAll(absl::UnavailableError("this server stops"));
  timer_.Stop();
  transport_.Stop();
  server_.reset();
}

absl::Status Daemon::Start(const Flags& flags) {
  timer_.Start();
  tables_.Start();
  CAPSTAN_ASSIGN_OR_RETURN(server_, GrpcServer::Start({.listen = flags.daemon.listen,
                                                       .reflection = flags.daemon.reflection,
                                                       .services = {&service_}}));
  LogInfo({}, "listening on {}", server_->address());
  const NodeAgent::Options options = AgentOptions(flags);
  agent_ = std::make_unique<NodeAgent>(options, &tables_);
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
