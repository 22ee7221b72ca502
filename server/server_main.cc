// capstan-server: holds parameter shards of any number of jobs and applies updates to them.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/command_line/command.h"
#include "common/job_files/scheduler_disk.h"
#include "common/net/grpc/credentials.h"
#include "common/net/node/daemon.h"
#include "common/net/node/node_daemon.h"
#include "common/net/socket/host_port.h"
#include "common/observability/log.h"
#include "common/process/keep_memory.h"
#include "common/process/lock_order.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/storage/files/folder_lock.h"
#include "common/storage/files/private_files.h"
#include "common/storage/posix_disk.h"
#include "common/storage/space_probe.h"
#include "common/time/lease_clock.h"
#include "kernels/cuda/element_rules.h"
#include "server/agent/log_recovery.h"
#include "server/agent/server_agent.h"
#include "server/checkpoint/checkpoint_writer.h"
#include "server/checkpoint/disk_table_source.h"
#include "server/device/cuda_shard_device.h"
#include "server/device/shard_device.h"
#include "server/engine/job/held_jobs.h"
#include "server/log/log_collector.h"
#include "server/log/server_log.h"
#include "server/optimizer/plugin/load_plugin.h"
#include "server/optimizer/plugin/plugin_rules.h"
#include "server/replication/grpc_replica_transport.h"
#include "server/rpc/deadline_timer.h"
#include "server/rpc/parameter_service.h"
#include "server/store/memory_budget.h"
#include "server/store/sparse/disk/file_row_disks.h"

namespace capstan::server {
namespace {

constexpr absl::Duration kGraceMax = absl::Hours(24);
constexpr char kOff[] = "off";
constexpr int kPushConnectionsMax = 4;     // A worker uses at most this many.
constexpr int kProcessorsAConnection = 4;  // One thread cannot use the full memory bandwidth.

struct Flags {
  NodeFlags node;
  std::string data_dir;
  std::string grace = "30s";
  std::string log_grace = "24h";
  std::string data_listen;  // Empty: any port of the host of --listen; "off": none.
  MemoryBudget::Limits memory;
  std::string device = "cpu";
  std::vector<std::string> rule_plugins;
};

// Checks --grace: returns what is wrong with it, or an empty string.
std::string CheckGrace(const std::string& text) {
  absl::Duration grace;
  const bool known = absl::ParseDuration(text, &grace);
  if (known && grace >= absl::ZeroDuration() && grace <= kGraceMax) return "";
  return absl::StrCat("got \"", text, "\", expected a time of at most 24h such as 30s, or 0");
}

// Checks --log-grace, as above.
std::string CheckLogGrace(const std::string& text) {
  absl::Duration grace;
  if (absl::ParseDuration(text, &grace) && grace >= absl::ZeroDuration()) return "";
  return absl::StrCat("got \"", text, "\", expected a time such as 24h, or inf");
}

// Checks --data-listen, as above.
std::string CheckDataListen(const std::string& text) {
  if (text == kOff) return "";
  return std::string(ParseHostPort(text).status().message());
}

std::string DeviceHelp() {
  std::vector<std::string> rules;
  for (const kernels::cuda::UpdateRuleTraits& traits : kernels::cuda::kUpdateRules) {
    if (traits.on_device) rules.emplace_back(traits.name);
  }
  return absl::StrCat(
      "cpu, cuda or cuda:<index>: where the masters and the optimizer state of layers lie and are "
      "updated; rows of sparse tables and rules other than ",
      absl::StrJoin(rules, ", "), " stay on the host");
}

void AddFlags(Program& program, Flags* flags) {
  AddNodeFlags(program, "capstan-server", &flags->node);
  program.AddOption(
      "--data-dir", flags->data_dir,
      "Folder of this server alone, for the write-ahead logs of jobs with durability LOG "
      "and rows of tables with memory_mib; without it such jobs are refused");
  program
      .AddOption("--log-grace", flags->log_grace,
                 "How long a log in the data folder stays whose job the scheduler does not know, "
                 "or has ended; inf: for ever")
      .Check(CheckLogGrace)
      .ShowDefault();
  program
      .AddOption("--data-listen", flags->data_listen,
                 "host:port for data connections, by which workers push and pull beside gRPC; "
                 "default: any free port of the host of --listen; off: none, gRPC carries all")
      .Check(CheckDataListen);
  program
      .AddOption("--memory-limit", flags->memory.all,
                 "Bytes (or 500MB, 64GB, ...) that values and optimizer state of all jobs may take "
                 "here; shards beyond are refused. 0: no limit")
      .InBytes()
      .ShowDefault();
  program.AddOption("--job-memory-limit", flags->memory.one_job, "Likewise, of each job")
      .InBytes()
      .ShowDefault();
  program.AddOption("--device", flags->device, DeviceHelp()).ShowDefault();
  program
      .AddOption("--rule-plugin", flags->rule_plugins,
                 "Shared library with update rules (capstan_rule.h), which jobs may then name; "
                 "repeatable. It runs with this server's rights, and has to be root's or its "
                 "user's, for nobody else to write. Its rules run on the host, also with --device")
      .ValueName("FILE")
      .OneValueEach();
  program
      .AddOption("--grace", flags->grace,
                 "Longest time between SIGTERM (or SIGINT) and the end: until the shards have "
                 "moved to other servers it goes on serving; a second signal ends it at once, "
                 "or after the shard in the making")
      .Check(CheckGrace)
      .ShowDefault();
  program.SetFooter(
      "Example:\n  capstan-server --scheduler=node-1:7070 --listen=0.0.0.0:7071 "
      "--data-dir=/var/lib/capstan-server");
}

// Returns a text such as "shards of a-1, b-2"; empty if no job is held.
std::string NamesOfHeld(const HeldJobs& jobs) {
  std::vector<std::string> names;
  for (const auto& job : jobs.All()) names.push_back(job->job());
  return names.empty() ? "" : absl::StrCat("shards of ", absl::StrJoin(names, ", "));
}

// The parts of the daemon, in the order in which they start.
class Daemon final : public NodeProgram {
 public:
  Daemon(const Flags& flags, NodeDaemon* node);
  ~Daemon() override;
  // Errors: the folder for logs and rows cannot be used, or the node cannot start.
  absl::Status Start() override;
  // Serves until its shards have moved away or the grace is over, then ends every call.
  void Stop() override;

 private:
  ServerAgent::Options TableOptions();
  absl::Status OpenFolder(const std::string& folder);  // `folder` exists.
  absl::Status OpenLog(const std::string& folder);
  absl::Status OpenDevice();
  absl::Status LoadPlugins();
  absl::Status ListenForData();
  int PushConnections() const;
  // Returns the disk that has a checkpoint's folder.
  absl::StatusOr<Disk*> DiskOf(const std::string& folder);

  const Flags flags_;
  NodeDaemon* const node_;
  LeaseClock clock_;
  PosixDisk disk_;
  SchedulerDisk scheduler_disk_;
  std::optional<FolderLock> folder_lock_;
  std::unique_ptr<FileRowDisks> row_disks_;  // Null: no folder was given. Outlives all rows.
  std::unique_ptr<ShardDevice> device_;      // Null: --device=cpu. Outlives all shards.
  PluginRules plugins_;                      // Outlives all shards.
  HeldJobs jobs_;
  DeadlineTimer timer_;
  GrpcReplicaTransport transport_;
  std::unique_ptr<ServerLog> log_;             // Null: no folder was given.
  std::unique_ptr<LogRecovery> log_recovery_;  // Null: no folder. Its thread uses tables_.
  std::unique_ptr<LogCollector> collector_;
  std::unique_ptr<DiskTableSource> source_;
  CheckpointWriter checkpoints_;
  std::unique_ptr<ServerAgent> tables_;
  ParameterService service_;
};

Daemon::Daemon(const Flags& flags, NodeDaemon* node)
    : flags_(flags),
      node_(node),
      scheduler_disk_({.scheduler = flags.node.scheduler, .credentials = node->credentials()}),
      timer_(&clock_, [this](Instant now) { return jobs_.Tick(now); }),
      transport_(node->credentials()),
      checkpoints_([this](const std::string& folder) { return DiskOf(folder); }, nullptr),
      service_(&jobs_, {.authenticated = node->credentials() != nullptr}) {}

absl::StatusOr<Disk*> Daemon::DiskOf(const std::string& folder) {
  CAPSTAN_ASSIGN_OR_RETURN(const bool shared, scheduler_disk_.IsShared(folder, disk_));
  if (shared) return &disk_;
  return &scheduler_disk_;
}

ServerAgent::Options Daemon::TableOptions() {
  ServerAgent::Options options;
  options.jobs = &jobs_;
  options.clock = &clock_;
  options.transport = &transport_;
  options.budget = std::make_shared<MemoryBudget>(flags_.memory);
  options.row_disks = row_disks_.get();
  options.device = device_.get();
  options.plugins = &plugins_;
  options.log = log_.get();
  if (log_ != nullptr) {
    options.stored = [this] {
      log_->ReopenFailed();
      for (const auto& [log, status] : log_->Unreadable()) log_recovery_->LogFailed(status);
      return log_->Stored();
    };
    options.logs = [this] { return log_->Logs(); };
  }
  options.unclaimed = collector_.get();
  options.source = source_.get();
  options.checkpoints = &checkpoints_;
  options.on_change = [this] { node_->Wake(); };  // Nothing changes before the agent starts.
  options.schedule_tick = [this](Instant at) { timer_.Schedule(at); };
  return options;
}

Daemon::~Daemon() {
  if (log_recovery_ != nullptr) log_recovery_->Stop();
  // The node calls the tables. They call the node, as the members below do: all of them stop before
  // any is destroyed.
  node_->StopSyncing();
  scheduler_disk_.Stop();  // Nobody waits for the scheduler any more.
  if (tables_ != nullptr) tables_->Stop();
  checkpoints_.Stop();
  jobs_.DropAll(absl::UnavailableError("this server stops"));
  service_.CloseSegments();
  service_.CloseDataConnections();
  timer_.Stop();
  transport_.Stop();
  if (log_ != nullptr) log_->Stop();
  node_->StopServing();
}

absl::Status Daemon::OpenFolder(const std::string& folder) {
  CAPSTAN_ASSIGN_OR_RETURN(folder_lock_, FolderLock::Take(folder));
  node_->KeepStateIn(folder);
  CAPSTAN_ASSIGN_OR_RETURN(row_disks_, FileRowDisks::Create(folder + "/rows"));
  return OpenLog(folder);
}

// The log acknowledges records through jobs_, so it is opened before any job is there.
absl::Status Daemon::OpenLog(const std::string& folder) {
  ServerLog::Options options;
  options.disk = &disk_;
  options.folder = folder + "/logs";
  options.on_logged = [this](const JobId& job, const std::string& unique_id, const ShardKey& shard,
                             Term term, Position position) {
    jobs_.OnLogged(job, unique_id, shard, term, position);
  };
  options.on_failed = [this](const JobId& job, const std::string& unique_id,
                             const absl::Status& status) {
    jobs_.OnLogFailed(job, unique_id, status);
    log_recovery_->LogFailed(status);
  };
  CAPSTAN_RETURN_IF_ERROR(disk_.MakeFolder(options.folder));
  log_recovery_ = std::make_unique<LogRecovery>(LogRecovery::Options{
      .probe =
          [this, logs = options.folder, segment = options.job.segment_bytes_max] {
            return ProbeSpace(logs, segment + log_->SpaceAwaited().value_or(0));
          },
      .need = [this] { return tables_->NeedOfNewIncarnation(log_->SpaceAwaited().has_value()); },
      .begin_anew = [this] { node_->BeginAnew(); }});
  log_ = std::make_unique<ServerLog>(std::move(options));
  CAPSTAN_RETURN_IF_ERROR(log_->Open());
  for (const auto& [log, status] : log_->Unreadable()) {
    LogError({}, "log {} cannot be read: {}", log, std::string(status.message()));
    log_recovery_->LogFailed(status);
  }
  LogCollector::Options collecting{.disk = &disk_, .folder = folder + "/logs"};
  absl::ParseDuration(flags_.log_grace, &collecting.grace);  // Checked when the flags were read.
  collector_ = std::make_unique<LogCollector>(log_.get(), std::move(collecting));
  return absl::OkStatus();
}

absl::Status Daemon::ListenForData() {
  if (flags_.data_listen == kOff) return absl::OkStatus();
  if (!flags_.data_listen.empty()) {
    CAPSTAN_ASSIGN_OR_RETURN(const HostPort wished, ParseHostPort(flags_.data_listen));
    // An address at which other hosts cannot reach this one is not told to them.
    const HostPort told = AdvertisedAddress(wished, "");
    return service_.ListenForData(flags_.data_listen, told.host, PushConnections(),
                                  node_->credentials(), node_->audit());
  }
  CAPSTAN_ASSIGN_OR_RETURN(HostPort any, ParseHostPort(flags_.node.daemon.listen));
  any.port = 0;
  return service_.ListenForData(FormatHostPort(any), /*host=*/"", PushConnections(),
                                node_->credentials(), node_->audit());
}

// On a GPU, as many updates are in flight as there are threads that wait for one.
int Daemon::PushConnections() const {
  if (device_ != nullptr) return kPushConnectionsMax;
  const auto processors = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(processors / kProcessorsAConnection, 1, kPushConnectionsMax);
}

absl::Status Daemon::OpenDevice() {
  absl::StatusOr<std::unique_ptr<ShardDevice>> device = OpenShardDevice(flags_.device);
  if (!device.ok()) return Annotate(device.status(), "--device");
  device_ = *std::move(device);
  if (device_ != nullptr) LogInfo({}, "shards of layers lie on {}", device_->Name());
  return absl::OkStatus();
}

absl::Status Daemon::LoadPlugins() {
  for (const std::string& file : flags_.rule_plugins) {
    CAPSTAN_RETURN_IF_ERROR(Annotate(LoadPlugin(file, &plugins_), "--rule-plugin"));
  }
  for (const auto& [name, rule] : plugins_.all()) {
    LogInfo({}, "update rule {} of {}, SHA-256 {}", name, rule.file, rule.digest);
  }
  return absl::OkStatus();
}

// Plugins come first: nothing runs beside their constructors, and no confinement stops them.
absl::Status Daemon::Start() {
  CAPSTAN_RETURN_IF_ERROR(LoadPlugins());
  CAPSTAN_RETURN_IF_ERROR(OpenDevice());
  CAPSTAN_ASSIGN_OR_RETURN(const std::string folder,
                           ConfineDaemon(flags_.node.daemon, flags_.data_dir));
  if (!folder.empty()) CAPSTAN_RETURN_IF_ERROR(OpenFolder(folder));
  source_ = std::make_unique<DiskTableSource>(&disk_, log_.get(), &scheduler_disk_);
  tables_ = std::make_unique<ServerAgent>(TableOptions());
  CAPSTAN_RETURN_IF_ERROR(ListenForData());
  timer_.Start();
  tables_->Start();
  CAPSTAN_RETURN_IF_ERROR(
      node_->Start(v1::SERVER, /*task_capacity=*/0, {&service_}, tables_.get()));
  if (log_recovery_ != nullptr) log_recovery_->Start();  // It needs a node that registers.
  return absl::OkStatus();
}

void Daemon::Stop() {
  absl::Duration grace;
  absl::ParseDuration(flags_.grace, &grace);  // Checked when the flags were read.
  node_->LeaveWhenSafe(grace, [this] { return NamesOfHeld(jobs_); });
  node_->StopSyncing();  // A read that the next line ends is not reported.
  scheduler_disk_.Stop();
  jobs_.DropAll(absl::UnavailableError("this server stops"));
  service_.CloseSegments();
  service_.CloseDataConnections();
  node_->StopServing();
}

}  // namespace
}  // namespace capstan::server

int main(int argc, char** argv) {
  capstan::KeepNewFilesPrivate();
  capstan::RequireTls13();
  capstan::KeepFreedMemory();
  capstan::SkipLockOrderChecks();
  capstan::Program program(
      "capstan-server: holds parameter shards of training jobs for a Capstan scheduler");
  capstan::server::Flags flags;
  capstan::server::AddFlags(program, &flags);
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  std::vector<std::string> listens;
  if (!flags.data_listen.empty() && flags.data_listen != capstan::server::kOff) {
    listens.push_back(flags.data_listen);
  }
  return capstan::RunNodeDaemon(flags.node, capstan::PeerRole::kServer, listens,
                                [&flags](capstan::NodeDaemon* node) {
                                  return std::make_unique<capstan::server::Daemon>(flags, node);
                                });
}
