// DaemonProcess: the real program of a daemon, run by a test against a fake scheduler, and checks
// that hold for every such program.
//
// The Check functions are whole test cases; they fail the test that calls them.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_NET_TESTING_DAEMON_PROCESS_H_
#define CAPSTAN_COMMON_NET_TESTING_DAEMON_PROCESS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/process/subprocess/subprocess.h"

namespace capstan::testing {

constexpr absl::Duration kProcessPatience = absl::Seconds(20);

class DaemonProcess {
 public:
  // Starts `program` (a path in this test's data) with a folder, a log and a port file of its own;
  // it removes those of an earlier process of the same program.
  DaemonProcess(const std::string& program, const std::string& scheduler,
                const std::vector<std::string>& flags = {});

  Subprocess& operator*() const { return *process_; }
  Subprocess* operator->() const { return process_.get(); }

  std::string log() const;
  std::string port_file() const;                    // Contents of the port file.
  std::string Path(const std::string& name) const;  // Path of a file in its folder.
  void WaitForLog(const std::string& text) const;   // Returns once the log has `text`.

 private:
  const std::string folder_;
  std::unique_ptr<Subprocess> process_;
};

void CheckSaysGoodBye(const std::string& program, int signal);  // It exits with 0.
void CheckRefusedByScheduler(const std::string& program);       // It exits with 1 and the cause.
void CheckPortInUse(const std::string& program);                // It exits with 1 and the address.
void CheckStopsWithoutScheduler(const std::string& program, const std::vector<std::string>& flags);

}  // namespace capstan::testing

#endif  // CAPSTAN_COMMON_NET_TESTING_DAEMON_PROCESS_H_
