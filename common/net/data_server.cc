#include "common/net/data_server.h"

#include <poll.h>

#include <cerrno>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/net/channel.h"
#include "common/net/data_connection.h"
#include "common/observability/log.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

// Writing an answer of at least these bytes costs more than waking another thread.
constexpr size_t kLeftFrom = 64 << 10;
constexpr int kNoDescriptorsMillis = 100;  // The pause before the next attempt to accept.

// The path of a method in common/security/call_policy.h. Empty: there is no such method.
absl::string_view PathOf(uint8_t what) {
  switch (static_cast<DataMethod>(what)) {
    case DataMethod::kPush:
      return "/capstan.v1.ParameterServer/Push";
    case DataMethod::kPull:
      return "/capstan.v1.ParameterServer/Pull";
    case DataMethod::kReplicate:
      return "/capstan.v1.ParameterServer/Replicate";
  }
  return "";
}

// Returns whether the error is worth a log line: the peer is no client of ours or has a bug, or the
// network damages bytes.
bool IsGarbage(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsPermissionDenied(status) ||
         absl::IsDataLoss(status);
}

}  // namespace

// One connection and its open calls.
class DataServer::Peer final : public DataConnection::Handler,
                               public std::enable_shared_from_this<Peer> {
 public:
  Peer(std::unique_ptr<SocketStream> stream, const Options* options, const Clock* clock)
      : options_(*options), connection_(std::move(stream), kMessageBytesMax, clock) {}

  SocketStream& stream() { return connection_.stream(); }
  // REQUIRES: before Run, if at all.
  absl::Status Admit(const std::string& capability) {
    CAPSTAN_ASSIGN_OR_RETURN(admitted_, options_.admit(capability));
    return absl::OkStatus();
  }
  void Close() { connection_.Close(); }
  // Returns when the connection and all its calls have ended.
  absl::Status Run() {
    own_thread_ = std::this_thread::get_id();
    const absl::Status status = connection_.Run(this);
    absl::flat_hash_map<uint64_t, Cancel> open;
    {
      absl::MutexLock lock(&mutex_);
      open = open_;
    }
    for (const auto& [call, cancel] : open) {
      if (cancel != nullptr) cancel();
    }
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](absl::flat_hash_map<uint64_t, Cancel>* calls) { return calls->empty(); }, &open_));
    return status;
  }

  absl::Status OnFrame(const FrameHead& head, absl::Cord payload) override {
    switch (head.kind) {
      case FrameKind::kRequest:
        return StartCall(head, std::move(payload));
      case FrameKind::kCancel:
        CancelCall(head.call);
        return absl::OkStatus();
      case FrameKind::kPing:
        connection_.Send({.kind = FrameKind::kPong}, absl::Cord());
        return absl::OkStatus();
      default:
        return absl::InvalidArgumentError(
            absl::StrCat("a client sent a frame of kind ", static_cast<int>(head.kind)));
    }
  }
  absl::Status OnTick(Instant, int64_t, Instant*) override { return absl::OkStatus(); }

 private:
  absl::Status StartCall(const FrameHead& head, absl::Cord payload) {
    if (admitted_.until != absl::InfiniteFuture() && absl::Now() >= admitted_.until) {
      return absl::PermissionDeniedError(
          absl::StrCat("the capability that it was opened with has expired at ",
                       absl::FormatTime(admitted_.until, absl::UTCTimeZone())));
    }
    const absl::string_view method = PathOf(head.what);
    if (method.empty()) {
      Answer(head.call, absl::UnimplementedError(absl::StrCat("method ", head.what)));
      return absl::OkStatus();
    }
    if (options_.credentials != nullptr) {
      const absl::Status allowed = options_.credentials->CheckCall(*stream().peer(), method);
      if (!allowed.ok()) {
        Answer(head.call, allowed);
        return absl::OkStatus();
      }
    }
    bool room;
    {
      absl::MutexLock lock(&mutex_);
      room = open_.size() < kOpenCallsMax;
      if (room && !open_.try_emplace(head.call).second) {
        return absl::InvalidArgumentError(absl::StrCat("call ", head.call, " is open already"));
      }
    }
    if (!room) {
      Answer(head.call, absl::ResourceExhaustedError(absl::StrCat(
                            "more than ", kOpenCallsMax, " calls of one connection are open")));
      return absl::OkStatus();
    }
    const Handler& handler = options_.admit == nullptr ? options_.handler : admitted_.handler;
    Cancel cancel =
        handler(static_cast<DataMethod>(head.what), std::move(payload),
                [self = shared_from_this(), call = head.call](absl::StatusOr<absl::Cord> answer) {
                  self->Finish(call, std::move(answer));
                });
    absl::MutexLock lock(&mutex_);
    const auto open = open_.find(head.call);
    if (open != open_.end()) open->second = std::move(cancel);
    return absl::OkStatus();
  }

  void CancelCall(uint64_t call) {
    Cancel cancel;
    {
      absl::MutexLock lock(&mutex_);
      const auto open = open_.find(call);
      if (open != open_.end()) cancel = open->second;
    }
    if (cancel != nullptr) cancel();
  }

  void Answer(uint64_t call, absl::StatusOr<absl::Cord> answer) {
    if (answer.ok() && answer->size() > static_cast<size_t>(kMessageBytesMax)) {
      answer = absl::ResourceExhaustedError(absl::StrCat(
          "an answer of ", answer->size(), " bytes, expected at most ", kMessageBytesMax));
    }
    if (answer.ok()) {
      const FrameHead head{.kind = FrameKind::kAnswer, .call = call};
      // A call that waited is finished by the thread of the call that it waited for, which has
      // others to finish.
      const bool waited = std::this_thread::get_id() != own_thread_;
      if (waited && answer->size() >= kLeftFrom) {
        connection_.Leave(head, *std::move(answer));
      } else {
        connection_.Send(head, *std::move(answer));
      }
    } else {
      connection_.Send(ErrorHead(call, answer.status()), absl::Cord(ErrorText(answer.status())));
    }
  }

  void Finish(uint64_t call, absl::StatusOr<absl::Cord> answer) {
    Answer(call, std::move(answer));
    Cancel cancel;  // Declared first, so that it is destroyed without the lock.
    absl::MutexLock lock(&mutex_);
    const auto open = open_.find(call);
    cancel = std::move(open->second);
    open_.erase(open);
  }

  const Options& options_;  // The server's, which outlives its peers' threads.
  DataConnection connection_;
  std::thread::id own_thread_;  // Run sets it before any call begins.
  Admitted admitted_;           // Its handler is null if options_.admit is. Constant in Run.
  absl::Mutex mutex_;
  // Holds what cancels each open call; null as long as the handler runs.
  absl::flat_hash_map<uint64_t, Cancel> open_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<std::unique_ptr<DataServer>> DataServer::Start(Options options) {
  CAPSTAN_ASSIGN_OR_RETURN(ListeningSocket listening, ListenForData(options.listen));
  CAPSTAN_ASSIGN_OR_RETURN(std::string token, MakeToken());
  std::unique_ptr<DataServer> server(
      new DataServer(std::move(options), std::move(listening), std::move(token)));
  CAPSTAN_ASSIGN_OR_RETURN(server->acceptor_,
                           server->options_.start_thread([raw = server.get()] { raw->Accept(); }));
  return server;
}

DataServer::DataServer(Options options, ListeningSocket listening, std::string token)
    : options_(std::move(options)), listening_(std::move(listening)), token_(std::move(token)) {}

void DataServer::Accept() {
  for (;;) {
    {
      absl::MutexLock lock(&mutex_);
      if (stopped_) return;
    }
    pollfd files[] = {{.fd = listening_.socket.get(), .events = POLLIN, .revents = 0},
                      {.fd = wake_up_.descriptor(), .events = POLLIN, .revents = 0}};
    poll(files, 2, -1);
    wake_up_.Clear(/*readable=*/files[1].revents != 0);
    JoinEnded();
    if (files[0].revents != 0) AcceptOne();
  }
}

void DataServer::AcceptOne() {
  Descriptor socket = AcceptData(listening_.socket.get());
  if (!socket.ok()) {
    if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR) return;
    pollfd wake{.fd = wake_up_.descriptor(), .events = POLLIN, .revents = 0};
    poll(&wake, 1, kNoDescriptorsMillis);
    return;
  }
  absl::StatusOr<std::unique_ptr<SocketStream>> stream =
      options_.credentials == nullptr ? PlainStream(std::move(socket))
                                      : options_.credentials->ToClient(std::move(socket));
  if (!stream.ok()) {
    LogWarning({}, "a data connection is closed: {}", std::string(stream.status().message()));
    return;
  }
  absl::MutexLock lock(&mutex_);
  if (stopped_ || std::ssize(connections_) >= options_.connections_max) return;
  const int number = next_number_++;
  Connection& connection = connections_[number];
  connection.peer = std::make_shared<Peer>(*std::move(stream), &options_, &clock_);
  absl::StatusOr<std::thread> thread =
      options_.start_thread([this, number, peer = connection.peer] { Serve(number, peer); });
  if (thread.ok()) {
    connection.thread = *std::move(thread);
    return;
  }
  LogWarning({}, "a data connection is closed: {}", std::string(thread.status().message()));
  connections_.erase(number);
}

void DataServer::Serve(int number, const std::shared_ptr<Peer>& peer) {
  const std::string name = PeerName(peer->stream().socket());
  AdmitClient admit;
  if (options_.admit != nullptr) {
    admit = [&peer](const std::string& capability) { return peer->Admit(capability); };
  }
  absl::Status status =
      GreetClient(peer->stream(), token_, kGreetingWithin, stop_.descriptor(), admit);
  if (status.ok()) {
    ++serving_;
    status = peer->Run();
    --serving_;
  } else {
    peer->Close();
  }
  if (absl::IsDataLoss(status)) ++damaged_frames_;
  if (IsGarbage(status)) {
    LogWarning({}, "data connection from {} ends: {}", name, std::string(status.message()));
  }
  absl::MutexLock lock(&mutex_);
  ended_.push_back(number);
  wake_up_.Wake();
}

void DataServer::JoinEnded() {
  std::vector<Connection> ended;
  {
    absl::MutexLock lock(&mutex_);
    for (const int number : ended_) {
      ended.push_back(std::move(connections_.at(number)));
      connections_.erase(number);
    }
    ended_.clear();
  }
  for (Connection& connection : ended) connection.thread.join();
}

void DataServer::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    if (stopped_) return;
    stopped_ = true;
    for (auto& [number, connection] : connections_) connection.peer->Close();
  }
  stop_.Wake();
  wake_up_.Wake();
  if (acceptor_.joinable()) acceptor_.join();  // Start may have failed.
  absl::btree_map<int, Connection> rest;
  {
    absl::MutexLock lock(&mutex_);
    rest.swap(connections_);
    ended_.clear();
  }
  for (auto& [number, connection] : rest) connection.thread.join();
}

}  // namespace capstan
