#include "tests/benchmark/baseline/tcp_bulk.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "tests/benchmark/baseline/add_values.h"

namespace capstan::benchmark {
namespace {

constexpr int64_t kBytesMax = int64_t{1} << 30;

// The client's first message. Both ends are the same program on the same machine.
struct Command {
  int64_t push_bytes = 0;  // Bytes of a message from client to server; 0: none.
  int64_t pull_bytes = 0;
  // So many messages follow each way, and nothing is added. With 0 one follows, which is added.
  int64_t streamed = 0;
};

template <typename T>
iovec PieceOf(T& value) {
  return {.iov_base = &value, .iov_len = sizeof(value)};
}

std::vector<iovec> PiecesOf(std::vector<float>& values) {
  if (values.empty()) return {};
  return {{.iov_base = values.data(), .iov_len = values.size() * sizeof(float)}};
}

size_t ValuesIn(int64_t bytes) { return static_cast<size_t>(bytes) / sizeof(float); }

bool IsSize(int64_t bytes) { return bytes >= 0 && bytes <= kBytesMax; }

absl::Status Check(const Command& command) {
  if (IsSize(command.push_bytes) && IsSize(command.pull_bytes)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("messages of ", command.push_bytes, " and ",
                                                 command.pull_bytes, " bytes, expected 0 to ",
                                                 kBytesMax));
}

}  // namespace

absl::Status ServeTcpBulk(Socket& connection) {
  std::vector<float> in, sums;
  for (;;) {
    Command command;
    CAPSTAN_RETURN_IF_ERROR(connection.Receive({PieceOf(command)}));
    CAPSTAN_RETURN_IF_ERROR(Check(command));
    in.resize(ValuesIn(command.push_bytes));
    std::vector<iovec> out;
    if (command.pull_bytes > 0) {
      sums.resize(ValuesIn(command.pull_bytes));
      out = PiecesOf(sums);
    }
    for (int64_t left = std::max<int64_t>(1, command.streamed); left > 0; --left) {
      CAPSTAN_RETURN_IF_ERROR(connection.Exchange(out, PiecesOf(in)));
    }
    const bool add = command.streamed == 0 && !in.empty();
    if (add) AddValues(in.data(), in.size(), sums);
    if (add || command.streamed > 0) CAPSTAN_RETURN_IF_ERROR(connection.Send({PieceOf(command)}));
  }
}

absl::StatusOr<TcpBulk> TcpBulk::Connect(int port) {
  CAPSTAN_ASSIGN_OR_RETURN(Socket socket, Socket::Connect(port));
  return TcpBulk(std::move(socket));
}

absl::Status TcpBulk::Operate(Direction direction, int64_t bytes, int64_t streamed) {
  Command command{.streamed = streamed};
  if (direction != Direction::kPull) command.push_bytes = bytes;
  if (direction != Direction::kPush) command.pull_bytes = bytes;
  out_.resize(ValuesIn(command.push_bytes), 0.5f);
  in_.resize(ValuesIn(command.pull_bytes));
  std::vector<iovec> send = PiecesOf(out_);
  send.insert(send.begin(), PieceOf(command));
  CAPSTAN_RETURN_IF_ERROR(socket_.Exchange(std::move(send), PiecesOf(in_)));
  for (int64_t left = streamed - 1; left > 0; --left) {
    CAPSTAN_RETURN_IF_ERROR(socket_.Exchange(PiecesOf(out_), PiecesOf(in_)));
  }
  if (streamed == 0 && out_.empty()) return absl::OkStatus();
  return socket_.Receive({PieceOf(command)});
}

absl::StatusOr<Turn> TcpBulk::Run(Direction direction, int64_t bytes, int64_t count, bool streamed,
                                  const std::function<double()>& processor) {
  const auto moved = static_cast<double>(bytes) * (direction == Direction::kBoth ? 2 : 1);
  OperationTimer timer(processor);
  if (streamed) {
    timer.Begin();
    CAPSTAN_RETURN_IF_ERROR(Operate(direction, bytes, count));
    timer.End(moved * static_cast<double>(count));
    return timer.Take();
  }
  for (int64_t i = 0; i < count; ++i) {
    if (direction == Direction::kPull) {
      CAPSTAN_RETURN_IF_ERROR(Operate(Direction::kPush, bytes, /*streamed=*/0));
    }
    timer.Begin();
    CAPSTAN_RETURN_IF_ERROR(Operate(direction, bytes, /*streamed=*/0));
    timer.End(moved);
  }
  return timer.Take();
}

}  // namespace capstan::benchmark
