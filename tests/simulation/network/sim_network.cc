#include "tests/simulation/network/sim_network.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/grpc_types/grpc_status.h"
#include "tests/simulation/network/methods.h"

namespace capstan::sim {
namespace {

constexpr absl::Duration kLatencyMin = absl::Microseconds(50);
constexpr uint64_t kWireStream = 12;
constexpr double kDeadSilent = 0.2;  // Share of calls to a dead process that nobody refuses.

}  // namespace

SimNetwork::SimNetwork(EventLoop* loop, Prng prng, FaultCounts* counts, TraceHash* trace)
    : loop_(loop),
      prng_(prng),
      wire_prng_(prng.Fork(kWireStream)),
      counts_(counts),
      trace_(trace) {}

SimNetwork::EndpointId SimNetwork::AddEndpoint(HostId host, Process* process) {
  endpoints_.push_back({.host = host, .process = process, .handler = nullptr});
  return static_cast<EndpointId>(endpoints_.size()) - 1;
}

void SimNetwork::SetHandler(EndpointId endpoint, Handler handler) {
  endpoints_[static_cast<size_t>(endpoint)].handler = std::move(handler);
}

SimNetwork::CallId SimNetwork::Call(EndpointId from, EndpointId to, int method, std::string bytes,
                                    absl::Duration timeout, Done done) {
  const CallId call = ++last_call_;
  Process* caller = endpoints_[static_cast<size_t>(from)].process;
  Pending& pending = pending_[call];
  pending = {.from = from,
             .to = to,
             .incarnation = caller->incarnation(),
             .deadline = 0,
             .done = std::move(done),
             .received = {}};
  pending.deadline = caller->After(
      timeout, [this, call] { End(call, absl::DeadlineExceededError("no answer in time"), ""); });
  const auto message = std::make_shared<std::string>(std::move(bytes));
  Transmit(from, to, {message, HasChecksum(method)}, /*repeatable=*/true,
           [this, call, from, to, method, message] {
             DeliverRequest(call, from, to, method, *message);
           });
  return call;
}

void SimNetwork::Cancel(CallId call) {
  const auto it = pending_.find(call);
  if (it == pending_.end()) return;
  Pending pending = std::move(it->second);
  pending_.erase(it);
  endpoints_[static_cast<size_t>(pending.from)].process->CancelTimer(pending.deadline);
  CancelReceived(pending);
}

void SimNetwork::CancelReceived(const Pending& pending) {
  for (const std::weak_ptr<Incoming>& weak : pending.received) {
    if (weak.expired()) continue;
    Transmit(pending.from, pending.to, {}, /*repeatable=*/false, [this, weak] {
      const std::shared_ptr<Incoming> incoming = weak.lock();
      if (incoming == nullptr || incoming->answered_) return;
      Process* process = endpoints_[static_cast<size_t>(incoming->to_)].process;
      if (!process->alive() || process->incarnation() != incoming->incarnation_) return;
      process->Arrive([incoming] {
        if (!incoming->answered_ && incoming->on_cancel) incoming->on_cancel();
      });
    });
  }
}

void SimNetwork::MayFlip(const Payload& payload) {
  if (!payload.checked || payload.bytes == nullptr || payload.bytes->empty()) return;
  if (faults_.flip == 0 || !wire_prng_.Chance(faults_.flip)) return;
  ++(*counts_)[Fault::kBitFlippedOnTheWay];
  const int64_t bit = wire_prng_.Between(0, 8 * std::ssize(*payload.bytes) - 1);
  char& byte = (*payload.bytes)[static_cast<size_t>(bit / 8)];
  byte = static_cast<char>(byte ^ (1 << bit % 8));
}

void SimNetwork::Transmit(EndpointId from, EndpointId to, const Payload& payload, bool repeatable,
                          Arrival arrival) {
  const HostId from_host = endpoints_[static_cast<size_t>(from)].host;
  const HostId to_host = endpoints_[static_cast<size_t>(to)].host;
  const size_t bytes = payload.bytes == nullptr ? 0 : payload.bytes->size();
  trace_->Event({static_cast<uint64_t>(from), static_cast<uint64_t>(to), bytes});
  Link& link = LinkOf(from_host, to_host);
  if (from_host != to_host) {
    if (link.cuts > 0 || link.clogs > 0) {
      // A message that meets a cut is lost, or arrives once the cut is mended.
      if (link.cuts > 0 && prng_.Chance(0.5)) return;
      link.held.push_back(std::move(arrival));
      return;
    }
    if (prng_.Chance(faults_.lose)) {
      ++(*counts_)[Fault::kMessageLost];
      return;
    }
    if (prng_.Chance(faults_.corrupt)) {
      ++(*counts_)[Fault::kMessageCorrupted];
      return Reset(from, to);
    }
    if (prng_.Chance(faults_.reset)) {
      ++(*counts_)[Fault::kConnectionReset];
      return Reset(from, to);
    }
    MayFlip(payload);
    if (repeatable && prng_.Chance(faults_.repeat)) {
      ++(*counts_)[Fault::kMessageDoubled];
      Travel(link, arrival);
    }
  }
  Travel(link, std::move(arrival));
}

void SimNetwork::Travel(Link& link, Arrival arrival) {
  absl::Duration time = prng_.Between(kLatencyMin, faults_.latency_max);
  if (prng_.Chance(faults_.delay)) {
    ++(*counts_)[Fault::kMessageDelayed];
    time += prng_.Between(absl::ZeroDuration(), faults_.delay_max);
  }
  const Instant arrives = loop_->Now() + time;
  if (arrives < link.last_arrival) ++(*counts_)[Fault::kMessageOvertaken];
  link.last_arrival = std::max(link.last_arrival, arrives);
  loop_->At(arrives, std::move(arrival));
}

void SimNetwork::DeliverRequest(CallId call, EndpointId from, EndpointId to, int method,
                                const std::string& bytes) {
  const Endpoint& endpoint = endpoints_[static_cast<size_t>(to)];
  const auto pending = pending_.find(call);
  if (!endpoint.process->alive() || endpoint.handler == nullptr) {
    if (pending == pending_.end() || prng_.Chance(kDeadSilent)) return;
    Transmit(to, from, {}, /*repeatable=*/false,
             [this, call] { End(call, absl::UnavailableError("connection refused"), ""); });
    return;
  }
  auto incoming = std::make_shared<Incoming>();
  incoming->from = from;
  incoming->method = method;
  incoming->bytes = bytes;
  incoming->network_ = this;
  incoming->call_ = call;
  incoming->to_ = to;
  incoming->incarnation_ = endpoint.process->incarnation();
  incoming->checked_ = HasChecksum(method);
  if (pending != pending_.end()) pending->second.received.push_back(incoming);
  endpoint.process->Arrive(
      [this, to, incoming] { endpoints_[static_cast<size_t>(to)].handler(incoming); });
}

void SimNetwork::Incoming::Answer(const absl::Status& status, std::string answer) {
  if (answered_) return;
  answered_ = true;
  const auto message = std::make_shared<std::string>(std::move(answer));
  network_->Transmit(to_, from, {message, checked_}, /*repeatable=*/false,
                     [network = network_, call = call_, status, message] {
                       network->End(call, status, *message);
                     });
}

void SimNetwork::End(CallId call, const absl::Status& status, const std::string& answer) {
  const auto it = pending_.find(call);
  if (it == pending_.end()) return;
  Process* caller = endpoints_[static_cast<size_t>(it->second.from)].process;
  if (!caller->alive() || caller->incarnation() != it->second.incarnation) {
    pending_.erase(it);
    return;
  }
  // While the caller is paused its deadline does not pass either; the first to run wins.
  caller->Arrive([this, call, caller, status, answer] {
    const auto found = pending_.find(call);
    if (found == pending_.end()) return;
    Pending pending = std::move(found->second);
    pending_.erase(found);
    caller->CancelTimer(pending.deadline);
    if (absl::IsDeadlineExceeded(status)) CancelReceived(pending);
    pending.done(status, answer);
  });
}

absl::Status SimNetwork::Broken() {
  if (faults_.transport_status == 0 || !wire_prng_.Chance(faults_.transport_status)) {
    return absl::UnavailableError("connection reset");
  }
  ++(*counts_)[Fault::kTransportStatus];
  return FromGrpcStatus(
      wire_prng_.Chance(0.5)
          ? grpc::Status(grpc::StatusCode::UNKNOWN, "Stream removed")
          : grpc::Status(grpc::StatusCode::INTERNAL, "Received RST_STREAM with error code 2"));
}

void SimNetwork::Reset(EndpointId a, EndpointId b) {
  std::vector<CallId> broken;
  for (auto& [call, pending] : pending_) {
    const bool between =
        (pending.from == a && pending.to == b) || (pending.from == b && pending.to == a);
    if (between) broken.push_back(call);
  }
  for (const CallId call : broken) {
    loop_->After(kLatencyMin, [this, call, status = Broken()] {
      const auto it = pending_.find(call);
      if (it == pending_.end()) return;
      CancelReceived(it->second);
      End(call, status, "");
    });
  }
}

void SimNetwork::EndpointDied(EndpointId endpoint) {
  std::vector<CallId> own;
  std::vector<CallId> broken;
  for (auto& [call, pending] : pending_) {
    if (pending.from == endpoint) own.push_back(call);
    if (pending.to == endpoint && !prng_.Chance(kDeadSilent)) broken.push_back(call);
  }
  for (const CallId call : own) {
    const auto it = pending_.find(call);
    CancelReceived(it->second);
    pending_.erase(it);
  }
  for (const CallId call : broken) {
    const auto it = pending_.find(call);
    if (it == pending_.end()) continue;
    Transmit(endpoint, it->second.from, {}, /*repeatable=*/false, [this, call] {
      End(call, absl::UnavailableError("connection reset by a dead peer"), "");
    });
  }
}

void SimNetwork::Cut(HostId from, HostId to) { ++LinkOf(from, to).cuts; }

void SimNetwork::Mend(HostId from, HostId to) {
  Link& link = LinkOf(from, to);
  if (--link.cuts > 0 || link.clogs > 0) return;
  std::vector<Arrival> held;
  held.swap(link.held);
  for (Arrival& arrival : held) Travel(link, std::move(arrival));
}

void SimNetwork::Clog(HostId from, HostId to) { ++LinkOf(from, to).clogs; }

void SimNetwork::Unclog(HostId from, HostId to) {
  Link& link = LinkOf(from, to);
  if (--link.clogs > 0 || link.cuts > 0) return;
  std::vector<Arrival> held;
  held.swap(link.held);
  for (size_t i = held.size(); i > 1; --i) {  // A burst, in any order.
    std::swap(held[i - 1],
              held[static_cast<size_t>(prng_.Between(0, static_cast<int64_t>(i) - 1))]);
  }
  for (Arrival& arrival : held) loop_->After(kLatencyMin, std::move(arrival));
}

}  // namespace capstan::sim
