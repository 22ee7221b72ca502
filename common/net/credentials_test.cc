// Credentials: TLS between real gRPC and data servers and their callers.
#include "common/net/grpc/credentials.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/net/data/data_caller.h"
#include "common/net/data/data_server.h"
#include "common/net/frame/data_socket.h"
#include "common/net/gate/call_gate.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc/grpc_server.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/net/socket/wake_up.h"
#include "common/security/testing/test_authority.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"
#include "common/time/clock.h"
#include "proto/worker.grpc.pb.h"

namespace capstan::credentials_test {
namespace {

using absl::StatusCode;
using testing::TestAuthority;

constexpr absl::Duration kPatience = absl::Seconds(20);

// Answers with the caller's identity.
class Service final : public v1::Worker::CallbackService {
 public:
  grpc::ServerUnaryReactor* ReadTaskLog(grpc::CallbackServerContext* context,
                                        const v1::ReadTaskLogRequest*,
                                        v1::ReadTaskLogResponse* response) override {
    const std::optional<Identity> caller = CallerOf(*context);
    response->set_data(caller.has_value() ? FormatIdentity(*caller) : "nobody");
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(
        caller.has_value() ? CheckCallerIs(*context, {PeerRole::kUser}, "ann") : absl::OkStatus()));
    return reactor;
  }
};

std::unique_ptr<Credentials> Open(const std::string& folder) {
  auto credentials = Credentials::Read(folder);
  REQUIRE_OK(credentials);
  return *std::move(credentials);
}

absl::StatusOr<std::string> Ask(const std::string& address, const Credentials* credentials,
                                const ExpectedPeer& peer = {PeerRole::kWorker, "w-1"}) {
  const auto stub =
      v1::Worker::NewStub(MakeChannel(address, ChannelKind::kControl, credentials, peer));
  grpc::ClientContext context;
  SetDeadline(context, kPatience);
  v1::ReadTaskLogResponse response;
  const absl::Status status = FromGrpcStatus(stub->ReadTaskLog(&context, {}, &response));
  if (!status.ok()) return status;
  return response.data();
}

struct Fixture {
  Fixture() : credentials(Open(authority.MakeFolder("worker", PeerRole::kWorker, "w-1"))) {
    auto started = GrpcServer::Start({.services = {&service}, .credentials = credentials.get()});
    REQUIRE_OK(started);
    server = *std::move(started);
  }
  absl::StatusOr<std::string> AskAs(PeerRole role, const std::string& name) {
    const auto own = Open(authority.MakeFolder("caller", role, name));
    return Ask(server->address(), own.get());
  }

  const TestAuthority authority;
  const std::unique_ptr<Credentials> credentials;
  Service service;
  std::unique_ptr<GrpcServer> server;
};

TEST_CASE("Credentials: a call arrives with its caller's identity", "[net][security]") {
  Fixture f;
  REQUIRE_OK_AND_ASSIGN(const std::string caller, f.AskAs(PeerRole::kUser, "ann"));
  CHECK(caller == "capstan://test/user/ann");
}

TEST_CASE("Credentials: who may not call is told why", "[net][security]") {
  Fixture f;
  SECTION("a role that the table does not list") {
    CHECK_STATUS(f.AskAs(PeerRole::kServer, "s-1"), StatusCode::kPermissionDenied,
                 "called by capstan://test/server/s-1, expected a certificate of the roles user");
  }
  SECTION("a name that the handler does not expect") {
    CHECK_STATUS(f.AskAs(PeerRole::kUser, "bob"), StatusCode::kPermissionDenied,
                 "in the name of the user \"ann\"");
  }
  SECTION("a certificate on the deny list, from a second later on") {
    const auto own = Open(f.authority.MakeFolder("caller", PeerRole::kUser, "ann"));
    REQUIRE_OK(Ask(f.server->address(), own.get()));
    const auto ask_until = [&](StatusCode code) {
      const absl::Time end = absl::Now() + kPatience;
      absl::Status status;
      do {
        status = Ask(f.server->address(), own.get()).status();
      } while (status.code() != code && absl::Now() < end);
      return status;
    };
    std::ofstream(testing::TestPath("worker") + "/denied.txt") << "capstan://test/user/ann\n";
    CHECK_STATUS(ask_until(StatusCode::kPermissionDenied), StatusCode::kPermissionDenied,
                 "is on the deny list");
    std::remove((testing::TestPath("worker") + "/denied.txt").c_str());
    REQUIRE_OK(ask_until(StatusCode::kOk));
  }
}

TEST_CASE("Credentials: strangers get no connection", "[net][security]") {
  Fixture f;
  SECTION("in plain text") {
    CHECK_STATUS(Ask(f.server->address(), nullptr), StatusCode::kUnavailable, "");
  }
  SECTION("with a certificate of another authority") {
    const TestAuthority other;
    const auto own = Open(other.MakeFolder("stranger", PeerRole::kUser, "ann"));
    CHECK_STATUS(Ask(f.server->address(), own.get()), StatusCode::kUnavailable, "");
  }
}

TEST_CASE("Credentials: a caller connects only to the node that it expects", "[net][security]") {
  Fixture f;
  const auto own = Open(f.authority.MakeFolder("caller", PeerRole::kUser, "ann"));
  CHECK_STATUS(Ask(f.server->address(), own.get(), {PeerRole::kWorker, "w-2"}),
               StatusCode::kUnavailable, "expected \"capstan://test/worker/w-2\"");
  CHECK_STATUS(Ask(f.server->address(), own.get(), {PeerRole::kScheduler, ""}),
               StatusCode::kUnavailable, "expected \"capstan://test/scheduler\"");
}

TEST_CASE("Credentials: a caller connects to no node that its own deny list has",
          "[net][security]") {
  Fixture f;
  const std::string folder = f.authority.MakeFolder("caller", PeerRole::kUser, "ann");
  std::ofstream(folder + "/denied.txt") << "capstan://test/worker/w-1\n";
  const auto own = Open(folder);
  CHECK_STATUS(Ask(f.server->address(), own.get()), StatusCode::kUnavailable,
               "capstan://test/worker/w-1: its certificate ");
  std::filesystem::remove(folder + "/denied.txt");
}

TEST_CASE("CallGate: looks for the deny list once a second, and after the clock was set back",
          "[net][security]") {
  const std::string path = testing::TestPath("denied.txt");
  std::remove(path.c_str());
  CallGate gate({.cluster = "test", .deny_list = path});
  const absl::Time begin = absl::FromUnixSeconds(1'000'000);
  const CertificateFacts ann{
      .identity = {.cluster = "test", .role = PeerRole::kUser, .name = "ann"},
      .serial = "ab",
      .not_before = absl::InfinitePast(),
      .not_after = absl::InfiniteFuture()};
  const auto ask = [&](absl::Duration after) {
    return gate.Check(ann, "/capstan.v1.Worker/ReadTaskLog", begin + after);
  };
  REQUIRE_OK(ask(absl::ZeroDuration()));
  std::ofstream(path) << "ab\n";
  REQUIRE_OK(ask(absl::Milliseconds(999)));
  CHECK_STATUS(ask(absl::Seconds(1)), StatusCode::kPermissionDenied, "is on the deny list");
  std::remove(path.c_str());
  CHECK_STATUS(ask(absl::Seconds(1.5)), StatusCode::kPermissionDenied, "is on the deny list");
  REQUIRE_OK(ask(-absl::Hours(1)));
}

// ---------------------------------------------------------------- data connections

// An echo over a data connection.
struct DataFixture {
  DataFixture() : credentials(Open(authority.MakeFolder("server", PeerRole::kServer, "s-1"))) {
    DataServer::Options options;
    options.listen = "127.0.0.1:0";
    options.admit = [this](const std::string&, const std::optional<Identity>& caller) {
      knows_caller = caller.has_value() && FormatIdentity(*caller) == "capstan://test/worker/w-1";
      DataServer::Admitted admitted;
      admitted.handler = [](DataMethod, absl::Cord payload, const DataServer::Done& done) {
        done(std::move(payload));
        return DataServer::Cancel();
      };
      return admitted;
    };
    options.credentials = credentials.get();
    auto started = DataServer::Start(std::move(options));
    REQUIRE_OK(started);
    server = *std::move(started);
  }

  absl::StatusOr<std::unique_ptr<SocketStream>> Connect(const Credentials& own,
                                                        const std::string& expected) const {
    WakeUp never;
    return ConnectForData({.host = "127.0.0.1", .port = server->port()}, server->token(), kPatience,
                          never.descriptor(), [&](Descriptor socket) {
                            return own.ToServer(std::move(socket), {PeerRole::kServer, expected});
                          });
  }

  const TestAuthority authority;
  const std::unique_ptr<Credentials> credentials;
  std::atomic<bool> knows_caller = false;  // The last connection was w-1's.
  std::unique_ptr<DataServer> server;
};

absl::StatusOr<absl::Cord> Echo(std::unique_ptr<SocketStream> stream, DataMethod method,
                                const absl::Cord& payload) {
  const SteadyClock clock;
  DataCaller caller(std::move(stream), &clock);
  std::thread thread([&] { caller.Run().IgnoreError(); });
  absl::Notification there;
  absl::StatusOr<absl::Cord> answer;
  caller.Start({.method = method, .bytes = payload, .timeout = kPatience, .patience = {}},
               [&](absl::StatusOr<absl::Cord> got) {
                 answer = std::move(got);
                 there.Notify();
               });
  there.WaitForNotification();
  caller.Close();
  thread.join();
  return answer;
}

TEST_CASE("Credentials: values of any size cross an encrypted data connection", "[net][security]") {
  DataFixture f;
  const auto own = Open(f.authority.MakeFolder("worker", PeerRole::kWorker, "w-1"));
  for (const size_t size : {size_t{0}, size_t{1}, size_t{16'384}, size_t{5'000'003}}) {
    std::string bytes(size, '\0');
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31 >> 3);
    REQUIRE_OK_AND_ASSIGN(auto stream, f.Connect(*own, "s-1"));
    REQUIRE(stream->peer().has_value());
    REQUIRE_OK_AND_ASSIGN(const absl::Cord answer,
                          Echo(std::move(stream), DataMethod::kPush, absl::Cord(bytes)));
    CHECK(answer == bytes);
    CHECK(f.knows_caller);
  }
}

TEST_CASE("Credentials: a data connection has the same gate", "[net][security]") {
  DataFixture f;
  SECTION("for methods") {
    const auto own = Open(f.authority.MakeFolder("worker", PeerRole::kWorker, "w-1"));
    REQUIRE_OK_AND_ASSIGN(auto stream, f.Connect(*own, "s-1"));
    CHECK_STATUS(Echo(std::move(stream), DataMethod::kReplicate, absl::Cord("x")),
                 StatusCode::kPermissionDenied, "expected a certificate of the roles server");
  }
  SECTION("for the server's name") {
    const auto own = Open(f.authority.MakeFolder("worker", PeerRole::kWorker, "w-1"));
    CHECK_STATUS(f.Connect(*own, "s-2"), StatusCode::kPermissionDenied,
                 "names capstan://test/server/s-1, expected capstan://test/server/s-2");
  }
  SECTION("for a server that the caller's deny list has") {
    const std::string folder = f.authority.MakeFolder("worker", PeerRole::kWorker, "w-1");
    std::ofstream(folder + "/denied.txt") << "capstan://test/server/s-1\n";
    CHECK_STATUS(f.Connect(*Open(folder), "s-1"), StatusCode::kPermissionDenied,
                 "capstan://test/server/s-1: its certificate ");
    std::filesystem::remove(folder + "/denied.txt");
  }
  SECTION("for strangers") {
    const TestAuthority other;
    const auto own = Open(other.MakeFolder("stranger", PeerRole::kWorker, "w-1"));
    CHECK_STATUS(f.Connect(*own, "s-1"), StatusCode::kUnavailable, "certificate verify failed");
  }
  SECTION("for plain text") {
    WakeUp never;
    CHECK_FALSE(ConnectForData({.host = "127.0.0.1", .port = f.server->port()}, f.server->token(),
                               kPatience, never.descriptor())
                    .ok());
  }
}

TEST_CASE("Credentials: new certificates serve new connections, without a restart",
          "[net][security]") {
  DataFixture f;
  const auto own = Open(f.authority.MakeFolder("worker", PeerRole::kWorker, "w-1"));
  REQUIRE_OK_AND_ASSIGN(const auto before, f.Connect(*own, "s-1"));
  f.authority.MakeFolder("server", PeerRole::kServer, "s-1");
  REQUIRE_OK_AND_ASSIGN(const auto after, f.Connect(*own, "s-1"));
  CHECK(before->peer()->serial != after->peer()->serial);
}

}  // namespace
}  // namespace capstan::credentials_test
