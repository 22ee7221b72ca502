// PeerProcess: the other side of a baseline, a process of its own as a capstan-server is.
//
// baseline_server connects back to this process and says on which port it serves.
// Thread safety: thread-compatible. The process dies with the thread that started it.
#ifndef CAPSTAN_TESTS_BENCHMARK_BASELINE_PEER_PROCESS_H_
#define CAPSTAN_TESTS_BENCHMARK_BASELINE_PEER_PROCESS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/process/subprocess/subprocess.h"

namespace capstan::benchmark {

class PeerProcess {
 public:
  // Starts `program` (baseline_server) as a server of `kind`, its output in `folder`, which exists.
  // Errors: kUnavailable  it does not serve within 20 s; says what it wrote.
  static absl::StatusOr<std::unique_ptr<PeerProcess>> Start(const std::string& program,
                                                            const std::string& kind,
                                                            const std::string& folder);
  int port() const { return port_; }
  double ProcessorSeconds() const;

 private:
  PeerProcess() = default;

  std::unique_ptr<Subprocess> process_;
  int port_ = 0;
};

// The process's side: tells whoever listens at `report_to` that `port` is served.
absl::Status ReportPort(int report_to, int port);

}  // namespace capstan::benchmark

#endif  // CAPSTAN_TESTS_BENCHMARK_BASELINE_PEER_PROCESS_H_
