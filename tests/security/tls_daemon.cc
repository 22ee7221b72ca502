#include "tests/security/tls_daemon.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::testing {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

std::string NameOf(const TlsDaemon::Options& options) {
  return options.name.empty() ? std::string(PeerRoleName(options.role)) : options.name;
}

}  // namespace

TlsDaemon::TlsDaemon(const TestAuthority& authority, const Options& options)
    : folder_(authority.MakeFolder("tls-" + NameOf(options), options.role, options.name)),
      peer_{.role = options.role, .name = options.name} {
  std::ofstream(folder_ + "/ca.pem", std::ios::app) << options.more_authorities;
  const std::string role(PeerRoleName(options.role));
  const std::string own = TestPath(NameOf(options));
  const std::string port = own + ".port";
  std::filesystem::remove(port);
  SpawnOptions spawn;
  spawn.program = absl::StrCat(role, "/capstan-", role);
  spawn.args = options.flags;
  spawn.args.insert(spawn.args.end(),
                    {"--listen=127.0.0.1:0", "--port-file=" + port, "--tls-dir=" + folder_});
  if (!options.scheduler.empty()) spawn.args.push_back("--scheduler=" + options.scheduler);
  const char* const state = options.role == PeerRole::kWorker ? "--work-dir=" : "--data-dir=";
  if (options.role != PeerRole::kServer) spawn.args.push_back(absl::StrCat(state, own, ".state"));
  spawn.output_file = own + ".log";
  auto spawned = Subprocess::Spawn(spawn);
  REQUIRE_OK(spawned);
  process_ = *std::move(spawned);
  const absl::Time give_up = absl::Now() + kPatience;
  while (!std::filesystem::exists(port)) {
    INFO(ReadFile(spawn.output_file));
    REQUIRE(absl::Now() < give_up);
    REQUIRE_FALSE(process_->Wait(absl::Milliseconds(10)).has_value());
  }
  std::string told = ReadFile(port);
  told.pop_back();  // The end of the line.
  // The certificate's name is also the node's; on this machine the daemon is reached by address.
  address_ = absl::StrCat("127.0.0.1", told.substr(told.rfind(':')));
}

}  // namespace capstan::testing
