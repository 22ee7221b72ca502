// Tests of the audit log's lines of real gRPC and data servers.
#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/net/data/data_caller.h"
#include "common/net/data/data_server.h"
#include "common/net/frame/data_socket.h"
#include "common/net/gate/audit_interceptor.h"
#include "common/net/gate/call_gate.h"
#include "common/net/gate/handshake_audit.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc/grpc_server.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/net/socket/wake_up.h"
#include "common/security/testing/test_authority.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"
#include "common/time/clock.h"
#include "proto/worker.grpc.pb.h"

namespace capstan::audit_test {
namespace {

using absl::StatusCode;
using Catch::Contains;
using Catch::EndsWith;
using testing::TestAuthority;
using testing::TestPath;

constexpr absl::Duration kPatience = absl::Seconds(20);

// Answers ann alone, and counts the calls that reach it.
class Service final : public v1::Worker::CallbackService {
 public:
  grpc::ServerUnaryReactor* ReadTaskLog(grpc::CallbackServerContext* context,
                                        const v1::ReadTaskLogRequest*,
                                        v1::ReadTaskLogResponse*) override {
    ++calls;
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(CheckCallerIs(*context, {PeerRole::kUser}, "ann")));
    return reactor;
  }
  std::atomic<int> calls = 0;
};

std::unique_ptr<Credentials> Open(const std::string& folder, AuditLog* audit = nullptr) {
  auto credentials = Credentials::Read(folder, audit);
  REQUIRE_OK(credentials);
  return *std::move(credentials);
}

// An audit log in a new file.
struct Log {
  Log() {
    std::filesystem::remove(path);
    REQUIRE_OK(audit.Open(path));
  }
  std::vector<std::string> Lines() const {
    return absl::StrSplit(testing::ReadFile(path), '\n', absl::SkipEmpty());
  }

  const std::string path = TestPath("audit.jsonl");
  AuditLog audit{{.daemon = "w-1"}};
};

struct Fixture : Log {
  explicit Fixture(bool tls = true)
      : credentials(tls ? Open(authority.MakeFolder("worker", PeerRole::kWorker, "w-1"), &audit)
                        : nullptr) {
    auto started = GrpcServer::Start(
        {.services = {&service}, .credentials = credentials.get(), .audit = &audit});
    REQUIRE_OK(started);
    server = *std::move(started);
  }
  absl::Status Ask(const Credentials* own) {
    const auto stub = v1::Worker::NewStub(
        MakeChannel(server->address(), ChannelKind::kControl, own, {PeerRole::kWorker, "w-1"}));
    grpc::ClientContext context;
    SetDeadline(context, kPatience);
    v1::ReadTaskLogRequest request;
    request.set_job_id("lenet-1");
    v1::ReadTaskLogResponse response;
    return FromGrpcStatus(stub->ReadTaskLog(&context, request, &response));
  }
  absl::Status AskAs(PeerRole role, const std::string& name) {
    return Ask(Open(authority.MakeFolder("caller", role, name)).get());
  }

  const TestAuthority authority;
  const std::unique_ptr<Credentials> credentials;
  Service service;
  std::unique_ptr<GrpcServer> server;
};

TEST_CASE("Audit: an allowed call has its caller, where it came from, and its job", "[net]") {
  Fixture f;
  REQUIRE_OK(f.AskAs(PeerRole::kUser, "ann"));
  REQUIRE(f.Lines().size() == 1);
  CHECK_THAT(f.Lines()[0], Contains(R"("daemon":"w-1","peer":"127.0.0.1:)"));
  CHECK_THAT(f.Lines()[0], EndsWith(R"("identity":"capstan://test/user/ann",)"
                                    R"("method":"/capstan.v1.Worker/ReadTaskLog",)"
                                    R"("job":"lenet-1","allowed":true})"));
}

TEST_CASE("Audit: a call that its handler refuses is refused, whatever the handler does", "[net]") {
  Fixture f;
  CHECK_STATUS(f.AskAs(PeerRole::kUser, "bob"), StatusCode::kPermissionDenied, "\"ann\"");
  REQUIRE(f.Lines().size() == 1);
  CHECK_THAT(f.Lines()[0], Contains(R"("peer":"127.0.0.1:)"));
  CHECK_THAT(f.Lines()[0], Contains(R"("job":"lenet-1","allowed":false,"refused_by":"handler",)"
                                    R"("reason":"the call is made in the name of)"));
}

TEST_CASE("Audit: a call that the gate refuses has its caller and reaches no handler", "[net]") {
  Fixture f;
  CHECK_STATUS(f.AskAs(PeerRole::kServer, "s-1"), StatusCode::kPermissionDenied, "roles user");
  CHECK(f.service.calls == 0);
  REQUIRE(f.Lines().size() == 1);
  CHECK_THAT(f.Lines()[0], Contains(R"("identity":"capstan://test/server/s-1",)"
                                    R"("method":"/capstan.v1.Worker/ReadTaskLog","allowed":false,)"
                                    R"("refused_by":"gate","reason":)"));
}

TEST_CASE("Audit: plain text has no identities, and the rest", "[net]") {
  Fixture f(/*tls=*/false);
  REQUIRE_OK(f.Ask(nullptr));
  REQUIRE(f.Lines().size() == 1);
  CHECK_THAT(f.Lines()[0], Contains(R"("peer":"127.0.0.1:)"));
  CHECK_THAT(f.Lines()[0], EndsWith(R"("method":"/capstan.v1.Worker/ReadTaskLog",)"
                                    R"("job":"lenet-1","allowed":true})"));
}

TEST_CASE("Audit: failed handshakes of gRPC are recorded with OpenSSL's reason", "[net]") {
  Fixture f;
  const HandshakeAudit handshakes(&f.audit);
  const TestAuthority other;
  const auto own = Open(other.MakeFolder("stranger", PeerRole::kUser, "ann"));
  // gRPC reports the failure to its log and to the caller in no order.
  const absl::Time give_up = absl::Now() + kPatience;
  while (f.Lines().empty() && absl::Now() < give_up) {
    CHECK_STATUS(f.Ask(own.get()), StatusCode::kUnavailable, "");
  }
  CHECK(f.service.calls == 0);
  REQUIRE_FALSE(f.Lines().empty());
  // The caller ends the connection, because it does not trust the server's authority.
  CHECK_THAT(f.Lines()[0], Contains(R"("peer":"127.0.0.1:)"));
  CHECK_THAT(f.Lines()[0], Contains(R"("allowed":false,"refused_by":"handshake","reason":"TLS: )"));
}

TEST_CASE("Audit: gRPC's names of peers become host:port", "[net]") {
  CHECK(HostPortOfPeer("ipv4:10.0.0.7:51234") == "10.0.0.7:51234");
  CHECK(HostPortOfPeer("ipv6:%5B2001:db8::1%5D:51234") == "[2001:db8::1]:51234");
  CHECK(HostPortOfPeer("ipv6:[::1]:1") == "[::1]:1");
  CHECK(HostPortOfPeer("unix:/x").empty() == false);
}

// ---------------------------------------------------------------- data connections

struct DataFixture : Log {
  DataFixture() : credentials(Open(authority.MakeFolder("s", PeerRole::kServer, "s-1"), &audit)) {
    DataServer::Options options;
    options.listen = "127.0.0.1:0";
    options.handler = [](DataMethod, const absl::Cord&, const DataServer::Done& done) {
      done(absl::PermissionDeniedError("not its job"));
      return DataServer::Cancel();
    };
    options.credentials = credentials.get();
    options.audit = &audit;
    auto started = DataServer::Start(std::move(options));
    REQUIRE_OK(started);
    server = *std::move(started);
  }
  absl::StatusOr<std::unique_ptr<SocketStream>> Connect(const Credentials& own,
                                                        const std::string& token) const {
    WakeUp never;
    return ConnectForData({.host = "127.0.0.1", .port = server->port()}, token, kPatience,
                          never.descriptor(), [&](Descriptor socket) {
                            return own.ToServer(std::move(socket), {PeerRole::kServer, "s-1"});
                          });
  }
  // The caller may hear of it before the server's thread has written the line.
  std::string AwaitLine() {
    const absl::Time give_up = absl::Now() + kPatience;
    while (Lines().empty() && absl::Now() < give_up) std::this_thread::yield();
    const std::vector<std::string> lines = Lines();
    REQUIRE(lines.size() == 1);
    return lines[0];
  }

  const TestAuthority authority;
  const std::unique_ptr<Credentials> credentials;
  std::unique_ptr<DataServer> server;
};

absl::Status Call(std::unique_ptr<SocketStream> stream, DataMethod method) {
  const SteadyClock clock;
  DataCaller caller(std::move(stream), &clock);
  std::thread thread([&] { caller.Run().IgnoreError(); });
  absl::Notification there;
  absl::Status status;
  caller.Start({.method = method, .bytes = absl::Cord("x"), .timeout = kPatience, .patience = {}},
               [&](const absl::StatusOr<absl::Cord>& got) {
                 status = got.status();
                 there.Notify();
               });
  there.WaitForNotification();
  caller.Close();
  thread.join();
  return status;
}

TEST_CASE("Audit: what is refused of a data connection has its caller and address", "[net]") {
  DataFixture f;
  const auto own = Open(f.authority.MakeFolder("worker", PeerRole::kWorker, "w-1"));
  std::string expected = R"("identity":"capstan://test/worker/w-1",)";
  SECTION("a call, by the gate") {
    REQUIRE_OK_AND_ASSIGN(auto stream, f.Connect(*own, f.server->token()));
    CHECK_STATUS(Call(std::move(stream), DataMethod::kReplicate), StatusCode::kPermissionDenied,
                 "roles server");
    expected += R"("method":"/capstan.v1.ParameterServer/Replicate","allowed":false,)"
                R"("refused_by":"gate",)";
  }
  SECTION("a call, by its handler") {
    REQUIRE_OK_AND_ASSIGN(auto stream, f.Connect(*own, f.server->token()));
    CHECK_STATUS(Call(std::move(stream), DataMethod::kPush), StatusCode::kPermissionDenied, "job");
    expected += R"("method":"/capstan.v1.ParameterServer/Push","allowed":false,)"
                R"("refused_by":"handler","reason":"not its job"})";
  }
  SECTION("a connection with a wrong token") {
    CHECK_FALSE(f.Connect(*own, std::string(f.server->token().size(), 'x')).ok());
    expected += R"("allowed":false,"refused_by":"greeting","reason":"a data connection: it has )";
  }
  SECTION("a connection with a certificate of another authority") {
    const TestAuthority other;
    const std::string folder = other.MakeFolder("stranger", PeerRole::kWorker, "w-1");
    std::ofstream(folder + "/ca.pem", std::ios::app) << f.authority.authority().certificate_pem();
    CHECK_FALSE(f.Connect(*Open(folder), f.server->token()).ok());
    expected = R"("allowed":false,"refused_by":"handshake","reason":"a data connection: )";
  }
  const std::string line = f.AwaitLine();
  CHECK_THAT(line, Contains(R"("peer":"127.0.0.1:)"));
  CHECK_THAT(line, Contains(expected));
}

}  // namespace
}  // namespace capstan::audit_test
