#include "server/optimizer/plugin/load_plugin.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/testing/status_matchers.h"

namespace capstan::server::load_plugin_test {
namespace {

constexpr char kFolder[] = "server/optimizer/plugin/";

std::string PathOf(const std::string& name) { return kFolder + name + ".so"; }

// A file of the test's own, which it may change.
std::string CopyOf(const std::string& name, mode_t mode) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/" + name + ".so";
  std::filesystem::remove(path);
  std::filesystem::copy_file(PathOf(name), path);
  REQUIRE(chmod(path.c_str(), mode) == 0);
  return path;
}

void Refuse(const std::string& path, const std::string& text,
            absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  PluginRules rules;
  const absl::Status status = LoadPlugin(path, &rules);
  CHECK_STATUS(status, code, text);
  CHECK_STATUS(status, code, path);
}

TEST_CASE("Plugin loader: a plugin's rules get the digest of its file", "[server][optimizer]") {
  PluginRules rules;
  REQUIRE_OK(LoadPlugin(PathOf("signum"), &rules));
  REQUIRE_OK(LoadPlugin(PathOf("own_rules"), &rules));
  CHECK(rules.Names() == "adagrad_from_half, adam, momentum, signum");
  const PluginRule& signum = *rules.Find("signum");
  CHECK(signum.file == PathOf("signum"));
  CHECK(signum.digest.size() == 64);
  CHECK(signum.digest != rules.Find("adam")->digest);
  CHECK(rules.Find("momentum")->digest == rules.Find("adam")->digest);
  float w = 1.0f;
  const float g = -2.0f;
  float v = 0.0f;
  float* const state[] = {&v};
  signum.rule->apply(signum.rule->default_numbers, 0, 0.25, 1, &w, &g, state, &w);
  CHECK(w == 1.25f);
  CHECK(v == static_cast<float>(1 - 0.9) * g);
}

TEST_CASE("Plugin loader: the digest is that of sha256sum", "[server][optimizer]") {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/digest";
  const std::string command = "sha256sum " + PathOf("signum") + " > " + path;
  REQUIRE(std::system(command.c_str()) == 0);
  std::string expected;
  std::ifstream(path) >> expected;
  PluginRules rules;
  REQUIRE_OK(LoadPlugin(PathOf("signum"), &rules));
  CHECK(rules.Find("signum")->digest == expected);
}

TEST_CASE("Plugin loader: a file that others may write is refused", "[server][optimizer]") {
  for (const mode_t mode : {0775, 0757, 0664}) {
    Refuse(CopyOf("signum", mode),
           "expected one by which neither its group nor others may write it (chmod go-w)",
           absl::StatusCode::kPermissionDenied);
  }
  PluginRules rules;
  CHECK(LoadPlugin(CopyOf("signum", 0755), &rules).ok());
}

TEST_CASE("Plugin loader: another user's file is refused", "[server][optimizer]") {
  const std::string path = CopyOf("signum", 0755);
  if (chown(path.c_str(), 12345, static_cast<gid_t>(-1)) != 0) {
    WARN("skipped: only root can give files away");
    return;
  }
  Refuse(path, "belongs to user 12345, expected root or user 0, as whom this server runs",
         absl::StatusCode::kPermissionDenied);
}

TEST_CASE("Plugin loader: what is no file is refused", "[server][optimizer]") {
  Refuse("/no/such/plugin.so", "cannot be read", absl::StatusCode::kNotFound);
  Refuse("/dev", "expected a regular file", absl::StatusCode::kPermissionDenied);
}

TEST_CASE("Plugin loader: what is no plugin is refused", "[server][optimizer]") {
  const std::string text = std::string(std::getenv("TEST_TMPDIR")) + "/text.so";
  std::ofstream(text) << "no library";
  REQUIRE(chmod(text.c_str(), 0600) == 0);
  Refuse(text, "expected a shared library with rules");
  Refuse(PathOf("no_entry"), "has no function capstan_rule_plugin");
  Refuse(PathOf("newer_interface"), "has interface 2 of capstan_rule.h, expected 1");
}

TEST_CASE("Plugin loader: a rule that depends on calls before is refused", "[server][optimizer]") {
  Refuse(PathOf("counts_calls"), "rule counts_calls: the weight of element ");
}

TEST_CASE("Plugin loader: a library that drops denormals is refused, and they are kept",
          "[server][optimizer]") {
  Refuse(PathOf("drops_denormals"), "-ffast-math");
  volatile float denormal = 1e-40f;
  CHECK(denormal * 0.5f != 0.0f);
}

TEST_CASE("Plugin loader: two plugins with a rule of one name are refused", "[server][optimizer]") {
  PluginRules rules;
  REQUIRE_OK(LoadPlugin(PathOf("signum"), &rules));
  CHECK_STATUS(LoadPlugin(CopyOf("signum", 0755), &rules), absl::StatusCode::kInvalidArgument,
               "has a rule of that name");
}

}  // namespace
}  // namespace capstan::server::load_plugin_test
