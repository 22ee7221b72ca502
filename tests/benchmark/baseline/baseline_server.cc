// The servers of the baselines: raw TCP, gRPC with protobuf `bytes`, ZeroMQ that adds into a table,
// or into rows by key.
//
//   baseline_server --kind=tcp|grpc|zmq|zmq-rows --report-to=PORT
//
// Tells its port to whoever listens at PORT and serves until it is killed (peer_process.h).
#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/command_line/command.h"
#include "common/process/keep_memory.h"
#include "common/status/status_macros.h"
#include "tests/benchmark/baseline/grpc_bulk.h"
#include "tests/benchmark/baseline/peer_process.h"
#include "tests/benchmark/baseline/socket.h"
#include "tests/benchmark/baseline/tcp_bulk.h"
#include "tests/benchmark/baseline/zmq_rows.h"
#include "tests/benchmark/baseline/zmq_table.h"

namespace capstan::benchmark {
namespace {

absl::Status ServeTcp(int report_to) {
  CAPSTAN_ASSIGN_OR_RETURN(const Socket listener, Socket::Listen());
  CAPSTAN_ASSIGN_OR_RETURN(const int port, listener.Port());
  CAPSTAN_RETURN_IF_ERROR(ReportPort(report_to, port));
  CAPSTAN_ASSIGN_OR_RETURN(Socket connection, listener.Accept(absl::Minutes(1)));
  return ServeTcpBulk(connection);
}

absl::Status ServeGrpc(int report_to) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<GrpcBulkServer> server, GrpcBulkServer::Start());
  CAPSTAN_RETURN_IF_ERROR(ReportPort(report_to, server->port()));
  server->Wait();
  return absl::OkStatus();
}

template <typename Server>
absl::Status ServeZmq(int report_to) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, Server::Start());
  CAPSTAN_RETURN_IF_ERROR(ReportPort(report_to, server->port()));
  return server->Serve();
}

int Main(int argc, char** argv) {
  std::string kind;
  int report_to = 0;
  Program program("Serves what the benchmarks compare with.");
  program.AddOption("--kind", kind, "tcp, grpc, zmq or zmq-rows").Required();
  program.AddOption("--report-to", report_to, "Port that wants to know ours").Required();
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  absl::Status status = absl::InvalidArgumentError("kind: expected tcp, grpc, zmq or zmq-rows");
  if (kind == "tcp") status = ServeTcp(report_to);
  if (kind == "grpc") status = ServeGrpc(report_to);
  if (kind == "zmq") status = ServeZmq<ZmqTableServer>(report_to);
  if (kind == "zmq-rows") status = ServeZmq<ZmqRowsServer>(report_to);
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace capstan::benchmark

int main(int argc, char** argv) {
  capstan::KeepFreedMemory();
  return capstan::benchmark::Main(argc, argv);
}
