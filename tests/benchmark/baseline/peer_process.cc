#include "tests/benchmark/baseline/peer_process.h"

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status/status_macros.h"
#include "tests/benchmark/baseline/socket.h"
#include "tests/benchmark/processor_time.h"

namespace capstan::benchmark {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);

absl::StatusOr<int> ReadPort(const Socket& listener) {
  CAPSTAN_ASSIGN_OR_RETURN(Socket peer, listener.Accept(kPatience));
  int port = 0;
  CAPSTAN_RETURN_IF_ERROR(peer.Receive({{.iov_base = &port, .iov_len = sizeof(port)}}));
  return port;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerProcess>> PeerProcess::Start(const std::string& program,
                                                                const std::string& kind,
                                                                const std::string& folder) {
  CAPSTAN_ASSIGN_OR_RETURN(const Socket listener, Socket::Listen());
  CAPSTAN_ASSIGN_OR_RETURN(const int own_port, listener.Port());
  std::unique_ptr<PeerProcess> peer(new PeerProcess);
  SpawnOptions spawn;
  spawn.program = program;
  spawn.args = {absl::StrCat("--kind=", kind), absl::StrCat("--report-to=", own_port)};
  spawn.output_file = absl::StrCat(folder, "/", kind, "-log");
  CAPSTAN_ASSIGN_OR_RETURN(peer->process_, Subprocess::Spawn(spawn));
  const absl::StatusOr<int> port = ReadPort(listener);
  if (!port.ok()) {
    std::ostringstream log;
    log << std::ifstream(spawn.output_file).rdbuf();
    return absl::UnavailableError(
        absl::StrCat("server of kind ", kind, ": ", port.status().message(), "\n", log.str()));
  }
  peer->port_ = *port;
  return peer;
}

double PeerProcess::ProcessorSeconds() const { return ProcessorSecondsOf(process_->pid()); }

absl::Status ReportPort(int report_to, int port) {
  CAPSTAN_ASSIGN_OR_RETURN(Socket socket, Socket::Connect(report_to));
  return socket.Send({{.iov_base = &port, .iov_len = sizeof(port)}});
}

}  // namespace capstan::benchmark
