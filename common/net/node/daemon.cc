#include "common/net/node/daemon.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/net/socket/host_port.h"
#include "common/observability/log.h"
#include "common/process/return_memory.h"
#include "common/process/version.h"
#include "common/status/status_macros.h"
#include "common/storage/files/allowed_paths.h"
#include "common/storage/files/descriptor.h"
#include "common/storage/files/path_access.h"
#include "common/storage/files/replace_file.h"
#include "common/storage/posix_disk.h"

namespace capstan {
namespace {

constexpr char kOff[] = "off";
constexpr absl::Duration kWarningInterval = absl::Hours(1);

// Returns what is wrong with the address, or an empty text.
std::string CheckListenAddress(const std::string& text) {
  return std::string(ParseHostPort(text).status().message());
}

std::string CheckPeerAddress(const std::string& text) {
  const absl::StatusOr<HostPort> address = ParseHostPort(text);
  if (!address.ok()) return std::string(address.status().message());
  return address->port != 0 ? "" : absl::StrCat("address \"", text, "\": expected a port above 0");
}

// Parses host[:port]; a missing port becomes 0.
absl::StatusOr<HostPort> ParseAdvertised(const std::string& text) {
  absl::StatusOr<HostPort> address = ParseHostPort(text);
  return address.ok() ? address : ParseHostPort(absl::StrCat(text, ":0"));
}

std::string CheckAdvertised(const std::string& text) {
  if (ParseAdvertised(text).ok()) return "";
  return absl::StrCat("address \"", text, "\": expected HOST or HOST:PORT");
}

std::string CheckAllowPath(const std::string& text) {
  return std::string(AllowedPaths::Parse({text}).status().message());
}

void AddAuditFlags(Command program, DaemonFlags* flags) {
  program.AddOption(
      "--audit-log", flags->audit_log,
      "Append a JSON line here for each call that is refused, changes something or reads "
      "a job's data; default: audit.jsonl in the daemon's own folder; off: none");
  program
      .AddOption("--audit-log-mb", flags->audit_log_mb,
                 "MiB of the audit log's file, which is rotated before it grows larger")
      .Between(1, 65'536)
      .ShowDefault();
  program
      .AddOption("--audit-log-files", flags->audit_log_files,
                 "Older files of the audit log that are kept")
      .Between(1, 1000)
      .ShowDefault();
}

sigset_t ShutdownSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

}  // namespace

void AddDaemonFlags(Program& program, const std::string& name, DaemonFlags* flags) {
  program.AddOption("--listen", flags->listen, "host:port to listen on; port 0 picks a free one")
      .Check(CheckListenAddress)
      .ShowDefault();
  program.AddOption("--name", flags->name,
                    "Node id to ask for; by default the scheduler picks one");
  program.AddFlag("--reflection", flags->reflection, "Offer gRPC reflection");
  program.AddOption("--log-format", flags->log_format, "Format of log lines")
      .OneOf({"text", "json"})
      .ShowDefault();
  program.AddOption("--log-file", flags->log_file,
                    "Append log lines here instead of standard error");
  program.AddOption("--port-file", flags->port_file,
                    "Write host:port here once the daemon listens");
  program
      .AddOption("--tls-dir", flags->tls_dir,
                 "Folder of ca.pem, cert.pem and key.pem (`capstan cert node` makes them): all "
                 "connections are encrypted, and both ends are authenticated")
      .FromEnvironment("CAPSTAN_TLS_DIR");
  program.AddFlag("--insecure", flags->insecure,
                  "Listen beyond this machine without --tls-dir: whoever reaches the port may do "
                  "everything");
  program
      .AddOption("--allow-path", flags->allow_path,
                 "Folder below which jobs may name files, or USER=FOLDER for the jobs of one "
                 "user; {user} in FOLDER stands for the user's name. May be repeated, or hold "
                 "several between commas. Jobs may name no other files")
      .ValueName("[USER=]FOLDER")
      .FromEnvironment("CAPSTAN_ALLOW_PATH")
      .Check(CheckAllowPath)
      .OneValueEach();
  AddAuditFlags(program, flags);
  program.AddConfigFile();
  program.AddVersion(absl::StrCat(name, " ", kVersion));
}

void AddSchedulerFlag(Command program, std::string* scheduler) {
  program.AddOption("--scheduler", *scheduler, "host:port of the scheduler")
      .FromEnvironment("CAPSTAN_SCHEDULER")
      .Check(CheckPeerAddress)
      .Required();
}

void AddAdvertiseFlag(Command program, DaemonFlags* flags) {
  program
      .AddOption("--advertise", flags->advertise,
                 "HOST[:PORT] at which peers reach this daemon, if not where it listens")
      .Check(CheckAdvertised);
}

std::string PeerAddress(const DaemonFlags& flags, const std::string& listening) {
  const HostPort listener = ParseHostPort(listening).value();
  if (flags.advertise.empty()) return FormatHostPort(AdvertisedAddress(listener, LocalHostname()));
  HostPort address = ParseAdvertised(flags.advertise).value();
  if (address.port == 0) address.port = listener.port;
  return FormatHostPort(address);
}

absl::StatusOr<std::unique_ptr<Credentials>> OpenCredentials(const DaemonFlags& flags,
                                                             PeerRole role,
                                                             absl::Span<const std::string> listens,
                                                             AuditLog* audit) {
  if (flags.tls_dir.empty()) {
    for (const std::string& listen : listens) {
      CAPSTAN_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(listen));
      if (flags.insecure || IsLoopback(address.host)) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "cannot listen on ", listen, ": other machines reach it, and nothing is encrypted or ",
          "authenticated; give --tls-dir (see `capstan cert`), listen on 127.0.0.1, or say ",
          "--insecure"));
    }
    return nullptr;
  }
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<Credentials> credentials,
                           Credentials::Read(flags.tls_dir, audit));
  const Identity& self = credentials->self();
  if (self.role != role) {
    return absl::FailedPreconditionError(
        absl::StrCat("--tls-dir=", flags.tls_dir, ": its certificate names ", FormatIdentity(self),
                     ", expected the role ", PeerRoleName(role)));
  }
  if (!flags.name.empty() && role != PeerRole::kScheduler && self.name != flags.name) {
    return absl::FailedPreconditionError(absl::StrCat("--name=", flags.name,
                                                      ": the certificate in ", flags.tls_dir,
                                                      " names ", FormatIdentity(self)));
  }
  return credentials;
}

std::unique_ptr<AuditLog> MakeAuditLog(const DaemonFlags& flags, const std::string& daemon) {
  return std::make_unique<AuditLog>(
      AuditLog::Options{.daemon = daemon,
                        .file_bytes_max = int64_t{flags.audit_log_mb} << 20,
                        .old_files_max = flags.audit_log_files});
}

absl::Status OpenAuditLog(const DaemonFlags& flags, const std::string& folder, AuditLog* audit) {
  std::string path = flags.audit_log;
  if (path.empty() && !folder.empty()) path = folder + "/audit.jsonl";
  if (path.empty() || path == kOff) {
    LogInfo({}, "no audit log: refused calls are counted and logged");
  } else {
    CAPSTAN_RETURN_IF_ERROR(audit->Open(path));
  }
  return absl::OkStatus();
}

void InitDaemonLogging(const DaemonFlags& flags, const std::string& role) {
  InitLogging({.role = role, .file = flags.log_file, .json = flags.log_format == "json"});
}

absl::Status WritePortFile(const std::string& path, const std::string& address) {
  // The operator names the file, so it need not lie below a folder that jobs may name.
  const std::filesystem::path file(path);
  const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
  const Descriptor held(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!held.ok()) {
    return absl::UnavailableError(absl::StrCat("port file ", path, ": ", strerror(errno)));
  }
  HoldFolder(held.get());
  const absl::Status written = ReplaceFile(
      absl::StrCat("/proc/self/fd/", held.get(), "/", file.filename().string()), address + "\n");
  ReleaseFolder(held.get());
  if (written.ok()) return written;
  return absl::UnavailableError(absl::StrCat("port file ", path, ": ", written.message()));
}

absl::StatusOr<std::string> ConfineDaemon(const DaemonFlags& flags, const std::string& own) {
  CAPSTAN_ASSIGN_OR_RETURN(AllowedPaths allowed, AllowedPaths::Parse(flags.allow_path));
  std::string folder;
  if (!own.empty()) {
    std::error_code error;
    folder = std::filesystem::absolute(own, error).lexically_normal().string();
    if (error) return absl::UnavailableError(absl::StrCat(own, ": ", error.message()));
    CAPSTAN_RETURN_IF_ERROR(PosixDisk().MakeFolder(folder));
    allowed.AddOwn(folder);
  }
  CAPSTAN_RETURN_IF_ERROR(ConfinePaths(std::move(allowed)));
  return folder;
}

void BlockSignals() {
  const sigset_t signals = ShutdownSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);
}

std::optional<int> WaitForShutdownSignal(absl::Duration timeout) {
  const sigset_t signals = ShutdownSignals();
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    // It waits in slices, since a timespec cannot be infinite.
    const absl::Duration left = deadline - absl::Now();
    const timespec slice = absl::ToTimespec(std::clamp(left, absl::ZeroDuration(), absl::Hours(1)));
    const int received = sigtimedwait(&signals, nullptr, &slice);
    if (received > 0) return received;
    if (absl::Now() >= deadline) return std::nullopt;
  }
}

int AwaitShutdown(const DaemonFlags& flags) {
  MemoryReturner memory;
  absl::Time warn_at = absl::InfinitePast();
  for (;;) {
    if (flags.insecure && flags.tls_dir.empty() && absl::Now() >= warn_at) {
      LogWarning({}, "--insecure: nothing is encrypted, and whoever reaches {} may do everything",
                 flags.listen);
      warn_at = absl::Now() + kWarningInterval;
    }
    const std::optional<int> signal = WaitForShutdownSignal(MemoryReturner::kInterval);
    if (signal.has_value()) return *signal;
    memory.Tick();
  }
}

void RequestShutdown() { kill(getpid(), SIGTERM); }

}  // namespace capstan
