// Settings: finds each value of the command line's configuration and its origin.
//
// The first source with a value counts: the flag, the environment, the configuration file, the
// running local cluster, the default. The file is $XDG_CONFIG_HOME/capstan/config (or
// ~/.config/capstan/config). It has lines "scheduler = host:port", "output = json" and
// "tls-dir = FOLDER"; '#' begins a comment; an unknown key is an error. The local cluster's
// certificate is used for its scheduler only, whichever source named that scheduler.
// Thread safety: values.
#ifndef CAPSTAN_SCHEDULER_CLI_SETTINGS_SETTINGS_H_
#define CAPSTAN_SCHEDULER_CLI_SETTINGS_SETTINGS_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/net/grpc/credentials.h"
#include "scheduler/cli/settings/cluster_file.pb.h"

namespace capstan::cli {

// A user's session. It is a value, so that tests need no real session.
struct Environment {
  // Returns the value of a variable; nullopt if it is unset or empty.
  std::function<std::optional<std::string>(const std::string&)> variable;
  // Returns the content of a file; nullopt if there is none.
  std::function<std::optional<std::string>(const std::string&)> file;
  // Returns the local cluster in a folder, if one runs there.
  std::function<std::optional<ClusterFile>(const std::string&)> local_cluster;

  static Environment OfProcess();
};

struct Setting {
  std::string value;
  std::string origin;  // "--scheduler", "CAPSTAN_SCHEDULER", a file, "default".
};

enum class OutputFormat { kTable, kJson };

struct Settings {
  Setting scheduler;  // host:port
  Setting output;   // "table", "wide" (a table with more columns, where there are more) or "json".
  Setting tls_dir;  // See TlsFolder. Empty: plain text.
  // OpenCredentials reads it from tls_dir. Null before that, and if tls_dir is empty.
  std::shared_ptr<const Credentials> credentials;

  OutputFormat format() const {
    return output.value == "json" ? OutputFormat::kJson : OutputFormat::kTable;
  }
  bool is_wide() const { return output.value == "wide"; }
};

struct SettingFlags {
  std::string scheduler;  // Empty: not given.
  std::string output;
  std::string tls_dir;
};

// Errors: kInvalidArgument  a value that is not valid, or an unknown key; names its origin.
absl::StatusOr<Settings> ResolveSettings(const SettingFlags& flags, const Environment& environment);

// Reads the credentials if tls_dir is set.
// Errors: those of Credentials::Read; names the origin.
absl::Status OpenCredentials(Settings* settings);

// Returns the folder that `cluster up` uses without --dir: $XDG_RUNTIME_DIR/capstan, or
// ~/.capstan/local.
// Errors: kFailedPrecondition  neither variable is set.
absl::StatusOr<std::string> DefaultClusterDirectory(const Environment& environment);

// Returns the path of the configuration file. Empty if neither variable is set.
std::string ConfigFilePath(const Environment& environment);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_SETTINGS_SETTINGS_H_
