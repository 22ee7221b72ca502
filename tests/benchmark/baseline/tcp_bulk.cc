#include "tests/benchmark/baseline/tcp_bulk.h"

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "tests/benchmark/baseline/add_values.h"

namespace capstan::benchmark {
namespace {

constexpr int64_t kBytesMax = int64_t{1} << 30;

// Starts a turn; both ends are the same program on the same machine.
struct Command {
  int64_t push_bytes = 0;  // Bytes of a message from client to server; 0: none.
  int64_t pull_bytes = 0;
  int64_t count = 0;
  int64_t streamed = 0;
};

struct Head {
  int64_t number = 0;
  int64_t bytes = 0;
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

absl::Status ServeTurn(const Command& command, Socket& connection, std::vector<float>& in,
                       std::vector<float>& out, std::vector<float>& sums) {
  Head head;
  for (int64_t i = 0; i < command.count; ++i) {
    if (command.streamed == 0) CAPSTAN_RETURN_IF_ERROR(connection.Receive({PieceOf(head)}));
    CAPSTAN_RETURN_IF_ERROR(connection.Exchange(PiecesOf(out), PiecesOf(in)));
    if (command.streamed != 0 || in.empty()) continue;
    AddValues(in.data(), in.size(), sums);
    CAPSTAN_RETURN_IF_ERROR(connection.Send({PieceOf(head)}));
  }
  if (command.streamed == 0) return absl::OkStatus();
  return connection.Send({PieceOf(head)});
}

}  // namespace

absl::Status ServeTcpBulk(Socket& connection) {
  std::vector<float> in, out, sums;
  for (;;) {
    Command command;
    CAPSTAN_RETURN_IF_ERROR(connection.Receive({PieceOf(command)}));
    if (command.push_bytes < 0 || command.push_bytes > kBytesMax || command.pull_bytes < 0 ||
        command.pull_bytes > kBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat("messages of ", command.push_bytes, " and ",
                                                     command.pull_bytes, " bytes, expected 0 to ",
                                                     kBytesMax));
    }
    in.resize(ValuesIn(command.push_bytes));
    out.assign(ValuesIn(command.pull_bytes), 0.5f);
    CAPSTAN_RETURN_IF_ERROR(ServeTurn(command, connection, in, out, sums));
  }
}

absl::StatusOr<TcpBulk> TcpBulk::Connect(int port) {
  CAPSTAN_ASSIGN_OR_RETURN(Socket socket, Socket::Connect(port));
  return TcpBulk(std::move(socket));
}

absl::StatusOr<Turn> TcpBulk::Run(Direction direction, int64_t bytes, int64_t count, bool streamed,
                                  const std::function<double()>& processor) {
  Command command{.count = count, .streamed = streamed};
  if (direction != Direction::kPull) command.push_bytes = bytes;
  if (direction != Direction::kPush) command.pull_bytes = bytes;
  out_.resize(ValuesIn(command.push_bytes), 0.5f);
  in_.resize(ValuesIn(command.pull_bytes));
  const auto moved = static_cast<double>(command.push_bytes + command.pull_bytes);
  OperationTimer timer(processor);
  CAPSTAN_RETURN_IF_ERROR(socket_.Send({PieceOf(command)}));
  Head head{.bytes = bytes};
  if (streamed) timer.Begin();
  for (; head.number < count; ++head.number) {
    std::vector<iovec> send = PiecesOf(out_);
    if (!streamed) {
      timer.Begin();
      send.insert(send.begin(), PieceOf(head));
    }
    CAPSTAN_RETURN_IF_ERROR(socket_.Exchange(std::move(send), PiecesOf(in_)));
    if (streamed) continue;
    Head answer;
    if (!out_.empty()) CAPSTAN_RETURN_IF_ERROR(socket_.Receive({PieceOf(answer)}));
    timer.End(moved);
  }
  if (streamed) {
    CAPSTAN_RETURN_IF_ERROR(socket_.Receive({PieceOf(head)}));
    timer.End(moved * static_cast<double>(count));
  }
  return timer.Take();
}

}  // namespace capstan::benchmark
