#include "tests/benchmark/baseline/zmq_rows.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace capstan::benchmark {
namespace {

enum class Kind : int64_t { kPush, kPull };

struct Head {
  Kind kind = Kind::kPush;
  int64_t dim = 0;
};

template <typename T>
absl::Status SendSpan(void* socket, absl::Span<const T> values, int flags) {
  return SendInPlace(socket, values.data(), values.size() * sizeof(T), flags);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ZmqRowsServer>> ZmqRowsServer::Start() {
  CAPSTAN_ASSIGN_OR_RETURN(ZmqListener listener, ListenZmq());
  return std::unique_ptr<ZmqRowsServer>(new ZmqRowsServer(std::move(listener)));
}

absl::Status ZmqRowsServer::Serve() {
  for (;;) CAPSTAN_RETURN_IF_ERROR(ServeOne());
}

absl::Status ZmqRowsServer::ServeOne() {
  void* const socket = listener_.socket.get();
  ZmqPart sender, head_part, key_part, value_part;
  CAPSTAN_RETURN_IF_ERROR(sender.Receive(socket));
  CAPSTAN_RETURN_IF_ERROR(head_part.Receive(socket));
  Head head;
  CAPSTAN_RETURN_IF_ERROR(head_part.ReadHead(&head));
  CAPSTAN_RETURN_IF_ERROR(key_part.Receive(socket));
  const absl::Span<const uint64_t> keys(static_cast<const uint64_t*>(key_part.data()),
                                        key_part.size() / sizeof(uint64_t));
  const bool push = head.kind == Kind::kPush;
  if (push != key_part.more() || head.dim < 1) {
    return absl::InvalidArgumentError("a push without values, a pull with some, or no dim");
  }
  if (push) {
    CAPSTAN_RETURN_IF_ERROR(value_part.Receive(socket));
    if (value_part.size() != keys.size() * static_cast<size_t>(head.dim) * sizeof(float)) {
      return absl::InvalidArgumentError("a push with another number of values than of keys");
    }
    Add(keys, head.dim, static_cast<const float*>(value_part.data()));
  }
  CAPSTAN_RETURN_IF_ERROR(sender.Send(socket, ZMQ_SNDMORE));
  if (push) return SendBytes(socket, &head, sizeof(head), 0);
  CAPSTAN_RETURN_IF_ERROR(SendBytes(socket, &head, sizeof(head), ZMQ_SNDMORE));
  Read(keys, head.dim);
  return SendBytes(socket, answer_.data(), answer_.size() * sizeof(float), 0);
}

void ZmqRowsServer::Add(absl::Span<const uint64_t> keys, int64_t dim, const float* values) {
  if (dim == 1) {
    for (size_t i = 0; i < keys.size(); ++i) numbers_[keys[i]] += values[i];
    return;
  }
  for (const uint64_t key : keys) {
    std::vector<float>& row = rows_[key];
    if (row.empty()) row.resize(static_cast<size_t>(dim));
    for (float& number : row) number += *values++;
  }
}

void ZmqRowsServer::Read(absl::Span<const uint64_t> keys, int64_t dim) {
  answer_.resize(keys.size() * static_cast<size_t>(dim));
  float* to = answer_.data();
  for (const uint64_t key : keys) {
    if (dim == 1) {
      *to++ = numbers_[key];
      continue;
    }
    const std::vector<float>& row = rows_[key];
    to = row.empty() ? std::fill_n(to, dim, 0.0f) : std::copy(row.begin(), row.end(), to);
  }
}

absl::StatusOr<std::unique_ptr<ZmqRowsWorker>> ZmqRowsWorker::Connect(int port) {
  std::unique_ptr<ZmqRowsWorker> worker(new ZmqRowsWorker(NewZmqContext()));
  CAPSTAN_ASSIGN_OR_RETURN(worker->socket_, ConnectZmq(worker->context_, port));
  return worker;
}

absl::Status ZmqRowsWorker::PushPull(absl::Span<const uint64_t> keys, int64_t dim,
                                     absl::Span<const float> gradients, absl::Span<float> values) {
  void* const socket = socket_.get();
  const Head push = {.kind = Kind::kPush, .dim = dim}, pull = {.kind = Kind::kPull, .dim = dim};
  CAPSTAN_RETURN_IF_ERROR(SendBytes(socket, &push, sizeof(push), ZMQ_SNDMORE));
  CAPSTAN_RETURN_IF_ERROR(SendSpan(socket, keys, ZMQ_SNDMORE));
  CAPSTAN_RETURN_IF_ERROR(SendSpan(socket, gradients, 0));
  CAPSTAN_RETURN_IF_ERROR(SendBytes(socket, &pull, sizeof(pull), ZMQ_SNDMORE));
  CAPSTAN_RETURN_IF_ERROR(SendSpan(socket, keys, 0));
  for (const Kind expected : {Kind::kPush, Kind::kPull}) {
    ZmqPart head_part, part;
    CAPSTAN_RETURN_IF_ERROR(head_part.Receive(socket));
    Head head;
    CAPSTAN_RETURN_IF_ERROR(head_part.ReadHead(&head));
    if (head.kind != expected) return absl::InternalError("an answer to another message");
    if (expected == Kind::kPush) continue;
    CAPSTAN_RETURN_IF_ERROR(part.Receive(socket));
    if (part.size() != values.size() * sizeof(float)) {
      return absl::InternalError(
          absl::StrCat("pulled ", part.size(), " bytes, expected ", values.size() * sizeof(float)));
    }
    std::memcpy(values.data(), part.data(), part.size());
  }
  return absl::OkStatus();
}

}  // namespace capstan::benchmark
