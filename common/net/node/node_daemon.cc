#include "common/net/node/node_daemon.h"

#include <unistd.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/net/gate/call_counts.h"
#include "common/net/socket/host_port.h"
#include "common/observability/log.h"
#include "common/process/descriptor_limit.h"
#include "common/status/status_macros.h"
#include "common/time/duration_text.h"

namespace capstan {
namespace {

constexpr int kExitFailed = 1;
constexpr absl::Duration kServerGrace = absl::Seconds(1);
constexpr absl::Duration kCountsInterval = absl::Seconds(1);

// Adds the counts of calls to a sync, unless one had them a moment ago.
std::function<void(v1::SyncNodeRequest&)> AddCounts(const AuditLog* audit) {
  return [audit, added = absl::InfinitePast()](v1::SyncNodeRequest& request) mutable {
    const absl::Time now = absl::Now();
    if (now >= added && now - added < kCountsInterval) return;
    EncodeCallCounts(*audit, *request.mutable_calls());
    added = now;
  };
}

NodeFlags Named(NodeFlags flags, const Credentials* credentials) {
  if (credentials != nullptr) flags.daemon.name = credentials->self().name;
  return flags;
}

}  // namespace

void AddNodeFlags(Program& program, const std::string& name, NodeFlags* flags) {
  AddDaemonFlags(program, name, &flags->daemon);
  AddSchedulerFlag(program, &flags->scheduler);
  AddAdvertiseFlag(program, &flags->daemon);
}

NodeDaemon::NodeDaemon(NodeFlags flags, std::unique_ptr<AuditLog> audit,
                       std::unique_ptr<Credentials> credentials)
    : audit_(std::move(audit)),
      handshakes_(audit_.get()),
      credentials_(std::move(credentials)),
      flags_(Named(std::move(flags), credentials_.get())) {}

NodeDaemon::~NodeDaemon() {
  StopSyncing();
  StopServing();
}

v1::RegisterRequest NodeDaemon::Describe(v1::Role role, int task_capacity) const {
  v1::RegisterRequest self;
  self.set_role(role);
  self.set_name(flags_.daemon.name);
  self.set_address(PeerAddress(flags_.daemon, server_->address()));
  self.set_task_capacity(task_capacity);
  self.set_hostname(LocalHostname());
  self.set_pid(getpid());
  self.set_identity(identity_.id());
  return self;
}

void NodeDaemon::KeepStateIn(const std::string& folder) {
  folder_ = folder;
  const std::string& name = flags_.daemon.name;
  if (name.empty()) return;  // Each process without a name gets a new identity.
  absl::StatusOr<NodeIdentity> kept = NodeIdentity::Keep(folder, name);
  if (kept.ok()) {
    identity_ = *std::move(kept);
  } else {
    LogWarning({}, "this process cannot prove that it is the successor of an earlier {}: {}", name,
               std::string(kept.status().message()));
  }
}

absl::Status NodeDaemon::Start(v1::Role role, int task_capacity,
                               std::vector<grpc::Service*> services, NodeHandler* handler) {
  CAPSTAN_RETURN_IF_ERROR(OpenAuditLog(flags_.daemon, folder_, audit_.get()));
  CAPSTAN_ASSIGN_OR_RETURN(server_, GrpcServer::Start({.listen = flags_.daemon.listen,
                                                       .reflection = flags_.daemon.reflection,
                                                       .services = std::move(services),
                                                       .credentials = credentials_.get(),
                                                       .audit = audit_.get()}));
  LogInfo({}, "listening on {}", server_->address());
  NodeAgent::Options options;
  options.scheduler = flags_.scheduler;
  options.self = Describe(role, task_capacity);
  options.on_fatal = [this](const absl::Status& status) { OnFatal(status); };
  options.add_counts = AddCounts(audit_.get());
  agent_ = std::make_unique<NodeAgent>(options, handler, credentials_.get());
  if (!flags_.daemon.port_file.empty()) {
    CAPSTAN_RETURN_IF_ERROR(WritePortFile(flags_.daemon.port_file, options.self.address()));
  }
  agent_->Start();
  return absl::OkStatus();
}

void NodeDaemon::OnFatal(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    fatal_ = status;
  }
  RequestShutdown();
}

absl::Status NodeDaemon::Wait() {
  const int received = AwaitShutdown(flags_.daemon);
  absl::MutexLock lock(&mutex_);
  if (fatal_.ok()) LogInfo({}, "stopping: signal {}", received);
  return fatal_;
}

void NodeDaemon::Wake() { agent_->Wake(); }

void NodeDaemon::BeginAnew() { agent_->BeginAnew(); }

absl::Status NodeDaemon::Leave(absl::Duration timeout) { return agent_->Leave(timeout); }

void NodeDaemon::LeaveWhenSafe(absl::Duration grace, const std::function<std::string()>& held) {
  LogInfo({},
          "leaving: serves on until nothing of a job is here, at most {}; a second signal ends "
          "that at once",
          DurationText(grace));
  agent_->LeaveWhenSafe([this](bool safe) {
    {
      absl::MutexLock lock(&mutex_);
      left_ = safe;
    }
    RequestShutdown();  // Ends the wait below as a signal does.
  });
  const std::optional<int> received = WaitForShutdownSignal(grace);
  std::optional<bool> left;
  absl::Status fatal;
  {
    absl::MutexLock lock(&mutex_);
    left = left_;
    fatal = fatal_;
  }
  if (left.value_or(false)) {
    LogInfo({}, "nothing of a job is here any more: stops");
    return;
  }
  const std::string rest = held();
  const std::string still = rest.empty() ? "" : absl::StrCat(" and still holds ", rest);
  if (left.has_value()) {
    LogWarning(
        {},
        "stops{}: it is not registered with the scheduler, so nobody has said that no job waits "
        "for what is on its disk",
        still);
  } else if (!fatal.ok()) {
    LogWarning({}, "stops{}: {}", still, std::string(fatal.message()));
  } else if (received.has_value()) {
    LogWarning({}, "stops at once{}: signal {}", still, *received);
  } else {
    LogWarning({}, "stops after its grace of {}{}: the scheduler did not say that it may",
               DurationText(grace), still);
  }
}

void NodeDaemon::StopSyncing() {
  if (agent_ != nullptr) agent_->Stop();
}

void NodeDaemon::StopServing() {
  if (server_ != nullptr) server_->Shutdown(kServerGrace);
}

int RunNodeDaemon(const NodeFlags& flags, PeerRole role, std::vector<std::string> listens,
                  const std::function<std::unique_ptr<NodeProgram>(NodeDaemon*)>& make) {
  BlockSignals();
  RaiseDescriptorLimit();
  const std::string name =
      flags.daemon.name.empty() ? std::string(PeerRoleName(role)) : flags.daemon.name;
  InitDaemonLogging(flags.daemon, name);
  listens.push_back(flags.daemon.listen);
  std::unique_ptr<AuditLog> audit = MakeAuditLog(flags.daemon, name);
  absl::StatusOr<std::unique_ptr<Credentials>> credentials =
      OpenCredentials(flags.daemon, role, listens, audit.get());
  if (!credentials.ok()) {
    LogError({}, "{}", std::string(credentials.status().message()));
    return kExitFailed;
  }
  NodeDaemon node(flags, std::move(audit), *std::move(credentials));
  const std::unique_ptr<NodeProgram> program = make(&node);
  const absl::Status started = program->Start();
  if (!started.ok()) {
    LogError({}, "{}", std::string(started.message()));
    return kExitFailed;
  }
  const absl::Status fatal = node.Wait();
  if (fatal.ok()) program->Stop();
  return fatal.ok() ? 0 : kExitFailed;
}

}  // namespace capstan
