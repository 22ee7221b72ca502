// A call whose stream is reset, by a server that is no gRPC.
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/net/frame/data_socket.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/storage/files/descriptor.h"
#include "common/testing/status_matchers.h"

namespace capstan::lost_call_test {
namespace {

// HTTP/2 (RFC 9113), as little of it as it takes to reset every stream that a client opens.
class Resetter {
 public:
  explicit Resetter(int error)
      : error_(error),
        listening_(ListenForData("127.0.0.1:0").value()),
        thread_([this] { Serve(); }) {}
  ~Resetter() { thread_.join(); }
  std::string address() const { return absl::StrCat("127.0.0.1:", listening_.port); }

 private:
  static constexpr size_t kPreface = 24;
  enum FrameType : char { kHeaders = 1, kReset = 3, kSettings = 4 };

  void Serve() {
    pollfd waiting{.fd = listening_.socket.get(), .events = POLLIN, .revents = 0};
    poll(&waiting, 1, -1);
    const Descriptor socket = AcceptData(listening_.socket.get());
    Read(socket, kPreface);
    Write(socket, kSettings, 0, "");
    for (std::string head = Read(socket, 9); head.size() == 9; head = Read(socket, 9)) {
      const auto byte = [&head](size_t i) { return static_cast<uint8_t>(head[i]); };
      Read(socket, size_t{byte(0)} << 16 | size_t{byte(1)} << 8 | byte(2));
      if (head[3] == kHeaders) {
        Write(socket, kReset, byte(8), {0, 0, 0, static_cast<char>(error_)});
      }
    }
  }
  static std::string Read(const Descriptor& socket, size_t size) {
    std::string bytes(size, 0);
    for (size_t have = 0; have < size;) {
      pollfd ready{.fd = socket.get(), .events = POLLIN, .revents = 0};
      poll(&ready, 1, -1);
      const ssize_t got = recv(socket.get(), bytes.data() + have, size - have, 0);
      if (got <= 0) return "";  // The client has gone.
      have += static_cast<size_t>(got);
    }
    return bytes;
  }
  static void Write(const Descriptor& socket, FrameType type, uint8_t stream,
                    const std::string& payload) {
    std::string frame(9, 0);
    frame[2] = static_cast<char>(payload.size());
    frame[3] = type;
    frame[8] = static_cast<char>(stream);
    frame += payload;
    send(socket.get(), frame.data(), frame.size(), MSG_NOSIGNAL);
  }

  const int error_;
  const ListeningSocket listening_;
  std::thread thread_;
};

TEST_CASE("Lost call: a stream that is reset is one (issue 20)", "[net]") {
  const int error = GENERATE(0, 1, 2);  // NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR.
  Resetter server(error);
  {
    grpc::GenericStub stub(MakeChannel(server.address(), ChannelKind::kData));
    grpc::ClientContext context;
    SetDeadline(context, absl::Seconds(60));
    const grpc::Slice empty;
    const grpc::ByteBuffer request(&empty, 1);
    grpc::ByteBuffer response;
    absl::Notification ended;
    absl::Status status;
    stub.UnaryCall(&context, "/capstan.v1.ParameterServer/Push", {}, &request, &response,
                   [&](const grpc::Status& told) {
                     status = FromGrpcStatus(told);
                     ended.Notify();
                   });
    ended.WaitForNotification();
    CHECK_STATUS(status, absl::StatusCode::kUnavailable, "RST_STREAM");
  }
}

}  // namespace
}  // namespace capstan::lost_call_test
