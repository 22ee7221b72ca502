#include "common/net/data_lane.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/channel.h"
#include "common/net/data_socket.h"
#include "common/net/grpc_status.h"
#include "common/net/host_port.h"
#include "common/observability/log.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr absl::Duration kPauseMin = absl::Seconds(1), kPauseMax = absl::Seconds(30);
constexpr absl::Duration kAskTimeout = absl::Seconds(5), kConnectTimeout = absl::Seconds(5);
constexpr int kPortMax = 65535;

absl::StatusOr<HostPort> PlaceOf(const std::string& server, const v1::OpenDataPathResponse& told) {
  CAPSTAN_ASSIGN_OR_RETURN(HostPort place, ParseHostPort(server));
  if (!told.host().empty()) place.host = told.host();
  place.port = told.port();
  if (told.port() > 0 && told.port() <= kPortMax && told.token().size() == kTokenBytes) {
    return place;
  }
  return absl::InternalError(absl::StrCat("it told port ", told.port(), " and a token of ",
                                          told.token().size(), " bytes, expected ", kTokenBytes));
}

}  // namespace

struct DataLane::Opening {
  grpc::ClientContext context;
  v1::OpenDataPathRequest request;
  v1::OpenDataPathResponse response;
};

DataLane::DataLane(Options options) : options_(std::move(options)), pause_(kPauseMin) {}

bool DataLane::WantsOffer(Instant now) const {
  if (!options_.enabled) return false;
  absl::MutexLock lock(&mutex_);
  return !closed_ && !refused_ && opening_ == nullptr && now >= next_offer_;
}

void DataLane::Offer(Instant now) {
  if (!WantsOffer(now)) return;
  Join();  // It has ended: nothing is open.
  std::shared_ptr<Opening> opening;
  {
    absl::MutexLock lock(&mutex_);
    if (closed_ || opening_ != nullptr) return;
    opening = opening_ = tracker_.Make<Opening>();
  }
  SetDeadline(opening->context, kAskTimeout);
  options_.stub->async()->OpenDataPath(
      &opening->context, &opening->request, &opening->response,
      [this, opening](const grpc::Status& status) { OnAnswer(opening, FromGrpcStatus(status)); });
}

void DataLane::OnAnswer(const std::shared_ptr<Opening>& opening, const absl::Status& status) {
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

absl::StatusOr<DataLane::Open> DataLane::Connect(const Opening& opening) {
  CAPSTAN_ASSIGN_OR_RETURN(const HostPort place, PlaceOf(options_.server, opening.response));
  Open open;
  for (std::shared_ptr<DataCaller>* caller : {&open.pushes, &open.pulls}) {
    if (caller == &open.pulls && !options_.own_pulls) break;
    CAPSTAN_ASSIGN_OR_RETURN(
        Descriptor socket,
        ConnectForData(place, opening.response.token(), kConnectTimeout, stop_.descriptor()));
    *caller = std::make_shared<DataCaller>(std::move(socket), options_.clock);
  }
  return open;
}

void DataLane::Serve(const std::shared_ptr<Opening>& opening) {
  const absl::StatusOr<Open> open = Connect(*opening);
  if (!open.ok()) return OnEnd(open.status(), /*was_open=*/false);
  // First: of a connection that is told of, calls end only with a thread that reads it.
  absl::StatusOr<std::thread> pulls = std::thread();
  if (open->pulls != nullptr) {
    pulls = options_.start_thread([open = *open] {
      open.pulls->Run().IgnoreError();
      open.pushes->Close();
    });
  }
  if (!pulls.ok()) return OnEnd(pulls.status(), /*was_open=*/false);
  {
    absl::MutexLock lock(&mutex_);
    open_ = *open;
    if (closed_) CloseLocked();  // Close has not seen them.
  }
  LogDebug({}, "data connections to {} are open", options_.server);
  const absl::Status status = open->pushes->Run();
  if (open->pulls != nullptr) open->pulls->Close();
  if (pulls->joinable()) pulls->join();
  OnEnd(status, /*was_open=*/true);
}

void DataLane::OnEnd(const absl::Status& status, bool was_open) {
  Open ended;
  absl::MutexLock lock(&mutex_);
  std::swap(ended, open_);
  opening_.reset();
  if (closed_) return;
  refused_ = absl::IsUnimplemented(status);
  if (refused_) return;  // It is not worth a line: gRPC does as well.
  if (was_open) pause_ = kPauseMin;
  const bool first = pause_ == kPauseMin;
  next_offer_ = options_.clock->Now() + pause_;
  pause_ = std::min(2 * pause_, kPauseMax);
  if (!first) return;
  LogInfo({}, "{} data connections to {}, gRPC instead: {}", was_open ? "lost the" : "no",
          options_.server, std::string(status.message()));
}

std::shared_ptr<DataCaller> DataLane::For(DataMethod method) const {
  absl::MutexLock lock(&mutex_);
  const bool is_pull = method == DataMethod::kPull && options_.own_pulls;
  return is_pull ? open_.pulls : open_.pushes;
}

int64_t DataLane::BytesMoved() const {
  absl::MutexLock lock(&mutex_);
  int64_t bytes = 0;
  for (const DataCaller* caller : {open_.pushes.get(), open_.pulls.get()}) {
    if (caller != nullptr) bytes += caller->bytes_moved();
  }
  return bytes;
}

void DataLane::Join() {
  std::thread ended;
  {
    absl::MutexLock lock(&mutex_);
    ended.swap(thread_);
  }
  if (ended.joinable()) ended.join();
}

void DataLane::CloseLocked() {
  if (open_.pushes != nullptr) open_.pushes->Close();
  if (open_.pulls != nullptr) open_.pulls->Close();
}

void DataLane::Close() {
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    if (opening_ != nullptr) opening_->context.TryCancel();
    CloseLocked();
  }
  stop_.Wake();
  tracker_.WaitUntilGone();  // No thread is started from then on.
  Join();
}

}  // namespace capstan
