// DataCaller and DataServer over loopback.
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/net/data/data_caller.h"
#include "common/net/data/data_server.h"
#include "common/net/data/peer_watch.h"
#include "common/net/frame/data_socket.h"
#include "common/net/frame/frame.h"
#include "common/net/frame/testing/whole_frame.h"
#include "common/net/socket/socket_stream.h"
#include "common/net/socket/wake_up.h"
#include "common/storage/files/descriptor.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"

namespace capstan::data_calls_test {
namespace {

using absl::StatusCode;

constexpr absl::Duration kPatience = absl::Seconds(20);

// Answers pushes with their bytes; holds pulls until they are told to end, or are cancelled.
class Service {
 public:
  DataServer::Cancel Start(DataMethod method, absl::Cord payload, DataServer::Done done) {
    if (method == DataMethod::kPush) {
      done(payload);
      return nullptr;
    }
    if (method == DataMethod::kReplicate) {
      done(absl::NotFoundError(absl::StrCat("no ", std::string(payload))));
      return nullptr;
    }
    absl::MutexLock lock(&mutex_);
    const int id = begun_++;
    held_.emplace_back(std::move(done));
    return [this, id] { End(id, absl::CancelledError("as it was told")); };
  }
  void End(int id, absl::StatusOr<absl::Cord> answer) {
    DataServer::Done done;
    {
      absl::MutexLock lock(&mutex_);
      done = std::exchange(held_[static_cast<size_t>(id)], nullptr);
    }
    if (done == nullptr) return;
    if (!answer.ok()) ++cancelled_;
    done(std::move(answer));
  }
  void AwaitHeld(int count) {
    absl::MutexLock lock(&mutex_);
    auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return begun_ >= count; };
    REQUIRE(mutex_.AwaitWithTimeout(absl::Condition(&enough), kPatience));
  }
  int cancelled() const { return cancelled_; }

 private:
  absl::Mutex mutex_;
  int begun_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<DataServer::Done> held_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int> cancelled_ = 0;
};

// A call's outcome, once it is there.
class Outcome {
 public:
  DataCaller::Done Done() {
    return [this](absl::StatusOr<absl::Cord> answer) {
      answer_ = std::move(answer);
      there_.Notify();
    };
  }
  const absl::StatusOr<absl::Cord>& Get() {
    REQUIRE(there_.WaitForNotificationWithTimeout(kPatience));
    return answer_;
  }

 private:
  absl::Notification there_;
  absl::StatusOr<absl::Cord> answer_;
};

class Client {
 public:
  Client(const DataServer& server, const Clock& clock)
      : caller_(Connect(server), &clock), thread_([this] { status_ = caller_.Run(); }) {}
  ~Client() { Close().IgnoreError(); }
  static std::unique_ptr<SocketStream> Connect(const DataServer& server) {
    WakeUp never;
    auto stream = ConnectForData({.host = "127.0.0.1", .port = server.port()}, server.token(),
                                 kPatience, never.descriptor());
    REQUIRE_OK(stream);
    return *std::move(stream);
  }
  std::optional<DataCaller::CallId> Start(DataMethod method, absl::Cord payload, Outcome* outcome,
                                          absl::Duration timeout = kPatience) {
    return caller_.Start({.method = method, .bytes = std::move(payload), .timeout = timeout},
                         outcome->Done());
  }
  DataCaller& caller() { return caller_; }
  absl::Status Close() {
    caller_.Close();
    if (thread_.joinable()) thread_.join();
    return status_;
  }
  absl::Status AwaitEnd() {
    thread_.join();
    return status_;
  }

 private:
  DataCaller caller_;
  absl::Status status_;
  std::thread thread_;
};

struct Fixture {
  explicit Fixture(int connections_max = 100) {
    auto started = DataServer::Start(
        {.listen = "127.0.0.1:0",
         .handler = [this](DataMethod method, absl::Cord payload,
                           DataServer::Done done) { return service.Start(method, payload, done); },
         .connections_max = connections_max});
    REQUIRE_OK(started);
    server = *std::move(started);
  }
  // A connection without a client: frames are written by hand.
  Descriptor Raw() { return Descriptor(dup(Client::Connect(*server)->socket())); }

  SteadyClock clock;
  Service service;
  std::unique_ptr<DataServer> server;
};

void Write(const Descriptor& socket, const std::string& bytes) {
  REQUIRE(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(bytes.size()));
}

std::string Bytes(const FrameHead& head) {
  const auto bytes = EncodeFrameHead(head);
  return {bytes.begin(), bytes.end()};
}

// True: the server has closed it, within the test's patience.
bool IsClosed(const Descriptor& socket) {
  timeval patience{.tv_sec = 20, .tv_usec = 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  std::string room(1 << 16, '\0');
  const int flags = fcntl(socket.get(), F_GETFL);
  fcntl(socket.get(), F_SETFL, flags & ~O_NONBLOCK);
  ssize_t got;
  while ((got = recv(socket.get(), room.data(), room.size(), 0)) > 0) {
  }
  return got == 0 || errno == ECONNRESET;
}

TEST_CASE("Data calls: answers and errors come back to their calls", "[net][data]") {
  Fixture f;
  Client client(*f.server, f.clock);
  Outcome first, second, third;
  const absl::Cord large(std::string(40 << 20, 'y'));
  client.Start(DataMethod::kPush, absl::Cord("abc"), &first);
  client.Start(DataMethod::kPush, large, &second);
  client.Start(DataMethod::kReplicate, absl::Cord("such job"), &third);
  REQUIRE_OK(first.Get());
  CHECK(*first.Get() == "abc");
  REQUIRE_OK(second.Get());
  CHECK(*second.Get() == large);
  CHECK_STATUS(third.Get(), StatusCode::kNotFound, "no such job");
  CHECK(f.server->connections() == 1);
}

TEST_CASE("Data calls: without a descriptor to wake its thread, a caller is not usable",
          "[net][data]") {
  Fixture f;
  auto first = Client::Connect(*f.server), second = Client::Connect(*f.server);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  const DataCaller without(std::move(first), &f.clock);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK_FALSE(without.usable());
  CHECK(DataCaller(std::move(second), &f.clock).usable());
}

TEST_CASE("Data calls: one that waits holds up no other", "[net][data]") {
  Fixture f;
  Client client(*f.server, f.clock);
  Outcome held, other;
  client.Start(DataMethod::kPull, absl::Cord(), &held);
  client.Start(DataMethod::kPush, absl::Cord("abc"), &other);
  REQUIRE_OK(other.Get());
  f.service.End(0, absl::Cord("late"));
  REQUIRE_OK(held.Get());
  CHECK(*held.Get() == "late");
}

TEST_CASE("Data calls: a cancelled call ends here at once, and at the server", "[net][data]") {
  Fixture f;
  Client client(*f.server, f.clock);
  Outcome held, after;
  const auto call = client.Start(DataMethod::kPull, absl::Cord(), &held);
  f.service.AwaitHeld(1);
  client.caller().Cancel(*call);
  CHECK_STATUS(held.Get(), StatusCode::kCancelled, "cancelled");
  client.caller().Cancel(*call);  // Ignored.
  client.Start(DataMethod::kPush, absl::Cord("abc"), &after);
  REQUIRE_OK(after.Get());  // The server has seen the cancel by now.
  CHECK(f.service.cancelled() == 1);
}

TEST_CASE("Data calls: a call ends with its deadline", "[net][data]") {
  Fixture f;
  Client client(*f.server, f.clock);
  Outcome held;
  client.Start(DataMethod::kPull, absl::Cord(), &held, absl::Milliseconds(20));
  CHECK_STATUS(held.Get(), StatusCode::kDeadlineExceeded, "within the call's time");
}

TEST_CASE("Data calls: the loss of the server ends calls as unavailable", "[net][data]") {
  Fixture f;
  Client client(*f.server, f.clock);
  Outcome held, late;
  client.Start(DataMethod::kPull, absl::Cord(), &held);
  f.service.AwaitHeld(1);
  f.server->Stop();
  CHECK_STATUS(held.Get(), StatusCode::kUnavailable, "data connection is lost");
  CHECK_STATUS(client.AwaitEnd(), StatusCode::kUnavailable, "");
  CHECK_FALSE(client.Start(DataMethod::kPush, absl::Cord(), &late).has_value());
  CHECK(f.service.cancelled() == 1);
}

TEST_CASE("Data calls: the loss of the client cancels its calls", "[net][data]") {
  Fixture f;
  Outcome held;
  {
    Client client(*f.server, f.clock);
    client.Start(DataMethod::kPull, absl::Cord(), &held);
    f.service.AwaitHeld(1);
  }
  CHECK_STATUS(held.Get(), StatusCode::kUnavailable, "lost");
  f.server->Stop();
  CHECK(f.service.cancelled() == 1);
}

TEST_CASE("Data server: who has another token is not served", "[net][data]") {
  Fixture f;
  WakeUp never;
  std::string token = f.server->token();
  token[3] = static_cast<char>(token[3] + 1);
  CHECK_STATUS(ConnectForData({.host = "127.0.0.1", .port = f.server->port()}, token, kPatience,
                              never.descriptor()),
               StatusCode::kUnavailable, "closed");
}

TEST_CASE("Data server: garbage ends its connection, and no other", "[net][data]") {
  Fixture f;
  Client client(*f.server, f.clock);
  std::string garbage;
  SECTION("no frame") { garbage = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"; }
  SECTION("a length above the bound") {
    garbage = Bytes({.kind = FrameKind::kRequest, .what = 1, .length = 0xfffffff0});
  }
  SECTION("an answer from a client") { garbage = Bytes({.kind = FrameKind::kAnswer, .call = 1}); }
  SECTION("a call number used twice") {
    garbage = Bytes({.kind = FrameKind::kRequest, .what = 2, .call = 1}) +
              Bytes({.kind = FrameKind::kRequest, .what = 2, .call = 1});
  }
  const Descriptor raw = f.Raw();
  Write(raw, garbage);
  CHECK(IsClosed(raw));
  Outcome outcome;
  client.Start(DataMethod::kPush, absl::Cord("abc"), &outcome);
  REQUIRE_OK(outcome.Get());
}

TEST_CASE("Data server: a damaged frame ends its connection, and is counted (issue 20)",
          "[net][data]") {
  Fixture f;
  std::string frame =
      EncodeFrame({.kind = FrameKind::kRequest, .what = 1, .call = 1}, std::string(100'000, 'x'));
  frame[70'000] ^= 16;
  const Descriptor raw = f.Raw();
  Write(raw, frame);
  CHECK(IsClosed(raw));
  f.server->Stop();
  CHECK(f.server->damaged_frames() == 1);
}

TEST_CASE("Data server: an unknown method is an error of that call", "[net][data]") {
  Fixture f;
  Client client(*f.server, f.clock);
  Outcome unknown, known;
  client.Start(static_cast<DataMethod>(9), absl::Cord("abc"), &unknown);
  client.Start(DataMethod::kPush, absl::Cord("abc"), &known);
  CHECK_STATUS(unknown.Get(), StatusCode::kUnimplemented, "method 9");
  REQUIRE_OK(known.Get());
}

TEST_CASE("Data server: a peer that vanishes in mid-payload leaves nothing", "[net][data]") {
  Fixture f;
  {
    const Descriptor raw = f.Raw();
    Write(raw, Bytes({.kind = FrameKind::kRequest, .what = 1, .length = 60 << 20}) + "abc");
  }
  f.server->Stop();  // Joins its thread.
  CHECK(f.server->connections() == 0);
}

TEST_CASE("Data server: no more is read of a peer that reads no answers", "[net][data]") {
  Fixture f;
  const Descriptor raw = f.Raw();
  // 8 MiB each: the answers that wait are bounded by 64 MiB and the one that comes on top.
  const std::string payload(8 << 20, 'x');
  int sent = 0;
  const auto send_one = [&](uint64_t call) {
    const std::string frame =
        EncodeFrame({.kind = FrameKind::kRequest, .what = 1, .call = call}, payload);
    for (size_t at = 0; at < frame.size();) {
      pollfd room{.fd = raw.get(), .events = POLLOUT, .revents = 0};
      if (poll(&room, 1, 500) <= 0) return false;
      const ssize_t n =
          send(raw.get(), frame.data() + at, frame.size() - at, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n > 0) at += static_cast<size_t>(n);
    }
    return true;
  };
  while (sent < 100 && send_one(static_cast<uint64_t>(sent))) ++sent;
  CHECK(sent >= 8);
  CHECK(sent < 40);                   // 64 MiB of answers, and what the kernel's buffers hold.
  Client client(*f.server, f.clock);  // Others don't notice.
  Outcome outcome;
  client.Start(DataMethod::kPush, absl::Cord("abc"), &outcome);
  REQUIRE_OK(outcome.Get());
}

TEST_CASE("Data server: connections beyond its number are closed", "[net][data]") {
  Fixture f(1);
  Client client(*f.server, f.clock);
  WakeUp never;
  CHECK_FALSE(ConnectForData({.host = "127.0.0.1", .port = f.server->port()}, f.server->token(),
                             kPatience, never.descriptor())
                  .ok());
  Outcome outcome;
  client.Start(DataMethod::kPush, absl::Cord("abc"), &outcome);
  REQUIRE_OK(outcome.Get());
}

// The head of the next frame without a payload, or none within the test's patience.
std::optional<FrameHead> NextHead(const Descriptor& socket, int patience_millis) {
  pollfd ready{.fd = socket.get(), .events = POLLIN, .revents = 0};
  if (poll(&ready, 1, patience_millis) <= 0) return std::nullopt;
  std::string head(kFrameHeadBytes, '\0');
  const ssize_t got = recv(socket.get(), head.data(), head.size(), MSG_WAITALL);
  REQUIRE(got == static_cast<ssize_t>(head.size()));
  REQUIRE_OK_AND_ASSIGN(const FrameHead decoded, DecodeFrameHead(head));
  return decoded;
}

// A caller whose server is the test: it reads and writes the frames, and moves the clock.
struct ByHand {
  ByHand() {
    int files[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, files) == 0);
    peer.emplace(files[1]);
    caller.emplace(PlainStream(Descriptor(files[0])), &clock);
    thread = std::thread([this] { status = caller->Run(); });
  }
  ~ByHand() {
    caller->Close();
    if (thread.joinable()) thread.join();
  }
  void StartPull(absl::Duration timeout, Outcome* outcome) {
    caller->Start({.method = DataMethod::kPull, .bytes = {}, .timeout = timeout, .patience = {}},
                  outcome->Done());
    REQUIRE(NextHead(*peer, 20000)->kind == FrameKind::kRequest);
  }

  ManualClock clock;
  std::optional<Descriptor> peer;
  std::optional<DataCaller> caller;
  absl::Status status;  // Once the thread has ended.
  std::thread thread;
};

TEST_CASE("Data calls: a damaged answer ends its call as lost, with both sums (issue 20)",
          "[net][data]") {
  Outcome held;
  ByHand f;
  f.StartPull(absl::Minutes(1), &held);
  std::string frame = EncodeFrame({.kind = FrameKind::kAnswer, .call = 1}, "the values");
  frame[25] ^= 1;
  Write(*f.peer, frame);
  CHECK_STATUS(held.Get(), StatusCode::kUnavailable,
               "the data connection is lost: a frame of kind 2, call 1, of 10 bytes with the "
               "checksum ");
}

TEST_CASE("Data calls: a silent peer is asked for a sign of life, then given up", "[net][data]") {
  Outcome held;
  ByHand f;
  f.StartPull(absl::Hours(9), &held);
  std::optional<FrameHead> asked;
  while (!asked.has_value()) {  // It looks at its clock every second.
    f.clock.Advance(PeerWatch::kPingAfter);
    asked = NextHead(*f.peer, 1500);
  }
  CHECK(asked->kind == FrameKind::kPing);
  f.clock.Advance(PeerWatch::kPongWithin);
  CHECK_STATUS(held.Get(), StatusCode::kUnavailable, "the peer has said nothing for");
  f.thread.join();
  CHECK_STATUS(f.status, StatusCode::kUnavailable, "the peer has said nothing for");
}

TEST_CASE("Data calls: answers that come slowly, one after the other, are awaited", "[net][data]") {
  std::array<Outcome, 6> outcomes;
  ByHand f;
  for (Outcome& outcome : outcomes) f.StartPull(absl::Seconds(10), &outcome);
  uint64_t call = 1;
  for (Outcome& outcome : outcomes) {  // The last one after 24 s.
    f.clock.Advance(absl::Seconds(4));
    Write(*f.peer, Bytes({.kind = FrameKind::kAnswer, .call = call++}));
    REQUIRE_OK(outcome.Get());
  }
}

TEST_CASE("Data server: more open calls than a connection may have are refused", "[net][data]") {
  Fixture f;
  const Descriptor raw = f.Raw();
  const int flags = fcntl(raw.get(), F_GETFL);
  fcntl(raw.get(), F_SETFL, flags & ~O_NONBLOCK);
  std::string requests;
  for (uint64_t call = 1; call <= DataServer::kOpenCallsMax + 1; ++call) {
    requests += Bytes({.kind = FrameKind::kRequest, .what = 2, .call = call});
  }
  Write(raw, requests);
  const std::optional<FrameHead> head = NextHead(raw, 20000);
  REQUIRE(head.has_value());
  CHECK(head->kind == FrameKind::kError);
  CHECK(head->call == DataServer::kOpenCallsMax + 1);
  std::string text(head->length + kFrameSumBytes, '\0');
  REQUIRE(recv(raw.get(), text.data(), text.size(), MSG_WAITALL) > 0);
  text.resize(head->length);
  CHECK_STATUS(ErrorOf(*head, text), StatusCode::kResourceExhausted, "more than 65536 calls");
  f.service.End(0, absl::Cord());  // There is room again.
  REQUIRE(NextHead(raw, 20000)->kind == FrameKind::kAnswer);
  Write(raw, Bytes({.kind = FrameKind::kRequest, .what = 1, .call = 1}));
  CHECK(NextHead(raw, 20000)->kind == FrameKind::kAnswer);
}

TEST_CASE("Data calls: close under load ends every call once", "[net][data]") {
  Fixture f;
  std::atomic<int> ended = 0, started = 0;
  auto client = std::make_unique<Client>(*f.server, f.clock);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      const absl::Cord payload(std::string(300'000, 'x'));
      for (;;) {
        if (!client->caller()
                 .Start({.method = DataMethod::kPush, .bytes = payload, .timeout = kPatience},
                        [&](absl::StatusOr<absl::Cord>) { ++ended; })
                 .has_value()) {
          return;
        }
        ++started;
        while (started - ended > 50) std::this_thread::yield();
      }
    });
  }
  while (ended < 500) std::this_thread::yield();
  SECTION("the client's side") { client->caller().Close(); }
  SECTION("the server's side") { f.server->Stop(); }
  for (std::thread& thread : threads) thread.join();
  client.reset();
  CHECK(ended == started);
}

}  // namespace
}  // namespace capstan::data_calls_test
