// LiveServer: a capstan-server process on loopback, told what to hold without a scheduler process.
//
// The daemon is the real one; a FakeScheduler in this process registers it and hands it its table.
// Its read lease is a long one: what is measured is the normal state, in which the scheduler
// answers. Thread safety: thread-compatible. The process dies with the thread that started it.
#ifndef CAPSTAN_TESTS_BENCHMARK_LIVE_SERVER_H_
#define CAPSTAN_TESTS_BENCHMARK_LIVE_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/grpc/credentials.h"
#include "common/net/testing/fake_scheduler.h"
#include "common/process/subprocess/subprocess.h"
#include "proto/scheduler.pb.h"

namespace capstan::benchmark {

class LiveServer {
 public:
  struct Options {
    std::string program;                     // Path of capstan-server.
    std::string name;                        // Node id.
    std::string folder;                      // Exists; its log file and its data go there.
    bool log = false;                        // The server gets a folder for write-ahead logs.
    std::string data_listen;                 // Empty: as the server does by itself.
    std::string tls_dir;                     // The server's certificate. Empty: plain text.
    const Credentials* scheduler = nullptr;  // The scheduler's, with tls_dir. Outlive the server.
  };
  // Returns once the server has registered.
  // Errors: kUnavailable  it does not start, or not within 20 s; says what it wrote.
  static absl::StatusOr<std::unique_ptr<LiveServer>> Start(const Options& options);

  // Its address in routing tables.
  const v1::ServerAddress& address() const { return address_; }
  // Returns once the table, its routing and its membership are in force. A later call changes the
  // membership.
  // Errors: kUnavailable  it is not within 20 s, or the server refuses it; says why.
  absl::Status Assign(const v1::TableAssignment& assignment);
  void Kill() { process_->Terminate(absl::ZeroDuration()); }
  // Processor time since the process started.
  double ProcessorSeconds() const;
  // Memory of the process now.
  int64_t ResidentBytes() const;
  int OpenFiles() const;  // 0: it is dead.

 private:
  explicit LiveServer(const Options& options);
  absl::Status Failure(const std::string& what) const;

  const Options options_;
  testing::FakeScheduler scheduler_;
  std::unique_ptr<Subprocess> process_;
  v1::ServerAddress address_;
};

}  // namespace capstan::benchmark

#endif  // CAPSTAN_TESTS_BENCHMARK_LIVE_SERVER_H_
