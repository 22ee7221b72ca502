#include "scheduler/cli/settings/settings.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/net/socket/host_port.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "scheduler/cli/settings/cluster_file.h"

namespace capstan::cli {
namespace {

constexpr char kDefaultScheduler[] = "127.0.0.1:7070";
constexpr size_t kKeyLengthMax = 24;

// Returns true if an error may show the text. A file of another kind, or a line that was broken in
// two, may have a secret before its first '='.
bool LooksLikeKey(absl::string_view text) {
  return text.size() <= kKeyLengthMax && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_islower(static_cast<unsigned char>(c)) || c == '-' || c == '_';
         });
}

absl::Status ParseConfigFile(const std::string& path, const std::string& text, Settings* settings) {
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const std::string origin = absl::StrCat(path, ":", number);
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits('=', 1));
    const absl::string_view key = absl::StripAsciiWhitespace(parts[0]);
    if (parts.size() != 2) {
      return absl::InvalidArgumentError(absl::StrCat(origin, ": got a line of ", line.size(),
                                                     " bytes without '=', expected KEY = VALUE"));
    }
    const Setting setting{std::string(absl::StripAsciiWhitespace(parts[1])), origin};
    if (key == "scheduler") {
      settings->scheduler = setting;
    } else if (key == "output") {
      settings->output = setting;
    } else if (key == "tls-dir") {
      settings->tls_dir = setting;
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          origin, ": unknown key", LooksLikeKey(key) ? absl::StrCat(" \"", key, "\"") : "",
          ", expected scheduler, output or tls-dir"));
    }
  }
  return absl::OkStatus();
}

absl::Status Check(const Settings& settings) {
  CAPSTAN_RETURN_IF_ERROR(Annotate(ParseHostPort(settings.scheduler.value).status(),
                                   absl::StrCat("scheduler from ", settings.scheduler.origin)));
  if (settings.output.value != "table" && settings.output.value != "json" && !settings.is_wide()) {
    return absl::InvalidArgumentError(absl::StrCat("output from ", settings.output.origin,
                                                   ": got \"", settings.output.value,
                                                   "\", expected table, wide or json"));
  }
  return absl::OkStatus();
}

}  // namespace

Environment Environment::OfProcess() {
  Environment environment;
  environment.variable = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  };
  environment.file = [](const std::string& path) -> std::optional<std::string> {
    std::ifstream stream(path, std::ios::binary);
    if (!stream) return std::nullopt;
    return std::string(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  };
  environment.local_cluster = RunningCluster;
  return environment;
}

std::string ConfigFilePath(const Environment& environment) {
  const auto config_home = environment.variable("XDG_CONFIG_HOME");
  if (config_home) return absl::StrCat(*config_home, "/capstan/config");
  const auto home = environment.variable("HOME");
  return home ? absl::StrCat(*home, "/.config/capstan/config") : "";
}

absl::StatusOr<std::string> DefaultClusterDirectory(const Environment& environment) {
  const auto runtime = environment.variable("XDG_RUNTIME_DIR");
  if (runtime) return absl::StrCat(*runtime, "/capstan");
  const auto home = environment.variable("HOME");
  if (home) return absl::StrCat(*home, "/.capstan/local");
  return absl::FailedPreconditionError(
      "no place for a local cluster: neither XDG_RUNTIME_DIR nor HOME is set; give --dir");
}

absl::StatusOr<Settings> ResolveSettings(const SettingFlags& flags,
                                         const Environment& environment) {
  Settings settings{.scheduler = {kDefaultScheduler, "default"},
                    .output = {"table", "default"},
                    .tls_dir = {"", "default"},
                    .credentials = nullptr};
  const auto directory = DefaultClusterDirectory(environment);
  std::optional<ClusterFile> local;
  if (directory.ok()) local = environment.local_cluster(*directory);
  if (local) settings.scheduler = {local->scheduler(), ClusterFilePath(*directory)};
  const std::string path = ConfigFilePath(environment);
  const auto text = path.empty() ? std::nullopt : environment.file(path);
  if (text) CAPSTAN_RETURN_IF_ERROR(ParseConfigFile(path, *text, &settings));
  if (const auto scheduler = environment.variable("CAPSTAN_SCHEDULER")) {
    settings.scheduler = {*scheduler, "CAPSTAN_SCHEDULER"};
  }
  if (const auto tls_dir = environment.variable("CAPSTAN_TLS_DIR")) {
    settings.tls_dir = {*tls_dir, "CAPSTAN_TLS_DIR"};
  }
  if (!flags.tls_dir.empty()) settings.tls_dir = {flags.tls_dir, "--tls-dir"};
  if (!flags.scheduler.empty()) settings.scheduler = {flags.scheduler, "--scheduler"};
  if (!flags.output.empty()) settings.output = {flags.output, "--output"};
  if (local && settings.tls_dir.value.empty() && settings.scheduler.value == local->scheduler()) {
    settings.tls_dir = {local->tls_dir(), ClusterFilePath(*directory)};
  }
  CAPSTAN_RETURN_IF_ERROR(Check(settings));
  return settings;
}

absl::Status OpenCredentials(Settings* settings) {
  if (settings->tls_dir.value.empty()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<Credentials>> read = Credentials::Read(settings->tls_dir.value);
  if (!read.ok()) {
    return Annotate(read.status(), absl::StrCat("tls-dir from ", settings->tls_dir.origin));
  }
  settings->credentials = *std::move(read);
  return absl::OkStatus();
}

}  // namespace capstan::cli
