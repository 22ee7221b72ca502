#include "tests/benchmark/baseline/zmq_table.h"

#include <zmq.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace capstan::benchmark {
namespace {

enum class Kind : int64_t { kPush, kPull };

struct Head {
  Kind kind = Kind::kPush;
  int64_t tensor = 0;
};

absl::Status Failure(const std::string& what) {
  return absl::UnavailableError(absl::StrCat("ZeroMQ: ", what, ": ", zmq_strerror(errno)));
}

ZmqContext NewContext() { return {zmq_ctx_new(), zmq_ctx_term}; }

// Sockets drop what is unsent when they are closed, so that the context ends.
ZmqSocket NewSocket(const ZmqContext& context, int type) {
  ZmqSocket socket(zmq_socket(context.get(), type), zmq_close);
  const int none = 0;
  if (socket == nullptr) return socket;
  zmq_setsockopt(socket.get(), ZMQ_LINGER, &none, sizeof(none));
  // No limit: a ROUTER drops what is beyond it.
  zmq_setsockopt(socket.get(), ZMQ_SNDHWM, &none, sizeof(none));
  zmq_setsockopt(socket.get(), ZMQ_RCVHWM, &none, sizeof(none));
  return socket;
}

// A part of a message.
class Part {
 public:
  Part() { zmq_msg_init(&message_); }
  ~Part() { zmq_msg_close(&message_); }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  absl::Status Receive(void* socket) {
    while (zmq_msg_recv(&message_, socket, 0) < 0) {
      if (errno != EINTR) return Failure("receiving");
    }
    return absl::OkStatus();
  }
  absl::Status Send(void* socket, int flags) {
    if (zmq_msg_send(&message_, socket, flags) < 0) return Failure("sending");
    return absl::OkStatus();
  }
  bool more() const { return zmq_msg_more(&message_) != 0; }
  const void* data() { return zmq_msg_data(&message_); }
  size_t size() const { return zmq_msg_size(&message_); }
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

absl::Status SendHead(void* socket, const Head& head, int flags) {
  if (zmq_send(socket, &head, sizeof(head), flags) < 0) return Failure("sending");
  return absl::OkStatus();
}

// Sends from where the values lie; they stay there until ZeroMQ is done with them. Small ones are
// copied, which is faster.
absl::Status SendValues(void* socket, absl::Span<const float> values) {
  constexpr size_t kSmallBytes = 1024;
  if (const size_t bytes = values.size() * sizeof(float); bytes <= kSmallBytes) {
    if (zmq_send(socket, values.data(), bytes, 0) < 0) return Failure("sending");
    return absl::OkStatus();
  }
  zmq_msg_t message;
  zmq_msg_init_data(
      &message, const_cast<float*>(values.data()), values.size() * sizeof(float),
      [](void*, void*) {}, nullptr);
  if (zmq_msg_send(&message, socket, 0) >= 0) return absl::OkStatus();
  zmq_msg_close(&message);
  return Failure("sending");
}

void AddTo(std::vector<float>& sums, const Part& part, const void* data) {
  const size_t count = part.size() / sizeof(float);
  if (sums.size() != count) sums.assign(count, 0.0f);
  const auto* const values = static_cast<const float*>(data);
  float* const to = sums.data();
  for (size_t i = 0; i < count; ++i) to[i] += values[i];
}

}  // namespace

absl::StatusOr<std::unique_ptr<ZmqTableServer>> ZmqTableServer::Start() {
  ZmqContext context = NewContext();
  ZmqSocket socket = NewSocket(context, ZMQ_ROUTER);
  if (socket == nullptr || zmq_bind(socket.get(), "tcp://127.0.0.1:*") != 0) {
    return Failure("listening");
  }
  char endpoint[64] = {};
  size_t length = sizeof(endpoint);
  if (zmq_getsockopt(socket.get(), ZMQ_LAST_ENDPOINT, endpoint, &length) != 0) {
    return Failure("asking for the port");
  }
  std::unique_ptr<ZmqTableServer> server(new ZmqTableServer(std::move(context), std::move(socket)));
  server->port_ = std::atoi(std::strrchr(endpoint, ':') + 1);
  return server;
}

absl::Status ZmqTableServer::Serve() {
  for (;;) CAPSTAN_RETURN_IF_ERROR(ServeOne());
}

absl::Status ZmqTableServer::ServeOne() {
  Part sender, head_part, values;
  CAPSTAN_RETURN_IF_ERROR(sender.Receive(socket_.get()));
  CAPSTAN_RETURN_IF_ERROR(head_part.Receive(socket_.get()));
  Head head;
  CAPSTAN_RETURN_IF_ERROR(head_part.ReadHead(&head));
  std::vector<float>& tensor = table_[head.tensor];
  const bool push = head.kind == Kind::kPush;
  if (push != head_part.more()) {
    return absl::InvalidArgumentError("a push without values, or a pull with some");
  }
  if (push) {
    CAPSTAN_RETURN_IF_ERROR(values.Receive(socket_.get()));
    AddTo(tensor, values, values.data());
  }
  CAPSTAN_RETURN_IF_ERROR(sender.Send(socket_.get(), ZMQ_SNDMORE));
  if (push) return SendHead(socket_.get(), head, 0);
  CAPSTAN_RETURN_IF_ERROR(SendHead(socket_.get(), head, ZMQ_SNDMORE));
  return SendValues(socket_.get(), tensor);
}

absl::StatusOr<std::unique_ptr<ZmqWorker>> ZmqWorker::Connect(const std::vector<int>& ports) {
  std::unique_ptr<ZmqWorker> worker(new ZmqWorker(NewContext()));
  for (const int port : ports) {
    worker->sockets_.push_back(NewSocket(worker->context_, ZMQ_DEALER));
    void* const socket = worker->sockets_.back().get();
    const std::string endpoint = absl::StrCat("tcp://127.0.0.1:", port);
    if (socket == nullptr || zmq_connect(socket, endpoint.c_str()) != 0) {
      return Failure(absl::StrCat("connecting to ", endpoint));
    }
  }
  return worker;
}

absl::Status ZmqWorker::PushPull(int tensors, absl::Span<const float> gradient,
                                 absl::Span<float> values) {
  const size_t length = gradient.size() / static_cast<size_t>(tensors);
  for (int i = 0; i < tensors; ++i) {
    const auto index = static_cast<size_t>(i);
    void* const socket = sockets_[index % sockets_.size()].get();
    CAPSTAN_RETURN_IF_ERROR(SendHead(socket, {.kind = Kind::kPush, .tensor = i}, ZMQ_SNDMORE));
    CAPSTAN_RETURN_IF_ERROR(SendValues(socket, gradient.subspan(index * length, length)));
    CAPSTAN_RETURN_IF_ERROR(SendHead(socket, {.kind = Kind::kPull, .tensor = i}, 0));
  }
  return ReceiveAll(tensors, values);
}

absl::Status ZmqWorker::ReceiveAll(int tensors, absl::Span<float> values) {
  const size_t length = values.size() / static_cast<size_t>(tensors);
  // A push and a pull of each tensor are answered, in the order they were sent.
  for (int answer = 0; answer < 2 * tensors; ++answer) {
    const auto index = static_cast<size_t>(answer / 2);
    void* const socket = sockets_[index % sockets_.size()].get();
    Part head_part, part;
    CAPSTAN_RETURN_IF_ERROR(head_part.Receive(socket));
    Head head;
    CAPSTAN_RETURN_IF_ERROR(head_part.ReadHead(&head));
    const Kind expected = answer % 2 == 0 ? Kind::kPush : Kind::kPull;
    if (head.kind != expected || head.tensor != static_cast<int64_t>(index)) {
      return absl::InternalError(
          absl::StrCat("an answer for tensor ", head.tensor, ", expected ", index));
    }
    if (expected == Kind::kPush) continue;
    CAPSTAN_RETURN_IF_ERROR(part.Receive(socket));
    if (part.size() != length * sizeof(float)) {
      return absl::InternalError(
          absl::StrCat("pulled ", part.size(), " bytes, expected ", length * sizeof(float)));
    }
    std::memcpy(values.data() + index * length, part.data(), part.size());
  }
  return absl::OkStatus();
}

}  // namespace capstan::benchmark
