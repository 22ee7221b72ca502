#include "common/net/data/data_server.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/net/frame/data_connection.h"
#include "common/observability/log.h"
#include "common/process/descriptor_limit.h"
#include "common/security/certificates/certificate.h"
#include "common/security/certificates/identity.h"
#include "common/status/status_macros.h"
#include "common/types/message_limits.h"

namespace capstan {
namespace {

// Writing an answer of at least these bytes costs more than waking another thread.
constexpr size_t kLeftFrom = 64 << 10;
// The pause before the next attempt to accept, where no descriptor is left.
constexpr absl::Duration kNoDescriptorsPause = absl::Milliseconds(100);

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

// Names the peer in a call, as far as it is known. `stream`: null: the peer has said nothing.
AuditedCall CallBy(const std::string& peer, const SocketStream* stream, absl::string_view method) {
  AuditedCall call{.peer = peer, .caller = "", .method = std::string(method)};
  if (stream != nullptr && stream->peer().has_value()) {
    call.caller = FormatIdentity(stream->peer()->identity);
  }
  return call;
}

ConnectionLimits::Options LimitsOf(const DataServer::Options& options) {
  const int connections_max =
      std::min(options.connections_max, DescriptorLimit() / DataServer::kDescriptorsPerConnection);
  return {.connections_max = connections_max, .prove_within = DataServer::kGreetingWithin};
}

}  // namespace

// One connection and its open calls.
class DataServer::Peer final : public DataConnection::Handler,
                               public std::enable_shared_from_this<Peer> {
 public:
  Peer(std::unique_ptr<SocketStream> stream, const Options* options, const Clock* clock)
      : options_(*options),
        name_(PeerName(stream->socket())),
        connection_(std::move(stream), kMessageBytesMax, clock),
        admitted_{.handler = options->handler} {}

  SocketStream& stream() { return connection_.stream(); }
  const std::string& name() const { return name_; }  // host:port.
  // Records something that was refused. `method`: empty if there is no call yet.
  void Refused(absl::string_view method, CallOutcome by, const absl::Status& why) {
    if (options_.audit == nullptr) return;
    options_.audit->Refused(CallBy(name_, &stream(), method), by, why);
  }
  // REQUIRES: before Run, if at all.
  absl::Status Admit(const std::string& capability) {
    std::optional<Identity> caller;
    if (stream().peer().has_value()) caller = stream().peer()->identity;
    CAPSTAN_ASSIGN_OR_RETURN(admitted_, options_.admit(capability, caller));
    return absl::OkStatus();
  }
  bool usable() const { return connection_.usable(); }
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
      const absl::Status allowed = options_.credentials->CheckCall(*stream().peer(), method, name_);
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
    Cancel cancel = admitted_.handler(
        static_cast<DataMethod>(head.what), std::move(payload),
        [self = shared_from_this(), call = head.call, method](absl::StatusOr<absl::Cord> answer) {
          self->Finish(call, method, std::move(answer));
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
    if (answer.ok()) {
      const absl::Status fits = CheckMessageBytes("an answer", answer->size());
      if (!fits.ok()) answer = fits;
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

  void Finish(uint64_t call, absl::string_view method, absl::StatusOr<absl::Cord> answer) {
    if (absl::IsPermissionDenied(answer.status())) {
      Refused(method, CallOutcome::kHandler, answer.status());
    }
    Answer(call, std::move(answer));
    Cancel cancel;  // Declared first, so that it is destroyed without the lock.
    absl::MutexLock lock(&mutex_);
    const auto open = open_.find(call);
    cancel = std::move(open->second);
    open_.erase(open);
  }

  const Options& options_;  // The server's, which outlives its peers' threads.
  const std::string name_;
  DataConnection connection_;
  std::thread::id own_thread_;  // Run sets it before any call begins.
  Admitted admitted_;           // Constant in Run.
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
    : options_(std::move(options)),
      listening_(std::move(listening)),
      token_(std::move(token)),
      limits_(LimitsOf(options_)) {}

// ---------------------------------------------------------------- the thread that accepts

void DataServer::Accept() {
  for (;;) {
    {
      absl::MutexLock lock(&mutex_);
      if (stopped_) break;
    }
    JoinEnded();
    Poll();
  }
  newcomers_.clear();
}

void DataServer::Poll() {
  const Instant now = clock_.Now();
  for (const Id id : limits_.TakeExpired(now)) newcomers_.erase(id);
  const Instant may_accept = std::max(accept_after_, limits_.MayAcceptFrom(now));
  const bool accepts = may_accept <= now;
  std::vector<pollfd> files = {
      {.fd = accepts ? listening_.socket.get() : -1, .events = POLLIN, .revents = 0},
      {.fd = wake_up_.descriptor(), .events = POLLIN, .revents = 0}};
  std::vector<Id> ids;
  for (const auto& [id, newcomer] : newcomers_) {
    const int socket =
        newcomer.stream == nullptr ? newcomer.socket.get() : newcomer.stream->socket();
    files.push_back({.fd = socket, .events = newcomer.events, .revents = 0});
    ids.push_back(id);
  }
  Instant next = limits_.NextDeadline();
  if (!accepts) next = std::min(next, may_accept);
  poll(files.data(), files.size(), PollMillis(next, now));
  wake_up_.Clear(/*readable=*/files[1].revents != 0);
  // The newcomers that are here go on before another one is accepted.
  for (size_t i = 0; i < ids.size(); ++i) {
    if (files[i + 2].revents != 0) Greet(ids[i]);
  }
  if (files[0].revents != 0) AcceptOne(clock_.Now());
}

void DataServer::AcceptOne(Instant now) {
  Descriptor socket = AcceptData(listening_.socket.get());
  if (!socket.ok()) {
    if (MayAcceptAgain(errno)) return;
    const std::optional<Id> closed = limits_.TakeUnproven();
    if (closed.has_value()) {
      newcomers_.erase(*closed);
    } else {
      accept_after_ = now + kNoDescriptorsPause;
    }
    return;
  }
  const Id id = next_id_++;
  const std::optional<Id> closed = limits_.Add(id, PeerNetwork(socket.get()), now);
  std::string name = PeerName(socket.get());
  newcomers_.emplace(id, Newcomer{.name = std::move(name),
                                  .socket = std::move(socket),
                                  .stream = nullptr,
                                  .hello = {},
                                  .events = POLLIN});
  if (closed.has_value()) newcomers_.erase(*closed);
}

void DataServer::Greet(Id id) {
  Newcomer& newcomer = newcomers_.at(id);
  const absl::StatusOr<short> events = Hear(id, newcomer);
  if (events.ok() && *events != 0) {
    newcomer.events = *events;
    return;
  }
  absl::Status status = events.status();
  if (status.ok()) {
    limits_.Prove(id);
    status = StartServing(id, newcomer.hello.capability(), std::move(newcomer.stream));
  } else {
    NotGreeted(newcomer.name, newcomer.stream.get(), status);
  }
  if (!status.ok()) {
    limits_.Remove(id);
    if (options_.audit == nullptr) LogEnd(newcomer.name, status);
  }
  newcomers_.erase(id);
}

// Returns the events that the newcomer waits for; 0: it has shown who it is.
absl::StatusOr<short> DataServer::Hear(Id id, Newcomer& newcomer) {
  if (newcomer.stream == nullptr) {
    limits_.NoteHeard(id);
    if (options_.credentials == nullptr) {
      newcomer.stream = PlainStream(std::move(newcomer.socket));
    } else {
      CAPSTAN_ASSIGN_OR_RETURN(newcomer.stream,
                               options_.credentials->ToClient(std::move(newcomer.socket)));
    }
  }
  CAPSTAN_ASSIGN_OR_RETURN(const short events, newcomer.hello.Continue(*newcomer.stream));
  if (events != 0) return events;
  CAPSTAN_RETURN_IF_ERROR(CheckHello(newcomer.hello.hello(), token_));
  return short{0};
}

void DataServer::NotGreeted(const std::string& name, const SocketStream* stream,
                            const absl::Status& status) {
  if (options_.audit == nullptr) return;
  const bool in_handshake =
      options_.credentials != nullptr && stream != nullptr && !stream->peer().has_value();
  if (!in_handshake && absl::IsUnavailable(status)) return;
  options_.audit->Refused(
      CallBy(name, stream, ""), in_handshake ? CallOutcome::kHandshake : CallOutcome::kBadGreeting,
      absl::UnauthenticatedError(absl::StrCat("a data connection: ", status.message())));
}

absl::Status DataServer::StartServing(Id id, const std::string& capability,
                                      std::unique_ptr<SocketStream> stream) {
  auto peer = std::make_shared<Peer>(std::move(stream), &options_, &clock_);
  if (options_.admit != nullptr) {
    const absl::Status admitted = peer->Admit(capability);
    if (!admitted.ok()) peer->Refused("", CallOutcome::kBadGreeting, admitted);
    CAPSTAN_RETURN_IF_ERROR(admitted);
  }
  if (!peer->usable()) return absl::ResourceExhaustedError("there are no more descriptors");
  absl::MutexLock lock(&mutex_);
  if (stopped_) return absl::UnavailableError("stopped");
  CAPSTAN_ASSIGN_OR_RETURN(std::thread thread,
                           options_.start_thread([this, id, peer] { Serve(id, peer); }));
  connections_[id] = {.peer = std::move(peer), .thread = std::move(thread)};
  return absl::OkStatus();
}

// ---------------------------------------------------------------- the threads of connections

void DataServer::Serve(Id id, const std::shared_ptr<Peer>& peer) {
  absl::Status status = AnswerHello(peer->stream(), kGreetingWithin, stop_.descriptor());
  if (status.ok()) {
    ++serving_;
    status = peer->Run();
    --serving_;
  } else {
    peer->Close();
  }
  if (absl::IsDataLoss(status)) ++damaged_frames_;
  LogEnd(peer->name(), status);
  absl::MutexLock lock(&mutex_);
  ended_.push_back(id);
  wake_up_.Wake();
}

// A line a second at most, since strangers cause them.
void DataServer::LogEnd(const std::string& name, const absl::Status& status) {
  if (absl::IsUnavailable(status)) return;
  int64_t others;
  {
    absl::MutexLock lock(&mutex_);
    const Instant now = clock_.Now();
    if (now < logged_ + kLogEvery) {
      ++not_logged_;
      return;
    }
    logged_ = now;
    others = std::exchange(not_logged_, 0);
  }
  LogWarning({}, "data connection from {} ends: {}{}", name, std::string(status.message()),
             others == 0 ? "" : absl::StrCat("; before it, ", others, " others without a line"));
}

void DataServer::JoinEnded() {
  std::vector<Connection> ended;
  {
    absl::MutexLock lock(&mutex_);
    for (const Id id : ended_) {
      ended.push_back(std::move(connections_.at(id)));
      connections_.erase(id);
      limits_.Remove(id);
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
    for (auto& [id, connection] : connections_) connection.peer->Close();
  }
  stop_.Wake();
  wake_up_.Wake();
  if (acceptor_.joinable()) acceptor_.join();  // Start may have failed.
  std::map<Id, Connection> rest;
  {
    absl::MutexLock lock(&mutex_);
    rest.swap(connections_);
    ended_.clear();
  }
  for (auto& [id, connection] : rest) connection.thread.join();
}

}  // namespace capstan
