#include "tests/benchmark/baseline/zmq_socket.h"

#include <cerrno>
#include <cstdlib>
#include <utility>

namespace capstan::benchmark {

absl::Status ZmqFailure(const std::string& what) {
  return absl::UnavailableError(absl::StrCat("ZeroMQ: ", what, ": ", zmq_strerror(errno)));
}

ZmqContext NewZmqContext() { return {zmq_ctx_new(), zmq_ctx_term}; }

ZmqSocket NewZmqSocket(const ZmqContext& context, int type) {
  ZmqSocket socket(zmq_socket(context.get(), type), zmq_close);
  const int none = 0;
  if (socket == nullptr) return socket;
  zmq_setsockopt(socket.get(), ZMQ_LINGER, &none, sizeof(none));
  // No limit: a ROUTER drops what is beyond it.
  zmq_setsockopt(socket.get(), ZMQ_SNDHWM, &none, sizeof(none));
  zmq_setsockopt(socket.get(), ZMQ_RCVHWM, &none, sizeof(none));
  return socket;
}

absl::StatusOr<ZmqListener> ListenZmq() {
  ZmqContext context = NewZmqContext();
  ZmqSocket socket = NewZmqSocket(context, ZMQ_ROUTER);
  if (socket == nullptr || zmq_bind(socket.get(), "tcp://127.0.0.1:*") != 0) {
    return ZmqFailure("listening");
  }
  char endpoint[64] = {};
  size_t length = sizeof(endpoint);
  if (zmq_getsockopt(socket.get(), ZMQ_LAST_ENDPOINT, endpoint, &length) != 0) {
    return ZmqFailure("asking for the port");
  }
  const int port = std::atoi(std::strrchr(endpoint, ':') + 1);
  return ZmqListener{std::move(context), std::move(socket), port};
}

absl::StatusOr<ZmqSocket> ConnectZmq(const ZmqContext& context, int port) {
  ZmqSocket socket = NewZmqSocket(context, ZMQ_DEALER);
  const std::string endpoint = absl::StrCat("tcp://127.0.0.1:", port);
  if (socket == nullptr || zmq_connect(socket.get(), endpoint.c_str()) != 0) {
    return ZmqFailure(absl::StrCat("connecting to ", endpoint));
  }
  return socket;
}

absl::Status ZmqPart::Receive(void* socket) {
  while (zmq_msg_recv(&message_, socket, 0) < 0) {
    if (errno != EINTR) return ZmqFailure("receiving");
  }
  return absl::OkStatus();
}

absl::Status ZmqPart::Send(void* socket, int flags) {
  if (zmq_msg_send(&message_, socket, flags) < 0) return ZmqFailure("sending");
  return absl::OkStatus();
}

absl::Status SendBytes(void* socket, const void* data, size_t bytes, int flags) {
  if (zmq_send(socket, data, bytes, flags) < 0) return ZmqFailure("sending");
  return absl::OkStatus();
}

absl::Status SendInPlace(void* socket, const void* data, size_t bytes, int flags) {
  constexpr size_t kSmallBytes = 1024;
  if (bytes <= kSmallBytes) return SendBytes(socket, data, bytes, flags);
  zmq_msg_t message;
  zmq_msg_init_data(
      &message, const_cast<void*>(data), bytes, [](void*, void*) {}, nullptr);
  if (zmq_msg_send(&message, socket, flags) >= 0) return absl::OkStatus();
  zmq_msg_close(&message);
  return ZmqFailure("sending");
}

}  // namespace capstan::benchmark
