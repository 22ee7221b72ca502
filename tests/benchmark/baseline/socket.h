// Socket: a TCP socket on loopback with vectored, full-duplex transfers: the raw speed that the
// data plane is compared with.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_BENCHMARK_BASELINE_SOCKET_H_
#define CAPSTAN_TESTS_BENCHMARK_BASELINE_SOCKET_H_

#include <sys/uio.h>

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace capstan::benchmark {

class Socket {
 public:
  Socket() = default;
  ~Socket();
  Socket(Socket&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }

  // Errors of all: kUnavailable  the system refuses, or the peer is gone; says why.
  static absl::StatusOr<Socket> Listen();  // On a free port of 127.0.0.1.
  static absl::StatusOr<Socket> Connect(int port);
  absl::StatusOr<int> Port() const;  // Returns this end's port.
  // Errors: kDeadlineExceeded  nobody connected in time.
  absl::StatusOr<Socket> Accept(absl::Duration timeout) const;

  // Sends `out` and receives `in`, both at once in this thread; either may be empty. As writev and
  // readv do, pieces are filled one after the other.
  absl::Status Exchange(std::vector<iovec> out, std::vector<iovec> in);
  absl::Status Send(std::vector<iovec> out) { return Exchange(std::move(out), {}); }
  absl::Status Receive(std::vector<iovec> in) { return Exchange({}, std::move(in)); }

 private:
  explicit Socket(int file) : file_(file) {}

  int file_ = -1;
};

}  // namespace capstan::benchmark

#endif  // CAPSTAN_TESTS_BENCHMARK_BASELINE_SOCKET_H_
