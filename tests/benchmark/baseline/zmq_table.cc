#include "tests/benchmark/baseline/zmq_table.h"

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "tests/benchmark/baseline/add_values.h"

namespace capstan::benchmark {
namespace {

enum class Kind : int64_t { kPush, kPull };

struct Head {
  Kind kind = Kind::kPush;
  int64_t tensor = 0;
};

absl::Status SendHead(void* socket, const Head& head, int flags) {
  return SendBytes(socket, &head, sizeof(head), flags);
}

absl::Status SendValues(void* socket, absl::Span<const float> values) {
  return SendInPlace(socket, values.data(), values.size() * sizeof(float), 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ZmqTableServer>> ZmqTableServer::Start() {
  CAPSTAN_ASSIGN_OR_RETURN(ZmqListener listener, ListenZmq());
  return std::unique_ptr<ZmqTableServer>(new ZmqTableServer(std::move(listener)));
}

absl::Status ZmqTableServer::Serve() {
  for (;;) CAPSTAN_RETURN_IF_ERROR(ServeOne());
}

absl::Status ZmqTableServer::ServeOne() {
  ZmqPart sender, head_part, values;
  CAPSTAN_RETURN_IF_ERROR(sender.Receive(listener_.socket.get()));
  CAPSTAN_RETURN_IF_ERROR(head_part.Receive(listener_.socket.get()));
  Head head;
  CAPSTAN_RETURN_IF_ERROR(head_part.ReadHead(&head));
  std::vector<float>& tensor = table_[head.tensor];
  const bool push = head.kind == Kind::kPush;
  if (push != head_part.more()) {
    return absl::InvalidArgumentError("a push without values, or a pull with some");
  }
  if (push) {
    CAPSTAN_RETURN_IF_ERROR(values.Receive(listener_.socket.get()));
    AddValues(static_cast<const float*>(values.data()), values.size() / sizeof(float), tensor);
  }
  CAPSTAN_RETURN_IF_ERROR(sender.Send(listener_.socket.get(), ZMQ_SNDMORE));
  if (push) return SendHead(listener_.socket.get(), head, 0);
  CAPSTAN_RETURN_IF_ERROR(SendHead(listener_.socket.get(), head, ZMQ_SNDMORE));
  return SendValues(listener_.socket.get(), tensor);
}

absl::StatusOr<std::unique_ptr<ZmqWorker>> ZmqWorker::Connect(const std::vector<int>& ports) {
  std::unique_ptr<ZmqWorker> worker(new ZmqWorker(NewZmqContext()));
  for (const int port : ports) {
    CAPSTAN_ASSIGN_OR_RETURN(ZmqSocket socket, ConnectZmq(worker->context_, port));
    worker->sockets_.push_back(std::move(socket));
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
    ZmqPart head_part, part;
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
