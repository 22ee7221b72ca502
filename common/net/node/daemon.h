// The parts that all daemons' mains share: flags, the port file, logging, and the wait for the end.
//
//   BlockSignals();                                     // first thing in main
//   Program program("capstan-server: holds parameter shards");
//   DaemonFlags flags;
//   AddDaemonFlags(program, "capstan-server", &flags);
//   if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
//   InitDaemonLogging(flags, "server");
//   ...start, WritePortFile(flags.port_file, advertised address)...
//   AwaitShutdown(flags);
//
// Thread safety: functions for main; RequestShutdown may be called from any thread.
#ifndef CAPSTAN_COMMON_NET_NODE_DAEMON_H_
#define CAPSTAN_COMMON_NET_NODE_DAEMON_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/command_line/command.h"
#include "common/net/grpc/credentials.h"
#include "common/security/audit_log.h"
#include "common/security/certificates/identity.h"

namespace capstan {

struct DaemonFlags {
  std::string listen = "127.0.0.1:0";  // --listen: host:port; port 0 picks a free one.
  std::string name;                    // --name: wished node id; empty: the scheduler picks one.
  bool reflection = false;             // --reflection: offer gRPC reflection.
  std::string log_format = "text";     // --log-format: "text" or "json".
  std::string log_file;                // --log-file: empty is standard error.
  std::string port_file;               // --port-file: see WritePortFile; empty: none.
  std::string advertise;               // --advertise: host[:port]; empty: see PeerAddress.
  std::string tls_dir;                 // --tls-dir: see TlsFolder; empty: plain text.
  bool insecure = false;               // --insecure: plain text beyond loopback.
  // --allow-path: rules of AllowedPaths; each text may hold several.
  std::vector<std::string> allow_path;
  std::string audit_log;    // --audit-log: empty: in the daemon's folder; "off": none.
  int audit_log_mb = 64;    // --audit-log-mb: a file that would be larger is rotated.
  int audit_log_files = 8;  // --audit-log-files: older files that are kept.
};

// Adds the flags above, --config=FILE (TOML or INI, `flag = value` lines; an unknown key is an
// error) and --version. `flags` must outlive the parsing and holds the defaults.
void AddDaemonFlags(Program& program, const std::string& name, DaemonFlags* flags);

// Adds --scheduler=HOST:PORT (environment: CAPSTAN_SCHEDULER), required.
void AddSchedulerFlag(Command program, std::string* scheduler);

// Adds --advertise=HOST[:PORT], for daemons that peers call.
void AddAdvertiseFlag(Command program, DaemonFlags* flags);

// Returns the address at which peers reach a daemon that listens on `listening` (host:port): that
// of --advertise, with the port listened on if it names none; else AdvertisedAddress with this
// machine's name. REQUIRES: both have been checked.
std::string PeerAddress(const DaemonFlags& flags, const std::string& listening);

// The credentials in --tls-dir; null if it is not given, which is allowed where only processes of
// this machine reach the daemon, and with --insecure. `listens`: all addresses it will listen on.
// `audit`: see Credentials::Read.
// Errors: kFailedPrecondition  plain text beyond loopback, a folder that cannot be used, or a
//         certificate of another role or of another node than --name; names what was expected.
absl::StatusOr<std::unique_ptr<Credentials>> OpenCredentials(const DaemonFlags& flags,
                                                             PeerRole role,
                                                             absl::Span<const std::string> listens,
                                                             AuditLog* audit = nullptr);

// Makes the audit log of the daemon of that name, by its flags. It counts, and has no file yet.
std::unique_ptr<AuditLog> MakeAuditLog(const DaemonFlags& flags, const std::string& daemon);
// Opens its file: that of --audit-log, or audit.jsonl in the daemon's own `folder` (empty: it has
// none, so there is no file).
// Errors: those of AuditLog::Open.
absl::Status OpenAuditLog(const DaemonFlags& flags, const std::string& folder, AuditLog* audit);

void InitDaemonLogging(const DaemonFlags& flags, const std::string& role);

// Writes "<address>\n" (host:port) to `path` by an atomic rename: a reader sees all of it or none.
// A program that waits for the file removes an old one before it starts the daemon.
// Errors: kUnavailable  the file cannot be written; names it and the cause.
absl::Status WritePortFile(const std::string& path, const std::string& address);

// Makes the folder `own` of a daemon (empty: it has none) and confines this process to it and to
// --allow-path (see path_access.h). Returns the folder's absolute path without ".."; empty if it
// has none.
// Errors: kFailedPrecondition  this system cannot confine. Those of PosixDisk::MakeFolder.
absl::StatusOr<std::string> ConfineDaemon(const DaemonFlags& flags, const std::string& own);

// Blocks SIGTERM and SIGINT in this thread and those it starts, and ignores SIGPIPE. Resets
// SIGCHLD, so that the process can wait for its children however it was started.
// REQUIRES: no other thread runs yet.
void BlockSignals();

// Waits for SIGTERM or SIGINT (or RequestShutdown) and returns the signal; nothing if `timeout`
// passes first. REQUIRES: BlockSignals was called.
std::optional<int> WaitForShutdownSignal(absl::Duration timeout);

// Waits without limit, and returns the signal. Meanwhile it gives back memory that the allocator
// keeps without need, and a daemon with --insecure warns once an hour.
int AwaitShutdown(const DaemonFlags& flags);

// Sends this process a SIGTERM: WaitForShutdownSignal returns.
void RequestShutdown();

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_NODE_DAEMON_H_
