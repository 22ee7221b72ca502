// capstan-scheduler: parses the flags and connects the scheduler's objects.
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/command_line/command.h"
#include "common/net/gate/handshake_audit.h"
#include "common/net/grpc/credentials.h"
#include "common/net/grpc/grpc_server.h"
#include "common/net/node/daemon.h"
#include "common/net/socket/host_port.h"
#include "common/observability/log.h"
#include "common/process/descriptor_limit.h"
#include "common/process/version.h"
#include "common/security/audit_log.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/storage/files/path_access.h"
#include "common/storage/files/private_files.h"
#include "common/storage/posix_disk.h"
#include "common/time/clock.h"
#include "scheduler/admission/job_check_process.h"
#include "scheduler/files/job_files_service.h"
#include "scheduler/files/uploads.h"
#include "scheduler/files/uploads_service.h"
#include "scheduler/scheduler_service.h"
#include "scheduler/store/sqlite/sqlite_store.h"
#include "scheduler/task_logs/task_logs_service.h"

namespace capstan::scheduler {
namespace {

constexpr char kExamples[] =
    "Examples:\n"
    "  capstan-scheduler --listen=0.0.0.0:7070 --data-dir=/var/lib/capstan\n"
    "  capstan-scheduler --listen=127.0.0.1:0 --port-file=/tmp/scheduler.address\n"
    "  capstan-scheduler --data-dir=/var/lib/capstan --keep-jobs=200 --keep-jobs-for=720h\n"
    "  capstan-scheduler --config=/etc/capstan/scheduler.toml\n";
constexpr absl::Duration kShutdownGrace = absl::Seconds(1);
constexpr absl::Duration kRecordInterval = absl::Seconds(1);  // SchedulerCore::Options.

struct Flags {
  DaemonFlags daemon;
  std::string data_dir = "capstan-data";
  std::string lease = "3s";
  std::string sync_interval = "200ms";
  int keep_jobs = 1000;
  int keep_logs_mib = 1024;
  int admission_memory_mib = 16384;
  std::string admission_time = "30m";
  std::string keep_jobs_for;  // Empty: no limit of age.
};

absl::StatusOr<absl::Duration> ParsePositive(const std::string& flag, const std::string& text) {
  absl::Duration duration;
  if (absl::ParseDuration(text, &duration) && duration > absl::ZeroDuration() &&
      duration <= absl::Hours(1)) {
    return duration;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag, ": got \"", text, "\", expected a time of at most 1h such as 500ms or 5s"));
}

absl::StatusOr<SchedulerService::Options> MakeOptions(const Flags& flags) {
  SchedulerService::Options options;
  options.hostname = LocalHostname();
  CAPSTAN_ASSIGN_OR_RETURN(options.core.lease, ParsePositive("lease", flags.lease));
  CAPSTAN_ASSIGN_OR_RETURN(options.core.sync_interval,
                           ParsePositive("sync-interval", flags.sync_interval));
  if (options.core.lease < 4 * options.core.sync_interval) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--lease: got ", flags.lease, ", expected at least 4 times --sync-interval, ",
        flags.sync_interval, ": a node that syncs in time must not be taken for dead"));
  }
  JobCheckLimits limits;
  limits.memory_bytes = int64_t{flags.admission_memory_mib} << 20;
  CAPSTAN_ASSIGN_OR_RETURN(limits.time, ParsePositive("admission-time", flags.admission_time));
  std::error_code error;
  const auto data_folder = std::filesystem::absolute(flags.data_dir, error).lexically_normal();
  if (error) return absl::UnavailableError(absl::StrCat(flags.data_dir, ": ", error.message()));
  limits.more_paths = {UploadsFolder(data_folder.string())};
  options.check_job = [limits](const v1::JobSpec& spec, int stop) {
    return CheckJobInChild(limits, spec, stop);
  };
  options.core.record_interval = kRecordInterval;
  options.core.ended_jobs_max = static_cast<size_t>(flags.keep_jobs);
  if (flags.keep_jobs_for.empty()) return options;
  absl::Duration age;
  if (!absl::ParseDuration(flags.keep_jobs_for, &age) || age <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat("--keep-jobs-for: got \"", flags.keep_jobs_for,
                                                   "\", expected a time such as 12h or 720h"));
  }
  options.core.ended_jobs_age = age;
  return options;
}

// Holds the error for which the process must end. Thread safety: thread-safe.
class Fatal {
 public:
  void Happened(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      absl::MutexLock lock(&mutex_);
      status_ = status;
    }
    RequestShutdown();
  }
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return status_;
  }

 private:
  mutable absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

absl::Status Serve(const Flags& flags, SchedulerService::Options options) {
  const std::unique_ptr<AuditLog> audit = MakeAuditLog(flags.daemon, "scheduler");
  const HandshakeAudit handshakes(audit.get());
  CAPSTAN_ASSIGN_OR_RETURN(
      const std::unique_ptr<Credentials> credentials,
      OpenCredentials(flags.daemon, PeerRole::kScheduler, {flags.daemon.listen}, audit.get()));
  CAPSTAN_ASSIGN_OR_RETURN(options.data_folder, ConfineDaemon(flags.daemon, flags.data_dir));
  options.allowed = Confinement();
  CAPSTAN_RETURN_IF_ERROR(OpenAuditLog(flags.daemon, options.data_folder, audit.get()));
  options.audit = audit.get();
  CAPSTAN_ASSIGN_OR_RETURN(const auto store,
                           SqliteStore::Open(absl::StrCat(options.data_folder, "/scheduler.db")));
  const SteadyClock clock;
  Fatal fatal;
  options.on_fatal = [&fatal](const absl::Status& status) { fatal.Happened(status); };
  std::unique_ptr<SchedulerService> service;
  TaskLogsService logs(
      {.folder = options.data_folder + "/task-logs",
       .bytes_max = int64_t{flags.keep_logs_mib} << 20},
      {.is_known = [&](const JobId& job) { return service->rights().HasJob(job); },
       .may_read = [&](const JobId& job,
                       const JobCaller& caller) { return service->rights().MayRead(job, caller); },
       .may_keep =
           [&](const JobId& job, Rank rank, Incarnation incarnation, const JobCaller& caller) {
             return service->rights().MayKeepLog({job, rank, incarnation}, caller);
           }});
  options.on_forgotten = [&logs](const JobId& job) { logs.Forget(job); };
  CAPSTAN_ASSIGN_OR_RETURN(service, SchedulerService::Open(options, store.get(), &clock));
  PosixDisk disk;
  JobFilesService files(&disk, &clock,
                        {.may_write =
                             [&](const std::string& folder, const JobCaller& caller) {
                               return service->rights().MayWriteInto(folder, caller);
                             },
                         .may_read =
                             [&](const std::string& folder, const JobCaller& caller) {
                               return service->rights().MayReadFrom(folder, caller);
                             }});
  UploadsService uploads(options.data_folder, &disk, &clock);
  CAPSTAN_RETURN_IF_ERROR(logs.Start());
  service->Start();
  files.Start();
  uploads.Start();
  CAPSTAN_ASSIGN_OR_RETURN(const auto server,
                           GrpcServer::Start({.listen = flags.daemon.listen,
                                              .reflection = flags.daemon.reflection,
                                              .services = {service.get(), &files, &logs, &uploads},
                                              .credentials = credentials.get(),
                                              .audit = audit.get()}));
  CAPSTAN_ASSIGN_OR_RETURN(const HostPort listener, ParseHostPort(server->address()));
  const std::string address = FormatHostPort(AdvertisedAddress(listener, LocalHostname()));
  LogInfo({}, "capstan-scheduler {} listens on {}, data in {}", kVersion, address,
          options.data_folder);
  if (!flags.daemon.port_file.empty()) {
    CAPSTAN_RETURN_IF_ERROR(WritePortFile(flags.daemon.port_file, address));
  }
  const int signal = AwaitShutdown(flags.daemon);
  const absl::Status failure = fatal.status();
  if (failure.ok()) LogInfo({}, "shuts down on signal {}", signal);
  service->Stop();
  files.Stop();
  uploads.Stop();
  logs.Stop();
  server->Shutdown(kShutdownGrace);
  return failure.ok() ? failure : Annotate(failure, "the scheduler's state cannot be written");
}

int Main(int argc, char** argv) {
  KeepNewFilesPrivate();
  RequireTls13();
  BlockSignals();
  RaiseDescriptorLimit();
  Program program("capstan-scheduler: cluster membership, job queue, placement and leases");
  program.SetFooter(kExamples);
  Flags flags;
  AddDaemonFlags(program, "capstan-scheduler", &flags.daemon);
  program
      .AddOption("--data-dir", flags.data_dir,
                 "Folder of the scheduler's state and of the jobs' output")
      .ShowDefault();
  program.AddOption("--lease", flags.lease, "A daemon or task that is silent for this long is dead")
      .ShowDefault();
  program
      .AddOption("--sync-interval", flags.sync_interval,
                 "Longest time that a sync without news is held")
      .ShowDefault();
  program
      .AddOption("--keep-jobs", flags.keep_jobs,
                 "Ended jobs that are remembered; the oldest are forgotten first. Their files stay")
      .Between(1, 100'000)
      .ShowDefault();
  program
      .AddOption("--keep-logs-mib", flags.keep_logs_mib,
                 "MiB of tasks' logs that are kept for the time when their worker is gone: the "
                 "last MiB of each task; those of the job that wrote longest ago go first")
      .Between(1, 1 << 20)
      .ShowDefault();
  program
      .AddOption("--admission-memory-mib", flags.admission_memory_mib,
                 "MiB of memory for the process that checks the data of a submitted job")
      .Between(64, 1 << 24)
      .ShowDefault();
  program
      .AddOption("--admission-time", flags.admission_time,
                 "Longest time that this check may take; other submissions wait meanwhile")
      .ValueName("TIME")
      .ShowDefault();
  program
      .AddOption("--keep-jobs-for", flags.keep_jobs_for,
                 "Ended jobs are forgotten this long after their end, as 720h; by default only for "
                 "their number")
      .ValueName("TIME");
  if (const std::optional<int> exit_code = program.Parse(argc, argv)) return *exit_code;
  const auto options = MakeOptions(flags);
  if (!options.ok()) {
    std::cerr << "capstan-scheduler: " << options.status().message() << "\n";
    return 2;
  }
  InitDaemonLogging(flags.daemon, "scheduler");
  const absl::Status status = Serve(flags, *options);
  if (status.ok()) return 0;
  LogError({}, "{}", std::string(status.message()));
  return 1;
}

}  // namespace
}  // namespace capstan::scheduler

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == capstan::scheduler::kCheckJobFlag) {
    return capstan::scheduler::RunJobCheck();  // A child of the daemon.
  }
  return capstan::scheduler::Main(argc, argv);
}
