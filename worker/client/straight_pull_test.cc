// Tests of pulls whose values are received in the operation's arrays, from a server that stops in
// the middle of an answer.
#include <poll.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/net/frame/data_socket.h"
#include "common/net/frame/frame.h"
#include "common/net/frame/testing/whole_frame.h"
#include "common/net/grpc/grpc_server.h"
#include "common/net/socket/socket_stream.h"
#include "common/net/socket/wake_up.h"
#include "common/net/testing/greet_client.h"
#include "common/storage/files/descriptor.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"
#include "common/wire/number_format.h"
#include "common/wire/tensor_message.h"
#include "proto/parameter_server.grpc.pb.h"
#include "worker/client/push_pull_client.h"

namespace capstan::worker::straight_pull_test {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);
constexpr int kElements = 10'000;  // Elements of each of the two shards.
constexpr int kVersion = 3;

v1::PullResponse Answer(float value, v1::ValueType type = v1::FLOAT32) {
  v1::PullResponse response;
  for (int i = 0; i < 2; ++i) {
    v1::ShardValues* shard = response.add_shards();
    shard->set_outcome(v1::ShardValues::VALUES);
    shard->set_value_type(type);
    shard->set_version(kVersion);
    const std::vector<float> values(kElements, value + static_cast<float>(i));
    shard->set_values(std::string(EncodedNumbers(*FormatOf(type), values)));
  }
  return response;
}

std::vector<float> Values(float value) {
  std::vector<float> values(kElements, value);
  values.resize(2 * kElements, value + 1);
  return values;
}

bool ReadAll(int socket, char* to, size_t count) {
  while (count > 0) {
    pollfd file{.fd = socket, .events = POLLIN, .revents = 0};
    if (poll(&file, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience))) <= 0) return false;
    const ssize_t got = recv(socket, to, count, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN)) return false;
    if (got < 0) continue;
    to += got;
    count -= static_cast<size_t>(got);
  }
  return true;
}

// Answers pulls with ones over gRPC. The test itself serves data connections: it reads their frames
// and writes arbitrary bytes.
class RawServer final : public v1::ParameterServer::Service {
 public:
  RawServer() {
    REQUIRE_OK(listening_);
    auto started = GrpcServer::Start({.services = {this}});
    REQUIRE_OK(started);
    server_ = *std::move(started);
  }
  ~RawServer() override { server_.reset(); }

  grpc::Status Pull(grpc::ServerContext*, const v1::PullRequest* request,
                    v1::PullResponse* response) override {
    absl::MutexLock lock(&mutex_);
    by_grpc_.push_back(*request);
    *response = Answer(1, request->shards(0).value_type());
    return grpc::Status::OK;
  }
  grpc::Status OpenDataConnections(grpc::ServerContext*, const v1::OpenDataConnectionsRequest*,
                                   v1::OpenDataConnectionsResponse* response) override {
    response->set_port(listening_->port);
    response->set_token(std::string(kTokenBytes, 't'));
    return grpc::Status::OK;
  }

  // Accepts both connections and returns the first one, which pulls use.
  Descriptor AcceptPulls() {
    Descriptor pulls = Accept();
    pushes_.emplace(Accept());
    return pulls;
  }
  v1::RoutingTable Routing(int generation) const {
    v1::RoutingTable routing;
    routing.set_generation(static_cast<uint64_t>(generation));
    routing.add_servers()->set_address(server_->address());
    for (int i = 0; i < 2; ++i) {
      v1::ShardRoute* shard = routing.add_shards();
      shard->set_shard(i);
      shard->set_element_begin(i * kElements);
      shard->set_element_end((i + 1) * kElements);
    }
    return routing;
  }
  std::vector<v1::PullRequest> by_grpc() {
    absl::MutexLock lock(&mutex_);
    return by_grpc_;
  }

 private:
  Descriptor Accept() const {
    pollfd file{.fd = listening_->socket.get(), .events = POLLIN, .revents = 0};
    REQUIRE(poll(&file, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience))) == 1);
    const std::unique_ptr<SocketStream> stream = PlainStream(AcceptData(listening_->socket.get()));
    WakeUp never;
    REQUIRE_OK(testing::GreetClient(*stream, std::string(kTokenBytes, 't'), kPatience,
                                    never.descriptor()));
    return Descriptor(dup(stream->socket()));
  }

  const absl::StatusOr<ListeningSocket> listening_ = ListenForData("127.0.0.1:0");
  std::optional<Descriptor> pushes_;
  std::unique_ptr<GrpcServer> server_;
  absl::Mutex mutex_;
  std::vector<v1::PullRequest> by_grpc_;
};

// A pull that waits for its answer on a data connection.
struct Fixture {
  explicit Fixture(v1::ValueType type = v1::FLOAT32) : format(*FormatOf(type)) {
    REQUIRE_OK(client.SetRouting(server.Routing(1)));
    // The first pull makes the data connections open.
    REQUIRE_OK_AND_ASSIGN(const OpId first, Pull());
    REQUIRE_OK(client.Wait(first));
    pulls.emplace(server.AcceptPulls());
    while (!waiting.has_value()) {  // Until a pull goes over it.
      const int64_t before = client.counts().data_messages;
      REQUIRE_OK_AND_ASSIGN(const OpId op, Pull());
      if (client.counts().data_messages > before) {
        waiting = op;
      } else {
        REQUIRE_OK(client.Wait(op));
      }
    }
    std::vector<char> head(kFrameHeadBytes);
    REQUIRE(ReadAll(pulls->get(), head.data(), head.size()));
    REQUIRE_OK_AND_ASSIGN(const FrameHead request, DecodeFrameHead({head.data(), head.size()}));
    std::vector<char> payload(request.length + kFrameSumBytes);
    REQUIRE(ReadAll(pulls->get(), payload.data(), payload.size()));
    call = request.call;
    answer = FrameOf(Answer(5, type));
  }
  absl::StatusOr<OpId> Pull() {
    return client.Pull(Iteration(1), PullMode::kTrain, {&arrays, &halves});
  }
  std::string FrameOf(const v1::PullResponse& response) const {
    return EncodeFrame({.kind = FrameKind::kAnswer, .call = call},
                       std::string(Encode(Detach(response))));
  }
  void Write(absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(pulls->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EAGAIN) continue;
      REQUIRE(sent > 0);
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  // Writes half of the answer, and waits until it is being received in its place.
  void WriteHalf() {
    Write(absl::string_view(answer).substr(0, answer.size() / 2));
    const Instant give_up = clock.Now() + kPatience;
    while (client.counts().straight_messages == 0) REQUIRE(clock.Now() < give_up);
  }

  const NumberFormat format;
  SteadyClock clock;
  RawServer server;
  TableArrays arrays = {std::vector<float>(2 * kElements)};
  HalfArrays halves = {std::vector<uint16_t>(2 * kElements)};  // Unused if all is fp32.
  PushPullClient client{{.job = "job-1",
                         .rank = Rank(0),
                         .incarnation = Incarnation(1),
                         .formats = {{.parameters = format}},
                         .shared_memory_bytes = 0},
                        clock};
  std::optional<Descriptor> pulls;
  std::optional<OpId> waiting;
  uint64_t call = 0;
  std::string answer;
};

TEST_CASE("Straight pull: values are received where they belong, wherever the answer is torn",
          "[worker][client]") {
  Fixture f;
  for (size_t at = 0; at < f.answer.size(); at += 7777) {
    f.Write(absl::string_view(f.answer).substr(at, 7777));
  }
  REQUIRE_OK(f.client.Wait(*f.waiting));
  CHECK(f.arrays[0] == Values(5));
  CHECK(f.client.counts().straight_messages == 1);
}

TEST_CASE("Straight pull: halves are received where they belong, and not widened",
          "[worker][client]") {
  Fixture f(v1::BFLOAT16);
  for (size_t at = 0; at < f.answer.size(); at += 7777) {
    f.Write(absl::string_view(f.answer).substr(at, 7777));
  }
  REQUIRE_OK(f.client.Wait(*f.waiting));
  std::vector<float> widened(2 * kElements);
  DecodeNumbers(f.format, reinterpret_cast<const char*>(f.halves[0].data()),
                absl::MakeSpan(widened));
  CHECK(widened == Values(5));
  CHECK(f.arrays[0] == std::vector<float>(2 * kElements));
  CHECK(f.client.counts().straight_messages == 1);
}

TEST_CASE("Straight pull: an answer with too few values is refused by name", "[worker][client]") {
  Fixture f;
  v1::PullResponse wrong = Answer(5);
  wrong.mutable_shards(1)->mutable_values()->resize(40);
  f.Write(f.FrameOf(wrong));
  CHECK_STATUS(f.client.Wait(*f.waiting), absl::StatusCode::kInternal,
               "shard 1 came with 40 bytes, expected 40000");
}

TEST_CASE("Straight pull: nothing is written any more once the pull is cancelled",
          "[worker][client]") {
  Fixture f;
  f.WriteHalf();
  f.client.CancelPull(*f.waiting);
  f.arrays[0] = Values(0);
  f.Write(absl::string_view(f.answer).substr(f.answer.size() / 2));
  // The next answer comes behind the cancelled one.
  TableArrays others = f.arrays;
  REQUIRE_OK_AND_ASSIGN(f.waiting, f.client.Pull(Iteration(1), PullMode::kTrain, &others));
  ++f.call;
  f.Write(f.FrameOf(Answer(9)));
  REQUIRE_OK(f.client.Wait(*f.waiting));
  CHECK(others[0] == Values(9));
  CHECK(f.arrays[0] == Values(0));
}

TEST_CASE("Straight pull: a new routing table does not wait for a server that stands still",
          "[worker][client]") {
  Fixture f;
  f.WriteHalf();
  REQUIRE_OK(f.client.SetRouting(f.server.Routing(2)));
  f.pulls.reset();  // Makes the repeated pull go over gRPC.
  REQUIRE_OK(f.client.Wait(*f.waiting));
  CHECK(f.arrays[0] == Values(1));
}

TEST_CASE("Straight pull: what was overwritten by half counts as not held", "[worker][client]") {
  Fixture f;
  const size_t before = f.server.by_grpc().size();
  f.WriteHalf();
  f.pulls.reset();
  REQUIRE_OK(f.client.Wait(*f.waiting));
  CHECK(f.arrays[0] == Values(1));
  const std::vector<v1::PullRequest> requests = f.server.by_grpc();
  REQUIRE(requests.size() == before + 1);
  for (const v1::ShardPull& shard : requests.back().shards()) CHECK(shard.held_version() == -1);
  // The broken pull before it held the version that the first pull had brought.
  CHECK(f.client.counts().straight_messages == 1);
}

TEST_CASE("Straight pull: the client closes though an answer never ends", "[worker][client]") {
  Fixture f;
  f.WriteHalf();
}

}  // namespace
}  // namespace capstan::worker::straight_pull_test
