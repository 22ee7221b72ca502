#include "scheduler/cli/settings/settings.h"

#include <catch2/catch.hpp>
#include <map>

#include "absl/status/status.h"
#include "common/testing/status_matchers.h"

namespace capstan::cli::settings_test {
namespace {

// A fake user's session, made of maps.
struct Session {
  std::map<std::string, std::string> variables = {{"HOME", "/home/u"}};
  std::map<std::string, std::string> files;
  std::map<std::string, ClusterFile> clusters;

  template <typename Value>
  static std::optional<Value> Find(const std::map<std::string, Value>& map,
                                   const std::string& key) {
    const auto found = map.find(key);
    return found == map.end() ? std::nullopt : std::optional<Value>(found->second);
  }
  Environment environment() const {
    return {[this](const std::string& name) { return Find(variables, name); },
            [this](const std::string& path) { return Find(files, path); },
            [this](const std::string& directory) { return Find(clusters, directory); }};
  }
  Settings Resolve(const SettingFlags& flags) const {
    REQUIRE_OK_AND_ASSIGN(Settings settings, ResolveSettings(flags, environment()));
    return settings;
  }
};

TEST_CASE("Settings: flag, environment, file, local cluster, default, in this order", "[cli]") {
  Session session;
  CHECK(session.Resolve({}).scheduler.value == "127.0.0.1:7070");
  CHECK(session.Resolve({}).scheduler.origin == "default");
  CHECK(session.Resolve({}).format() == OutputFormat::kTable);

  ClusterFile cluster;
  cluster.set_scheduler("127.0.0.1:40001");
  cluster.set_tls_dir("/tls");
  session.clusters["/home/u/.capstan/local"] = cluster;
  CHECK(session.Resolve({}).scheduler.value == "127.0.0.1:40001");
  CHECK(session.Resolve({}).tls_dir.value == "/tls");
  CHECK(session.Resolve({}).scheduler.origin == "/home/u/.capstan/local/cluster.json");

  session.files["/home/u/.config/capstan/config"] = "# mine\noutput = json\nscheduler=a:1 # x\n";
  CHECK(session.Resolve({}).scheduler.value == "a:1");
  CHECK(session.Resolve({}).tls_dir.value.empty());
  CHECK(session.Resolve({}).scheduler.origin == "/home/u/.config/capstan/config:3");
  CHECK(session.Resolve({}).format() == OutputFormat::kJson);

  session.variables["CAPSTAN_SCHEDULER"] = "b:2";
  CHECK(session.Resolve({}).scheduler.value == "b:2");
  CHECK(session.Resolve({}).scheduler.origin == "CAPSTAN_SCHEDULER");

  const Settings settings = session.Resolve({.scheduler = "c:3", .output = "table"});
  CHECK(settings.scheduler.value == "c:3");
  CHECK(settings.scheduler.origin == "--scheduler");
  CHECK(settings.output.origin == "--output");
  CHECK(session.Resolve({.scheduler = "127.0.0.1:40001"}).tls_dir.value == "/tls");
  session.variables["CAPSTAN_TLS_DIR"] = "/mine";
  CHECK(session.Resolve({.scheduler = "127.0.0.1:40001"}).tls_dir.value == "/mine");
  CHECK(session.Resolve({.tls_dir = "/flag"}).tls_dir.origin == "--tls-dir");
}

TEST_CASE("Settings: a wrong value is named with the place where it stands", "[cli]") {
  Session session;
  const auto resolve = [&](const SettingFlags& flags) {
    return ResolveSettings(flags, session.environment());
  };
  CHECK_STATUS(resolve({.scheduler = "nohost"}), absl::StatusCode::kInvalidArgument,
               "scheduler from --scheduler: ");
  CHECK_STATUS(resolve({.output = "yaml"}), absl::StatusCode::kInvalidArgument,
               "output from --output: got \"yaml\", expected table, wide or json");
  session.files["/home/u/.config/capstan/config"] = "\nschedular = a:1\n";
  CHECK_STATUS(resolve({}), absl::StatusCode::kInvalidArgument,
               "/home/u/.config/capstan/config:2: unknown key \"schedular\", expected scheduler, "
               "output or tls-dir");
  session.files["/home/u/.config/capstan/config"] = "json\n";
  CHECK_STATUS(resolve({}), absl::StatusCode::kInvalidArgument,
               "config:1: got a line of 4 bytes without '=', expected KEY = VALUE");
  session.files["/home/u/.config/capstan/config"] = "c2VjcmV0Cg== # a secret\n";
  CHECK_STATUS(resolve({}), absl::StatusCode::kInvalidArgument,
               "config:1: unknown key, expected scheduler");
}

TEST_CASE("Settings: the XDG folders win over the home folder", "[cli]") {
  Session session;
  session.variables = {{"HOME", "/h"}, {"XDG_RUNTIME_DIR", "/run/1"}, {"XDG_CONFIG_HOME", "/c"}};
  REQUIRE_OK_AND_ASSIGN(const std::string directory,
                        DefaultClusterDirectory(session.environment()));
  CHECK(directory == "/run/1/capstan");
  CHECK(ConfigFilePath(session.environment()) == "/c/capstan/config");
  session.variables.clear();
  CHECK_STATUS(DefaultClusterDirectory(session.environment()),
               absl::StatusCode::kFailedPrecondition, "give --dir");
  CHECK(session.Resolve({}).scheduler.origin == "default");
}

}  // namespace
}  // namespace capstan::cli::settings_test
