// A real server with certificates, called by a worker's certificate with every kind of wrong
// capability: each call is refused, says why, and changes nothing. The test is the scheduler, so
// that it knows the jobs' keys.
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/net/data/data_caller.h"
#include "common/net/frame/data_socket.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc/credentials.h"
#include "common/net/grpc_types/capability_metadata.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/net/socket/host_port.h"
#include "common/net/socket/wake_up.h"
#include "common/net/testing/daemon_process.h"
#include "common/net/testing/fake_scheduler.h"
#include "common/security/capability.h"
#include "common/security/testing/test_authority.h"
#include "common/shared_memory/shared_segment.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"
#include "common/wire/tensor_message.h"
#include "proto/parameter_server.grpc.pb.h"
#include "server/engine/testing/job_fixture.h"

namespace capstan::capabilities_test {
namespace {

using server::NumberIn;
using server::PushOf;
using testing::DaemonProcess;
using testing::FakeScheduler;
using testing::kProcessPatience;
using testing::TestAuthority;

constexpr absl::StatusCode kDenied = absl::StatusCode::kPermissionDenied;
constexpr char kServer[] = "server-7";

CapabilityKey KeyOf(char c) {
  return CapabilityKey::FromBytes(std::string(CapabilityKey::kBytes, c)).value();
}

Capability TaskOf(const JobId& job, int rank, uint64_t incarnation,
                  absl::Duration valid = absl::Hours(1)) {
  return {.job = job,
          .scope = Capability::Scope::kTask,
          .rank = Rank(rank),
          .incarnation = Incarnation(incarnation),
          .expiry = absl::Now() + valid};
}

// A job with the test table on the server, ASP; two workers push. Without a key if that is '\0'.
void AddJob(const JobId& id, char key, v1::SyncNodeResponse* desired) {
  v1::TableAssignment& assignment = *desired->add_tables();
  assignment.set_job_id(id);
  *assignment.add_tables() = server::TestTable();
  assignment.mutable_optimizer()->set_learning_rate(1.0f);
  assignment.mutable_optimizer()->mutable_sgd();
  assignment.mutable_consistency()->mutable_asp();
  *assignment.mutable_routing() = server::TestRouting(1, kServer, 1);
  assignment.mutable_routing()->set_job_id(id);
  assignment.mutable_routing()->mutable_servers(0)->set_incarnation(1);
  assignment.mutable_membership()->set_generation(1);
  for (int rank = 0; rank < 2; ++rank) {
    v1::Member* member = assignment.mutable_membership()->add_members();
    member->set_rank(rank);
    member->set_incarnation(1);
    member->set_active(true);
  }
  if (key != '\0') assignment.set_capability_key(KeyOf(key).bytes());
}

// The jobs: lenet-1 (key l), other-2 (key o), keyless-3.
class Cluster {
 public:
  Cluster()
      : scheduler_credentials_(Open("scheduler", PeerRole::kScheduler, "")),
        worker_(Open("worker", PeerRole::kWorker, "w-1")),
        scheduler_(absl::Seconds(1), scheduler_credentials_.get()),
        server_("server/capstan-server", scheduler_.address(),
                {absl::StrCat("--name=", kServer),
                 "--tls-dir=" + authority_.MakeFolder("server", PeerRole::kServer, kServer)}) {
    const auto registered = scheduler_.WaitForRegister(1);
    INFO(server_.log());
    REQUIRE(registered.has_value());
    // The node's name is no host's; a daemon on this machine is reached on loopback.
    const std::string& told = registered->address();
    address_ = absl::StrCat("127.0.0.1", told.substr(told.rfind(':')));
    v1::SyncNodeResponse desired;
    AddJob("lenet-1", 'l', &desired);
    AddJob("other-2", 'o', &desired);
    AddJob("keyless-3", '\0', &desired);
    scheduler_.SetDesired(desired);
    const auto held = scheduler_.WaitForSync([](const v1::SyncNodeRequest& sync) {
      int tables = 0;
      for (const v1::TableState& table : sync.tables()) tables += table.routing_generation() == 1;
      return tables == 3;
    });
    REQUIRE(held.has_value());
    stub_ = v1::ParameterServer::NewStub(
        MakeChannel(address_, ChannelKind::kData, worker_.get(), {PeerRole::kServer, kServer}));
  }

  absl::Status Push(const std::string& capability, const v1::PushRequest& request) {
    grpc::ClientContext context;
    Begin(capability, &context);
    v1::PushResponse response;
    return FromGrpcStatus(stub_->Push(&context, request, &response));
  }
  // The present value of all elements of the job's table, as a reader sees it.
  float Value(const JobId& job, char key) {
    grpc::ClientContext context;
    Begin(MintCapability(KeyOf(key), {.job = job,
                                      .scope = Capability::Scope::kRead,
                                      .rank = {},
                                      .incarnation = {},
                                      .expiry = absl::Now() + absl::Hours(1)}),
          &context);
    v1::PullRequest request = server::SnapshotOf();
    request.mutable_caller()->set_job_id(job);
    v1::PullResponse response;
    REQUIRE_OK(FromGrpcStatus(stub_->Pull(&context, request, &response)));
    return NumberIn(response);
  }
  absl::StatusOr<std::unique_ptr<SocketStream>> Connect(const std::string& asking,
                                                        const std::string& greeting) {
    grpc::ClientContext context;
    Begin(asking, &context);
    v1::OpenDataConnectionsResponse told;
    const absl::Status status = FromGrpcStatus(stub_->OpenDataConnections(&context, {}, &told));
    if (!status.ok()) return status;
    HostPort place = ParseHostPort(address_).value();
    place.port = told.port();
    WakeUp never;
    return ConnectForData(
        place, told.token(), kProcessPatience, never.descriptor(),
        [&](Descriptor socket) {
          return worker_->ToServer(std::move(socket), {PeerRole::kServer, kServer});
        },
        greeting);
  }
  static void Begin(const std::string& capability, grpc::ClientContext* context) {
    SetDeadline(*context, kProcessPatience);
    AddCapability(capability, context);
  }
  v1::ParameterServer::Stub& stub() { return *stub_; }

 private:
  std::unique_ptr<Credentials> Open(const std::string& name, PeerRole role,
                                    const std::string& peer) {
    auto credentials = Credentials::Read(authority_.MakeFolder(name, role, peer));
    REQUIRE_OK(credentials);
    return *std::move(credentials);
  }

  const TestAuthority authority_;
  const std::unique_ptr<Credentials> scheduler_credentials_;
  const std::unique_ptr<Credentials> worker_;
  FakeScheduler scheduler_;
  DaemonProcess server_;
  std::string address_;
  std::unique_ptr<v1::ParameterServer::Stub> stub_;
};

// Calls over one data connection.
class DataClient {
 public:
  explicit DataClient(std::unique_ptr<SocketStream> stream)
      : caller_(std::move(stream), &clock_), thread_([this] { caller_.Run().IgnoreError(); }) {}
  ~DataClient() {
    caller_.Close();
    thread_.join();
  }
  absl::Status Push(const v1::PushRequest& request) {
    absl::Notification ended;
    absl::Status status;
    const auto call = caller_.Start({.method = DataMethod::kPush,
                                     .bytes = Encode(Detach(request)),
                                     .timeout = kProcessPatience},
                                    [&](const absl::StatusOr<absl::Cord>& answer) {
                                      status = answer.status();
                                      ended.Notify();
                                    });
    if (!call.has_value()) return absl::UnavailableError("the connection has ended");
    ended.WaitForNotification();
    return status;
  }

 private:
  SteadyClock clock_;
  DataCaller caller_;
  std::thread thread_;
};

v1::PushRequest PushAs(const JobId& job, int rank, uint64_t incarnation, uint64_t sequence = 1) {
  v1::PushRequest request = PushOf(rank, 0, -1, 1.0f, sequence);
  request.mutable_caller()->set_job_id(job);
  request.mutable_caller()->set_incarnation(incarnation);
  return request;
}

struct Wrong {
  std::string capability;
  std::string error;
};

// All that does not let its holder push as task 0, incarnation 1, of lenet-1.
std::vector<Wrong> AllWrong() {
  const CapabilityKey key = KeyOf('l');
  const std::string own = MintCapability(key, TaskOf("lenet-1", 0, 1));
  std::string forged = own;
  forged.back() = static_cast<char>(forged.back() ^ 1);
  return {
      {"", "no capability"},
      {"garbage", "a capability of the format"},
      {forged, "is forged"},
      {MintCapability(KeyOf('o'), TaskOf("lenet-1", 0, 1)), "is forged"},
      {MintCapability(KeyOf('o'), TaskOf("other-2", 0, 1)),
       "is for the job \"other-2\", expected \"lenet-1\""},
      {MintCapability(key, TaskOf("lenet-1", 1, 1)),
       "is for the task 1, incarnation 1, expected the task 0, incarnation 1"},
      {MintCapability(key, TaskOf("lenet-1", 0, 7)),
       "is for the task 0, incarnation 7, expected the task 0, incarnation 1"},
      {MintCapability(key, TaskOf("lenet-1", 0, 1, -absl::Hours(1))), "expired at "},
      {MintCapability(key, {.job = "lenet-1",
                            .scope = Capability::Scope::kRead,
                            .rank = {},
                            .incarnation = {},
                            .expiry = absl::Now() + absl::Hours(1)}),
       "is for reading, expected the task 0"},
  };
}

TEST_CASE("Capabilities: every wrong one is refused over gRPC, and the right one is not",
          "[security]") {
  Cluster cluster;
  const v1::PushRequest push = PushAs("lenet-1", 0, 1);
  for (const Wrong& wrong : AllWrong()) {
    INFO(wrong.error);
    CHECK_STATUS(cluster.Push(wrong.capability, push), kDenied, wrong.error);
  }
  const std::string own = MintCapability(KeyOf('l'), TaskOf("lenet-1", 0, 1));
  CHECK_STATUS(cluster.Push(own, PushAs("other-2", 0, 1)), kDenied,
               "is for the job \"lenet-1\", expected \"other-2\"");
  CHECK_STATUS(cluster.Push(MintCapability(KeyOf('\0'), TaskOf("keyless-3", 0, 1)),
                            PushAs("keyless-3", 0, 1)),
               kDenied, "this server has no capability key of the job \"keyless-3\"");
  CHECK(cluster.Value("lenet-1", 'l') == 0.0f);
  CHECK(cluster.Value("other-2", 'o') == 0.0f);
  REQUIRE_OK(cluster.Push(own, push));
  CHECK(cluster.Value("lenet-1", 'l') == -1.0f);
}

TEST_CASE("Capabilities: reads over gRPC need one, too", "[security]") {
  Cluster cluster;
  const std::string other = MintCapability(KeyOf('o'), TaskOf("other-2", 0, 1));
  const std::string expected = "is for the job \"other-2\", expected \"lenet-1\"";
  {
    grpc::ClientContext context;
    Cluster::Begin(other, &context);
    v1::PullResponse response;
    CHECK_STATUS(FromGrpcStatus(cluster.stub().Pull(&context, server::SnapshotOf(), &response)),
                 kDenied, expected);
  }
  {
    grpc::ClientContext context;
    Cluster::Begin(other, &context);
    v1::ScanRowsResponse response;
    CHECK_STATUS(FromGrpcStatus(cluster.stub().ScanRows(&context, server::ScanOf(0), &response)),
                 kDenied, expected);
  }
}

TEST_CASE("Capabilities: a task reads and closes snapshots of its own job alone", "[security]") {
  Cluster cluster;
  const auto read = [&](const std::string& capability) {
    grpc::ClientContext context;
    Cluster::Begin(capability, &context);
    v1::ReadSnapshotRequest request;
    request.set_job_id("lenet-1");
    v1::ReadSnapshotResponse response;
    return FromGrpcStatus(cluster.stub().ReadSnapshot(&context, request, &response));
  };
  const auto close = [&](const std::string& capability) {
    grpc::ClientContext context;
    Cluster::Begin(capability, &context);
    v1::CloseSnapshotRequest request;
    request.set_job_id("lenet-1");
    v1::CloseSnapshotResponse response;
    return FromGrpcStatus(cluster.stub().CloseSnapshot(&context, request, &response));
  };
  for (const size_t refused : {0, 1, 2, 3, 4, 7}) {  // As above, and another job's.
    const Wrong wrong = AllWrong()[refused];
    INFO(wrong.error);
    CHECK_STATUS(read(wrong.capability), kDenied, wrong.error);
    CHECK_STATUS(close(wrong.capability), kDenied, wrong.error);
  }
  const std::string own = MintCapability(KeyOf('l'), TaskOf("lenet-1", 0, 1));
  CHECK(absl::IsNotFound(read(own)));  // There is no snapshot.
  REQUIRE_OK(close(own));
}

TEST_CASE("Capabilities: a data connection is what it was opened for", "[security]") {
  Cluster cluster;
  const std::string own = MintCapability(KeyOf('l'), TaskOf("lenet-1", 0, 1));
  for (const Wrong& wrong : AllWrong()) {
    INFO(wrong.error);
    // Capabilities of other jobs and tasks open a connection, for what they allow.
    absl::StatusOr<std::unique_ptr<SocketStream>> stream = cluster.Connect(own, wrong.capability);
    if (!stream.ok()) continue;
    DataClient client(*std::move(stream));
    CHECK_STATUS(client.Push(PushAs("lenet-1", 0, 1)), kDenied, "capability");
  }
  for (const size_t refused : {0, 1, 2, 3, 7}) {  // None, garbage, forged twice, expired.
    const Wrong wrong = AllWrong()[refused];
    INFO(wrong.error);
    CHECK_STATUS(cluster.Connect(wrong.capability, own).status(), kDenied, wrong.error);
    if (refused > 0) {
      CHECK_STATUS(cluster.Connect(own, wrong.capability).status(), absl::StatusCode::kUnavailable,
                   "");
    }
  }
  CHECK(cluster.Value("lenet-1", 'l') == 0.0f);

  auto stream = cluster.Connect(own, own);
  REQUIRE_OK(stream);
  DataClient client(*std::move(stream));
  CHECK_STATUS(client.Push(PushAs("lenet-1", 1, 1)), kDenied, "expected the task 1");
  CHECK_STATUS(client.Push(PushAs("lenet-1", 0, 2)), kDenied, "incarnation 2");
  CHECK_STATUS(client.Push(PushAs("other-2", 0, 1)), kDenied, "expected one for \"other-2\"");
  REQUIRE_OK(client.Push(PushAs("lenet-1", 0, 1)));
  CHECK(cluster.Value("lenet-1", 'l') == -1.0f);
  CHECK(cluster.Value("other-2", 'o') == 0.0f);
}

TEST_CASE("Capabilities: a data connection ends when its capability has expired", "[security]") {
  Cluster cluster;
  const std::string brief = MintCapability(KeyOf('l'), TaskOf("lenet-1", 0, 1, absl::Seconds(3)));
  auto stream = cluster.Connect(brief, brief);
  REQUIRE_OK(stream);
  DataClient client(*std::move(stream));
  REQUIRE_OK(client.Push(PushAs("lenet-1", 0, 1)));
  absl::Status status;  // A repetition changes nothing.
  const absl::Time give_up = absl::Now() + kProcessPatience;
  while (status.ok() && absl::Now() < give_up) status = client.Push(PushAs("lenet-1", 0, 1));
  CHECK_STATUS(status, absl::StatusCode::kUnavailable, "");
  CHECK_STATUS(cluster.Push(brief, PushAs("lenet-1", 0, 1, 2)), kDenied, "expired at ");
  CHECK(cluster.Value("lenet-1", 'l') == -1.0f);
}

TEST_CASE("Capabilities: shared memory is the task's that has opened it", "[security]") {
  Cluster cluster;
  const std::string own = MintCapability(KeyOf('l'), TaskOf("lenet-1", 0, 1));
  const auto share = [&](const std::string& capability, grpc::ClientContext* context,
                         const SharedSegment& memory, v1::ShareMemoryResponse* opened) {
    Cluster::Begin(capability, context);
    v1::ShareMemoryRequest request;
    request.set_process(memory.offer().process);
    request.set_file_descriptor(memory.offer().descriptor);
    request.set_bytes(memory.offer().bytes);
    request.set_challenge(memory.offer().challenge);
    auto stream = cluster.stub().ShareMemory(context, request);
    if (!stream->Read(opened))
      return std::make_pair(FromGrpcStatus(stream->Finish()), std::move(stream));
    return std::make_pair(absl::OkStatus(), std::move(stream));
  };
  REQUIRE_OK_AND_ASSIGN(const auto memory, SharedSegment::Create(1 << 16));
  REQUIRE_OK(memory->Allocate());
  v1::ShareMemoryResponse opened;
  for (const size_t refused : {0, 1, 2, 3, 7, 8}) {  // As above, and a reader's.
    grpc::ClientContext context;
    CHECK(absl::IsPermissionDenied(
        share(AllWrong()[refused].capability, &context, *memory, &opened).first));
  }
  grpc::ClientContext context;
  const auto stream = share(own, &context, *memory, &opened);
  REQUIRE_OK(stream.first);
  v1::PushRequest push = PushAs("lenet-1", 1, 1);
  push.set_segment(opened.segment());
  CHECK_STATUS(cluster.Push(MintCapability(KeyOf('l'), TaskOf("lenet-1", 1, 1)), push), kDenied,
               "the segment is of the job \"lenet-1\", rank 0, incarnation 1");
  CHECK(cluster.Value("lenet-1", 'l') == 0.0f);
  context.TryCancel();
}

}  // namespace
}  // namespace capstan::capabilities_test
