#include "common/net/data/data_connection_pool.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/frame/data_socket.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc_types/capability_metadata.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/net/socket/host_port.h"
#include "common/net/socket/socket_stream.h"
#include "common/observability/log.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr absl::Duration kPauseMin = absl::Seconds(1), kPauseMax = absl::Seconds(30);
constexpr absl::Duration kAskTimeout = absl::Seconds(5), kConnectTimeout = absl::Seconds(5);
constexpr int kPortMax = 65535;
constexpr int kPushConnectionsMax = 16;

absl::StatusOr<HostPort> PlaceOf(const std::string& server,
                                 const v1::OpenDataConnectionsResponse& told) {
  CAPSTAN_ASSIGN_OR_RETURN(HostPort place, ParseHostPort(server));
  if (!told.host().empty()) place.host = told.host();
  place.port = told.port();
  if (told.port() > 0 && told.port() <= kPortMax && told.token().size() == kTokenBytes) {
    return place;
  }
  return absl::InternalError(absl::StrCat("it told port ", told.port(), " and a token of ",
                                          told.token().size(), " bytes, expected ", kTokenBytes));
}

void CloseAll(const std::vector<std::shared_ptr<DataCaller>>& callers) {
  for (const auto& caller : callers) caller->Close();
}

}  // namespace

struct DataConnectionPool::Opening {
  grpc::ClientContext context;
  v1::OpenDataConnectionsRequest request;
  v1::OpenDataConnectionsResponse response;
  std::string capability;
};

DataConnectionPool::DataConnectionPool(Options options)
    : options_(std::move(options)), pause_(kPauseMin) {}

bool DataConnectionPool::WantsOffer(Instant now) const {
  if (!options_.enabled) return false;
  absl::MutexLock lock(&mutex_);
  return !closed_ && !refused_ && opening_ == nullptr && now >= next_offer_;
}

void DataConnectionPool::Offer(Instant now) {
  if (!WantsOffer(now)) return;
  Join();  // The last thread has ended, as nothing is open.
  std::shared_ptr<Opening> opening;
  {
    absl::MutexLock lock(&mutex_);
    if (closed_ || opening_ != nullptr) return;
    opening = opening_ = tracker_.Make<Opening>();
  }
  SetDeadline(opening->context, kAskTimeout);
  if (options_.capability != nullptr) opening->capability = options_.capability();
  AddCapability(opening->capability, &opening->context);
  options_.stub->async()->OpenDataConnections(
      &opening->context, &opening->request, &opening->response,
      [this, opening](const grpc::Status& status) { OnAnswer(opening, FromGrpcStatus(status)); });
}

void DataConnectionPool::OnAnswer(const std::shared_ptr<Opening>& opening,
                                  const absl::Status& status) {
  if (!status.ok()) return OnEnd(status, /*was_open=*/false);
  absl::StatusOr<std::thread> thread;
  {
    absl::MutexLock lock(&mutex_);
    if (closed_) {
      opening_.reset();
      return;
    }
    thread = options_.start_thread([this, opening] { Serve(opening); });
    if (thread.ok()) thread_ = *std::move(thread);
  }
  if (!thread.ok()) OnEnd(thread.status(), /*was_open=*/false);
}

absl::StatusOr<DataConnectionPool::Callers> DataConnectionPool::Connect(const Opening& opening) {
  const v1::OpenDataConnectionsResponse& told = opening.response;
  CAPSTAN_ASSIGN_OR_RETURN(const HostPort place, PlaceOf(options_.server, told));
  const int pushes = std::clamp(told.push_connections(), 1, kPushConnectionsMax);
  StreamMaker make = PlainStream;
  if (options_.credentials != nullptr) {
    make = [this](Descriptor socket) {
      return options_.credentials->ToServer(std::move(socket), {PeerRole::kServer, options_.node});
    };
  }
  Callers callers;
  for (int i = 0; i < (options_.to_replica ? 1 : 1 + pushes); ++i) {
    CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<SocketStream> stream,
                             ConnectForData(place, told.token(), kConnectTimeout,
                                            stop_.descriptor(), make, opening.capability));
    callers.push_back(std::make_shared<DataCaller>(std::move(stream), options_.clock));
    if (!callers.back()->usable()) {
      return absl::ResourceExhaustedError("there are no more descriptors");
    }
  }
  return callers;
}

void DataConnectionPool::Serve(const std::shared_ptr<Opening>& opening) {
  const absl::StatusOr<Callers> callers = Connect(*opening);
  if (!callers.ok()) return OnEnd(callers.status(), /*was_open=*/false);
  // The threads start before the connections are published: a call on a connection ends only if a
  // thread reads the connection.
  std::vector<std::thread> threads;
  absl::Status status;
  for (size_t i = 1; i < callers->size() && status.ok(); ++i) {
    absl::StatusOr<std::thread> thread = options_.start_thread([callers = *callers, i] {
      callers[i]->Run().IgnoreError();
      CloseAll(callers);
    });
    status = thread.status();
    if (thread.ok()) threads.push_back(*std::move(thread));
  }
  const bool opened = status.ok();
  if (opened) {
    {
      absl::MutexLock lock(&mutex_);
      open_ = *callers;
      if (closed_) CloseAll(open_);  // Close() has not seen them.
    }
    LogDebug({}, "{} data connections to {} are open", callers->size(), options_.server);
    status = callers->front()->Run();
  }
  CloseAll(*callers);
  for (std::thread& thread : threads) thread.join();
  OnEnd(status, opened);
}

void DataConnectionPool::OnEnd(const absl::Status& status, bool was_open) {
  Callers ended;
  absl::MutexLock lock(&mutex_);
  std::swap(ended, open_);
  opening_.reset();
  if (closed_) return;
  refused_ = absl::IsUnimplemented(status);
  if (refused_) return;  // gRPC does as well, so it is not worth a log line.
  if (was_open) pause_ = kPauseMin;
  const bool first = pause_ == kPauseMin;
  next_offer_ = options_.clock->Now() + pause_;
  if (absl::IsNotFound(status)) return;  // The server does not hold the job yet, but soon will.
  pause_ = std::min(2 * pause_, kPauseMax);
  if (!first) return;
  LogInfo({}, "{} data connections to {}, gRPC instead: {}", was_open ? "lost the" : "no",
          options_.server, std::string(status.message()));
}

std::shared_ptr<DataCaller> DataConnectionPool::For(DataMethod method) {
  absl::MutexLock lock(&mutex_);
  if (open_.empty()) return nullptr;
  if (method == DataMethod::kPull || open_.size() == 1) return open_.front();
  return open_[1 + pushes_++ % (open_.size() - 1)];
}

int64_t DataConnectionPool::BytesMoved() const {
  absl::MutexLock lock(&mutex_);
  int64_t bytes = 0;
  for (const auto& caller : open_) bytes += caller->bytes_moved();
  return bytes;
}

void DataConnectionPool::Join() {
  std::thread ended;
  {
    absl::MutexLock lock(&mutex_);
    ended.swap(thread_);
  }
  if (ended.joinable()) ended.join();
}

void DataConnectionPool::Close() {
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    if (opening_ != nullptr) opening_->context.TryCancel();
    CloseAll(open_);
  }
  stop_.Wake();
  tracker_.WaitUntilGone();  // No thread is started from then on.
  Join();
}

}  // namespace capstan
