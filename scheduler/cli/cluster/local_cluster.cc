#include "scheduler/cli/cluster/local_cluster.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/net/grpc/credentials.h"
#include "common/status/status_macros.h"
#include "common/storage/files/descriptor.h"
#include "common/tensor/safetensors/durable_file.h"
#include "common/time/clock.h"
#include "common/time/duration_text.h"
#include "scheduler/cli/client/client.h"
#include "scheduler/cli/cluster/local_certificates.h"
#include "scheduler/cli/console/interrupts.h"
#include "scheduler/cli/settings/cluster_file.h"
#include "scheduler/cli/settings/process.h"

namespace capstan::cli {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(20);
constexpr absl::Duration kStopGrace = absl::Seconds(5);  // After a failed start.
// At SIGTERM a server first moves its shards to other servers, which also stop. The second SIGTERM
// ends it without that.
constexpr absl::Duration kFirstSignal = absl::Seconds(1);
constexpr absl::Duration kKillLimit = absl::Seconds(5);  // Longest wait for the end after SIGKILL.
constexpr size_t kLogTailBytes = 2000;

ProcessId IdOf(const LocalProcess& process) { return {process.pid(), process.start_time()}; }

// Locks the folder against other processes that start or stop its cluster, while the descriptor is
// open.
absl::StatusOr<Descriptor> LockDirectory(const std::string& directory) {
  Descriptor lock(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock.ok()) return absl::ErrnoToStatus(errno, directory);
  if (flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  return absl::AlreadyExistsError(
      absl::StrCat(directory, ": another command is starting or stopping the cluster there"));
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string LogTail(const std::string& path) {
  std::string text = ReadFile(path);
  if (text.size() > kLogTailBytes) text.erase(0, text.find('\n', text.size() - kLogTailBytes) + 1);
  return text.empty() ? absl::StrCat("Its log ", path, " is empty.")
                      : absl::StrCat("The end of its log ", path, ":\n", text);
}

// Starts the daemons one after the other, and records the started ones.
class Starter {
 public:
  Starter(const LocalClusterOptions& options, Instant deadline)
      : options_(options), deadline_(deadline) {}

  const ClusterFile& cluster() const { return cluster_; }

  absl::Status Run() {
    CAPSTAN_RETURN_IF_ERROR(
        MakeLocalCertificates(options_.directory, options_.servers, options_.workers));
    cluster_.set_tls_dir(LocalTlsFolder(options_.directory, "user"));
    CAPSTAN_RETURN_IF_ERROR(Start("scheduler", options_.binaries.scheduler,
                                  {absl::StrCat("--data-dir=", options_.directory, "/scheduler")}));
    CAPSTAN_RETURN_IF_ERROR(AwaitAddresses());
    cluster_.set_scheduler(cluster_.processes(0).address());
    const std::string scheduler = absl::StrCat("--scheduler=", cluster_.scheduler());
    for (int i = 1; i <= options_.servers; ++i) {
      const std::string name = absl::StrCat("server-", i);
      std::vector<std::string> arguments = {
          scheduler, absl::StrCat("--name=", name),
          absl::StrCat("--data-dir=", options_.directory, "/", name)};
      for (const std::string& file : options_.rule_plugins) {
        arguments.push_back(absl::StrCat("--rule-plugin=", file));
      }
      CAPSTAN_RETURN_IF_ERROR(Start(name, options_.binaries.server, arguments));
    }
    for (int i = 1; i <= options_.workers; ++i) {
      const std::string name = absl::StrCat("worker-", i);
      CAPSTAN_RETURN_IF_ERROR(
          Start(name, options_.binaries.worker,
                {scheduler, absl::StrCat("--name=", name),
                 absl::StrCat("--work-dir=", options_.directory, "/", name), "--run-programs",
                 // The user who submits has started the daemons. His programs lie in folders that
                 // other users cannot enter, and gain nothing by his rights.
                 "--program-uids=off"}));
    }
    CAPSTAN_RETURN_IF_ERROR(AwaitAddresses());
    CAPSTAN_RETURN_IF_ERROR(WriteClusterFile(options_.directory, cluster_));
    return AwaitRegistration();
  }

 private:
  std::string PortFile(const std::string& name) const {
    return absl::StrCat(options_.directory, "/logs/", name, ".port");
  }

  absl::Status Start(const std::string& name, const std::string& program,
                     const std::vector<std::string>& arguments) {
    const std::string log = absl::StrCat(options_.directory, "/logs/", name, ".log");
    unlink(PortFile(name).c_str());
    SpawnOptions spawn;
    spawn.program = program;
    spawn.args = {"--listen=127.0.0.1:0", absl::StrCat("--port-file=", PortFile(name)),
                  absl::StrCat("--tls-dir=", LocalTlsFolder(options_.directory, name))};
    spawn.args.push_back(absl::StrCat("--allow-path=", options_.directory));
    for (const std::string& rules : options_.allow_path) {
      spawn.args.push_back(absl::StrCat("--allow-path=", rules));
    }
    spawn.args.insert(spawn.args.end(), arguments.begin(), arguments.end());
    spawn.directory = options_.directory;
    spawn.output_file = log;
    if (options_.end_with_parent) spawn.death_signal = SIGTERM;
    CAPSTAN_ASSIGN_OR_RETURN(const ProcessId id, StartInBackground(spawn));
    LocalProcess* process = cluster_.add_processes();
    process->set_name(name);
    process->set_pid(id.pid);
    process->set_start_time(id.start_time);
    process->set_log(log);
    // The file is written at once, so that `cluster down` finds the daemon even if this process is
    // killed next.
    return WriteClusterFile(options_.directory, cluster_);
  }

  // Returns an error if the wait must end: after a signal, the end of a daemon, or the deadline.
  absl::Status MayWait(const std::string& missing) const {
    if (Interrupts::Signal() != 0) return absl::CancelledError("interrupted");
    for (const LocalProcess& process : cluster_.processes()) {
      if (IsAlive(IdOf(process))) continue;
      const std::string how = HowItEnded(IdOf(process));
      return absl::AbortedError(
          absl::StrCat(process.name(), " ended while the cluster was starting",
                       how.empty() ? "" : " with ", how, ". ", LogTail(process.log())));
    }
    if (SteadyClock().Now() < deadline_) return absl::OkStatus();
    return absl::DeadlineExceededError(absl::StrCat("after ", DurationText(options_.start_limit),
                                                    " these had not ", missing,
                                                    ". Logs: ", options_.directory, "/logs"));
  }

  absl::Status AwaitAddresses() {
    for (LocalProcess& process : *cluster_.mutable_processes()) {
      while (process.address().empty()) {
        const std::string text = ReadFile(PortFile(process.name()));
        if (absl::EndsWith(text, "\n")) {
          process.set_address(std::string(absl::StripAsciiWhitespace(text)));
          unlink(PortFile(process.name()).c_str());
          break;
        }
        CAPSTAN_RETURN_IF_ERROR(MayWait(absl::StrCat("begun to listen: ", process.name())));
        Interrupts::Sleep(kPollInterval);
      }
    }
    return absl::OkStatus();
  }

  absl::Status AwaitRegistration() {
    CAPSTAN_ASSIGN_OR_RETURN(const auto credentials, Credentials::Read(cluster_.tls_dir()));
    SchedulerClient scheduler({cluster_.scheduler(), "the local cluster"}, credentials.get());
    while (true) {
      std::vector<std::string> missing;
      const auto nodes = scheduler.ListNodes();
      for (int i = 1; i < cluster_.processes_size(); ++i) {
        const LocalProcess& process = cluster_.processes(i);
        const bool registered =
            nodes.ok() &&
            std::any_of(nodes->nodes().begin(), nodes->nodes().end(), [&](const auto& node) {
              return node.alive() && node.node_id() == process.name() &&
                     node.pid() == process.pid();
            });
        if (!registered) missing.push_back(process.name());
      }
      if (missing.empty()) return absl::OkStatus();
      CAPSTAN_RETURN_IF_ERROR(MayWait(absl::StrCat("registered: ", absl::StrJoin(missing, ", "))));
      Interrupts::Sleep(kPollInterval);
    }
  }

  const LocalClusterOptions& options_;
  const Instant deadline_;
  ClusterFile cluster_;
};

StopReport StopProcesses(const ClusterFile& cluster, absl::Duration grace) {
  StopReport report;
  const SteadyClock clock;
  const Instant deadline = clock.Now() + grace;
  for (const char* role : {"worker", "server", "scheduler"}) {
    std::vector<ProcessId> group;
    for (const LocalProcess& process : cluster.processes()) {
      if (!absl::StartsWith(process.name(), role) || !IsAlive(IdOf(process))) continue;
      group.push_back(IdOf(process));
      SendSignal(group.back(), SIGTERM);
    }
    if (AwaitEnd(group, std::min(kFirstSignal, deadline - clock.Now()))) continue;
    for (const ProcessId& id : group) SendSignal(id, SIGTERM);
    if (AwaitEnd(group, deadline - clock.Now())) continue;
    for (const LocalProcess& process : cluster.processes()) {
      if (!absl::StartsWith(process.name(), role) || !IsAlive(IdOf(process))) continue;
      report.killed.push_back(process.name());
      SendSignal(IdOf(process), SIGKILL);
    }
    AwaitEnd(group, kKillLimit);
  }
  for (const LocalProcess& process : cluster.processes()) {
    KillSession(IdOf(process));
    waitpid(process.pid(), nullptr, WNOHANG);  // Fails unless it was a child of this process.
  }
  return report;
}

}  // namespace

absl::StatusOr<ClusterFile> StartLocalCluster(const LocalClusterOptions& options) {
  CAPSTAN_RETURN_IF_ERROR(MakeDirectories(absl::StrCat(options.directory, "/logs")));
  CAPSTAN_ASSIGN_OR_RETURN(const Descriptor lock, LockDirectory(options.directory));
  const auto before = ReadClusterFile(options.directory);
  if (before.ok()) {
    const bool runs = std::any_of(before->processes().begin(), before->processes().end(),
                                  [](const auto& process) { return IsAlive(IdOf(process)); });
    if (runs) {
      return absl::AlreadyExistsError(
          absl::StrCat("a cluster runs in ", options.directory, " already, its scheduler at ",
                       before->scheduler(), "; take it down with `capstan cluster down --dir ",
                       options.directory, "`"));
    }
  }
  Starter starter(options, SteadyClock().Now() + options.start_limit);
  const absl::Status status = starter.Run();
  if (status.ok()) return starter.cluster();
  StopProcesses(starter.cluster(), kStopGrace);
  RemoveClusterFile(options.directory).IgnoreError();  // The caller needs the first error.
  return status;
}

absl::StatusOr<StopReport> StopLocalCluster(const std::string& directory, absl::Duration grace) {
  CAPSTAN_ASSIGN_OR_RETURN(const ClusterFile first, ReadClusterFile(directory));
  CAPSTAN_ASSIGN_OR_RETURN(const Descriptor lock, LockDirectory(directory));
  CAPSTAN_ASSIGN_OR_RETURN(const ClusterFile cluster, ReadClusterFile(directory));
  const StopReport report = StopProcesses(cluster, grace);
  CAPSTAN_RETURN_IF_ERROR(RemoveClusterFile(directory));
  return report;
}

std::vector<std::string> DeadProcesses(const ClusterFile& cluster) {
  std::vector<std::string> dead;
  for (const LocalProcess& process : cluster.processes()) {
    if (!IsAlive(IdOf(process))) dead.push_back(process.name());
  }
  return dead;
}

}  // namespace capstan::cli
