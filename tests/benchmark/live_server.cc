#include "tests/benchmark/live_server.h"

#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status/status_macros.h"
#include "tests/benchmark/process_usage.h"
#include "tests/benchmark/processor_time.h"

namespace capstan::benchmark {
namespace {

constexpr absl::Duration kReadLease = absl::Hours(10);  // Longer than anything measured.

}  // namespace

LiveServer::LiveServer(const Options& options)
    : options_(options), scheduler_(kReadLease, options.scheduler) {}

absl::StatusOr<std::unique_ptr<LiveServer>> LiveServer::Start(const Options& options) {
  std::unique_ptr<LiveServer> server(new LiveServer(options));
  SpawnOptions spawn;
  spawn.program = options.program;
  spawn.args = {absl::StrCat("--scheduler=", server->scheduler_.address()),
                absl::StrCat("--name=", options.name)};
  if (options.log) spawn.args.push_back(absl::StrCat("--data-dir=", options.folder, "/data"));
  if (!options.data_listen.empty()) {
    spawn.args.push_back(absl::StrCat("--data-listen=", options.data_listen));
  }
  if (!options.tls_dir.empty()) spawn.args.push_back("--tls-dir=" + options.tls_dir);
  spawn.output_file = absl::StrCat(options.folder, "/log");
  CAPSTAN_ASSIGN_OR_RETURN(server->process_, Subprocess::Spawn(spawn));
  const std::optional<v1::RegisterRequest> registered = server->scheduler_.WaitForRegister(1);
  if (!registered.has_value()) return server->Failure("did not register");
  server->address_.set_node_id(options.name);
  server->address_.set_address(registered->address());
  server->address_.set_incarnation(1);
  return server;
}

absl::Status LiveServer::Assign(const v1::TableAssignment& assignment) {
  v1::SyncNodeResponse desired;
  *desired.add_tables() = assignment;
  scheduler_.SetDesired(desired);
  const auto held = scheduler_.WaitForSync([&](const v1::SyncNodeRequest& sync) {
    if (sync.tables_size() != 1) return false;
    const v1::TableState& state = sync.tables(0);
    return state.has_failure() ||
           (state.routing_generation() == assignment.routing().generation() &&
            state.membership_generation() == assignment.membership().generation());
  });
  if (!held.has_value()) return Failure("did not make the table");
  if (held->tables(0).has_failure()) return Failure(held->tables(0).failure().message());
  return absl::OkStatus();
}

double LiveServer::ProcessorSeconds() const { return ProcessorSecondsOf(process_->pid()); }

int64_t LiveServer::ResidentBytes() const { return ResidentBytesOf(process_->pid()); }

int LiveServer::OpenFiles() const { return OpenFilesOf(process_->pid()); }

absl::Status LiveServer::Failure(const std::string& what) const {
  std::ostringstream log;
  log << std::ifstream(absl::StrCat(options_.folder, "/log")).rdbuf();
  return absl::UnavailableError(absl::StrCat(options_.name, " ", what, ":\n", log.str()));
}

}  // namespace capstan::benchmark
