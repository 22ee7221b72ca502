// Settings: where each value of the command line's configuration comes from.
//
// Flag, then environment, then file, then the running local cluster, then the default. The file is
// $XDG_CONFIG_HOME/capstan/config (or ~/.config/capstan/config): lines "scheduler = host:port",
// "output = json", '#' begins a comment; an unknown key is an error.
// Thread safety: values.
#ifndef CAPSTAN_SCHEDULER_CLI_SETTINGS_H_
#define CAPSTAN_SCHEDULER_CLI_SETTINGS_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace capstan::cli {

// What a user's session looks like; a value, so that tests need no real one.
struct Environment {
  // Value of a variable; nullopt if it is unset or empty.
  std::function<std::optional<std::string>(const std::string&)> variable;
  // Contents of a file; nullopt if there is none.
  std::function<std::optional<std::string>(const std::string&)> file;
  // Address of the scheduler of the local cluster in that folder, if one runs there.
  std::function<std::optional<std::string>(const std::string&)> local_cluster;

  static Environment OfProcess();
};

struct Setting {
  std::string value;
  std::string origin;  // "--scheduler", "CAPSTAN_SCHEDULER", a file, "default".
};

enum class OutputFormat { kTable, kJson };

struct Settings {
  Setting scheduler;  // host:port
  Setting output;  // "table", "wide" (a table with more columns, where there are more) or "json".

  OutputFormat format() const {
    return output.value == "json" ? OutputFormat::kJson : OutputFormat::kTable;
  }
  bool is_wide() const { return output.value == "wide"; }
};

struct SettingFlags {
  std::string scheduler;  // Empty: not given.
  std::string output;
};

// Errors: kInvalidArgument  a value that does not fit or an unknown key; names where it stands.
absl::StatusOr<Settings> ResolveSettings(const SettingFlags& flags, const Environment& environment);

// Where `cluster up` puts a cluster without --dir: $XDG_RUNTIME_DIR/capstan, or ~/.capstan/local.
// Errors: kFailedPrecondition  neither variable is set.
absl::StatusOr<std::string> DefaultClusterDirectory(const Environment& environment);

// Empty if there is no home folder.
std::string ConfigFilePath(const Environment& environment);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_SETTINGS_H_
