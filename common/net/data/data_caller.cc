#include "common/net/data/data_caller.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

// The thread in Run checks deadlines and the peer this often, so that starting a call need not wake
// it.
constexpr absl::Duration kTickInterval = absl::Seconds(1);
constexpr int64_t kNoBound =
    std::numeric_limits<int64_t>::max();  // The caller bounds its requests.

}  // namespace

DataCaller::DataCaller(std::unique_ptr<SocketStream> stream, const Clock* clock)
    : clock_(clock), connection_(std::move(stream), kNoBound, clock), watch_(clock->Now()) {}

absl::Status DataCaller::Run() {
  const absl::Status status = connection_.Run(this);
  absl::flat_hash_map<CallId, Pending> lost;
  {
    absl::MutexLock lock(&mutex_);
    ended_ = true;
    lost.swap(pending_);
    deadlines_ = CallDeadlines();
  }
  const absl::Status unavailable =
      absl::UnavailableError(absl::StrCat("the data connection is lost: ", status.message()));
  for (auto& [id, call] : lost) call.done(unavailable);
  return status;
}

std::optional<DataCaller::CallId> DataCaller::Start(const Request& request, Done done) {
  const Instant now = clock_->Now();
  const absl::Status fits = CheckMessageBytes("a request", request.bytes.size());
  CallId id = 0;
  bool wake = false;
  {
    absl::MutexLock lock(&mutex_);
    if (ended_) return std::nullopt;
    id = next_call_++;
    pending_[id] = {.done = std::move(done), .places = request.places};
    deadlines_.Add(id, now, request.timeout);
    // The server would end the connection, and the calls on it would be repeated without end.
    if (!fits.ok()) given_up_.emplace_back(id, fits);
    wake = !fits.ok() || now + request.timeout < next_tick_;
  }
  if (wake) connection_.Wake();
  if (!fits.ok()) return id;
  const auto method = static_cast<uint8_t>(request.method);
  connection_.Send({.kind = FrameKind::kRequest, .what = method, .call = id}, request.bytes,
                   request.patience);
  return id;
}

void DataCaller::Cancel(CallId call) {
  {
    absl::MutexLock lock(&mutex_);
    if (!pending_.contains(call)) return;
    given_up_.emplace_back(call, absl::CancelledError("cancelled"));
  }
  connection_.Wake();
}

std::optional<DataCaller::Pending> DataCaller::Take(CallId call) {
  absl::MutexLock lock(&mutex_);
  const auto found = pending_.find(call);
  if (found == pending_.end()) return std::nullopt;
  Pending pending = std::move(found->second);
  pending_.erase(found);
  deadlines_.Remove(call);
  return pending;
}

absl::Status DataCaller::OnFrame(const FrameHead& head, absl::Cord payload) {
  switch (head.kind) {
    case FrameKind::kAnswer:
    case FrameKind::kError: {
      std::optional<Pending> call = Take(head.call);
      if (!call.has_value()) return absl::OkStatus();  // Nobody waits for it any more.
      if (head.kind == FrameKind::kAnswer) {
        call->done(std::move(payload));
      } else {
        call->done(ErrorOf(head, std::string(payload)));
      }
      return absl::OkStatus();
    }
    case FrameKind::kPong:
      signs_of_life_ += static_cast<int64_t>(kFrameHeadBytes);
      return absl::OkStatus();  // Only its bytes matter: they show that the peer is alive.
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("a server sent a frame of kind ", static_cast<int>(head.kind)));
  }
}

std::shared_ptr<PayloadPlaces> DataCaller::PlacesOf(const FrameHead& head) {
  if (head.kind != FrameKind::kAnswer) return nullptr;
  absl::MutexLock lock(&mutex_);
  const auto found = pending_.find(head.call);
  return found == pending_.end() ? nullptr : found->second.places;
}

std::vector<std::pair<DataCaller::CallId, absl::Status>> DataCaller::TakeOverdue(Instant now,
                                                                                 int64_t moved) {
  absl::MutexLock lock(&mutex_);
  std::vector<std::pair<CallId, absl::Status>> overdue = std::exchange(given_up_, {});
  deadlines_.Moved(now, moved - signs_of_life_);
  for (const CallId call : deadlines_.Overdue(now)) {
    overdue.emplace_back(call, absl::DeadlineExceededError("no answer within the call's time"));
  }
  next_tick_ = std::min(now + kTickInterval, deadlines_.NextAfter(now));
  return overdue;
}

void DataCaller::GiveUp(CallId call, const absl::Status& status) {
  std::optional<Pending> pending = Take(call);
  if (!pending.has_value()) return;
  connection_.DropPlaces(call);
  connection_.Send({.kind = FrameKind::kCancel, .call = call}, absl::Cord());
  pending->done(status);
}

absl::Status DataCaller::CheckPeer(Instant now, int64_t moved) {
  bool waits;
  {
    absl::MutexLock lock(&mutex_);
    waits = !pending_.empty();
  }
  switch (watch_.Look(now, moved, waits)) {
    case PeerWatch::Verdict::kFine:
      return absl::OkStatus();
    case PeerWatch::Verdict::kAsk:
      connection_.Send({.kind = FrameKind::kPing}, absl::Cord());
      signs_of_life_ += static_cast<int64_t>(kFrameHeadBytes);
      return absl::OkStatus();
    case PeerWatch::Verdict::kGone:
      break;
  }
  return absl::UnavailableError(
      absl::StrCat("the peer has said nothing for ", absl::FormatDuration(watch_.Quiet(now))));
}

absl::Status DataCaller::OnTick(Instant now, int64_t moved, Instant* next) {
  CAPSTAN_RETURN_IF_ERROR(CheckPeer(now, moved));
  // The number never decreases: a ping counts as a sign of life before its bytes have moved.
  const int64_t bytes = std::max(bytes_moved(), moved - signs_of_life_);
  bytes_moved_.store(bytes, std::memory_order_relaxed);
  for (const auto& [call, status] : TakeOverdue(now, moved)) GiveUp(call, status);
  absl::MutexLock lock(&mutex_);
  *next = next_tick_;
  return absl::OkStatus();
}

}  // namespace capstan
