// Text as the command line's configuration file: it is refused with its place, or gives settings
// that are valid and that a file of them gives again.
#include "scheduler/cli/settings/settings.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/net/socket/host_port.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {
namespace {

using cli::Environment;
using cli::Settings;

absl::StatusOr<Settings> SettingsOf(const std::string& text) {
  const Environment environment{
      .variable = [](const std::string& name) -> std::optional<std::string> {
        if (name == "HOME") return "/home/u";
        return std::nullopt;
      },
      .file = [&text](const std::string&) -> std::optional<std::string> { return text; },
      .local_cluster = [](const std::string&) { return std::nullopt; }};
  return cli::ResolveSettings({}, environment);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::StatusOr<Settings> settings =
      SettingsOf(std::string(reinterpret_cast<const char*>(data), size));
  if (!settings.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(settings.status()));
    FUZZ_CHECK(absl::StrContains(settings.status().message(), "/home/u/.config/capstan/config:"));
    return 0;
  }
  FUZZ_CHECK(ParseHostPort(settings->scheduler.value).ok());
  const absl::StatusOr<Settings> again = SettingsOf(
      absl::StrCat("scheduler=", settings->scheduler.value, "\noutput=", settings->output.value,
                   "\ntls-dir=", settings->tls_dir.value));
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(again->scheduler.value == settings->scheduler.value);
  FUZZ_CHECK(again->output.value == settings->output.value);
  FUZZ_CHECK(again->tls_dir.value == settings->tls_dir.value);
  return 0;
}

}  // namespace capstan::fuzz
