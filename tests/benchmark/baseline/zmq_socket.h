// ZeroMQ's handles, and messages in parts: what the baselines over ZeroMQ share.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_BENCHMARK_BASELINE_ZMQ_SOCKET_H_
#define CAPSTAN_TESTS_BENCHMARK_BASELINE_ZMQ_SOCKET_H_

#include <zmq.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace capstan::benchmark {

using ZmqContext = std::unique_ptr<void, int (*)(void*)>;
using ZmqSocket = std::unique_ptr<void, int (*)(void*)>;

// Returns ZeroMQ's last error: kUnavailable.
absl::Status ZmqFailure(const std::string& what);

ZmqContext NewZmqContext();
// Sockets drop what is unsent when they are closed, so that the context ends; their queues have no
// limit. Null: ZeroMQ refuses.
ZmqSocket NewZmqSocket(const ZmqContext& context, int type);

// A ROUTER on a free port of loopback, and a DEALER connected to one.
struct ZmqListener {
  ZmqContext context;
  ZmqSocket socket;
  int port = 0;
};
absl::StatusOr<ZmqListener> ListenZmq();
absl::StatusOr<ZmqSocket> ConnectZmq(const ZmqContext& context, int port);

// A part of a message.
class ZmqPart {
 public:
  ZmqPart() { zmq_msg_init(&message_); }
  ~ZmqPart() { zmq_msg_close(&message_); }
  ZmqPart(const ZmqPart&) = delete;
  ZmqPart& operator=(const ZmqPart&) = delete;

  absl::Status Receive(void* socket);
  absl::Status Send(void* socket, int flags);
  bool more() const { return zmq_msg_more(&message_) != 0; }
  const void* data() { return zmq_msg_data(&message_); }
  size_t size() const { return zmq_msg_size(&message_); }
  // Errors: kInvalidArgument  it is no Head.
  template <typename Head>
  absl::Status ReadHead(Head* head) {
    if (size() != sizeof(Head)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a head of ", size(), " bytes, expected ", sizeof(Head)));
    }
    std::memcpy(head, data(), sizeof(Head));
    return absl::OkStatus();
  }

 private:
  zmq_msg_t message_;
};

// Sends a copy.
absl::Status SendBytes(void* socket, const void* data, size_t bytes, int flags);
// Sends from where the data lies; it stays there until ZeroMQ is done with it. A little is copied,
// which is faster.
absl::Status SendInPlace(void* socket, const void* data, size_t bytes, int flags);

}  // namespace capstan::benchmark

#endif  // CAPSTAN_TESTS_BENCHMARK_BASELINE_ZMQ_SOCKET_H_
