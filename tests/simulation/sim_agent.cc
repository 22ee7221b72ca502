#include "tests/simulation/sim_agent.h"

#include <algorithm>
#include <utility>

#include "common/net/agent_timing.h"
#include "tests/simulation/methods.h"

namespace capstan::sim {
namespace {

using agent_timing::kBackoffMax;
using agent_timing::kBackoffMin;
using agent_timing::kHeldMin;
using agent_timing::kRegisterTimeout;
using agent_timing::kShortLife;

}  // namespace

SimAgent::SimAgent(SimNetwork* network, Process* process, SimNetwork::EndpointId self,
                   SimNetwork::EndpointId scheduler, v1::RegisterRequest registration,
                   NodeHandler* handler)
    : network_(network),
      process_(process),
      self_(self),
      scheduler_(scheduler),
      registration_(std::move(registration)),
      handler_(handler),
      backoff_(kBackoffMin) {}

void SimAgent::Run() {
  if (registered()) {
    Sync();
  } else {
    Register();
  }
}

void SimAgent::Wake() {
  woken_ = true;
  if (syncing_ || !registered()) return;
  if (sync_call_ != 0) {
    network_->Cancel(std::exchange(sync_call_, 0));
    process_->After(absl::ZeroDuration(), [this] { Run(); });
  } else if (pause_ != 0) {
    process_->CancelTimer(std::exchange(pause_, 0));
    process_->After(absl::ZeroDuration(), [this] { Run(); });
  }
}

void SimAgent::BackOff() {
  const absl::Duration pause = backoff_;
  backoff_ = std::min(backoff_ * 2, kBackoffMax);
  process_->After(pause, [this] { Run(); });
}

void SimAgent::Register() {
  v1::RegisterRequest request = registration_;
  request.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
  if (!node_id_.empty()) request.set_name(node_id_);
  request.set_identity(request.name());  // No two processes of a name run at a time.
  handler_->FillRegistration(request);
  network_->Call(self_, scheduler_, kRegister, request.SerializeAsString(), kRegisterTimeout,
                 [this](const absl::Status& status, const std::string& answer) {
                   OnRegistered(status, answer);
                 });
}

void SimAgent::OnRegistered(const absl::Status& status, const std::string& answer) {
  if (absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status) ||
      absl::IsAlreadyExists(status)) {
    return Fatal(status);
  }
  if (!status.ok()) return BackOff();
  v1::RegisterResponse response;
  if (!response.ParseFromString(answer)) return Fatal(absl::InternalError("unreadable answer"));
  backoff_ = kBackoffMin;
  node_id_ = response.node_id();
  incarnation_ = Incarnation(response.incarnation());
  generation_seen_ = 0;
  life_began_ = process_->Now();
  sync_timeout_ = agent_timing::SyncTimeout(response);
  read_lease_ = absl::Milliseconds(response.read_lease_ms());
  handler_->Restarted(node_id_, incarnation_);
  Sync();
}

void SimAgent::Sync() {
  woken_ = false;
  syncing_ = true;
  v1::SyncNodeRequest request;
  request.set_node_id(node_id_);
  request.set_incarnation(incarnation_.value());
  request.set_generation_seen(generation_seen_);
  handler_->FillState(request);
  sync_sent_ = process_->Now();
  syncing_ = false;
  sync_call_ =
      network_->Call(self_, scheduler_, kSyncNode, request.SerializeAsString(), sync_timeout_,
                     [this](const absl::Status& status, const std::string& answer) {
                       sync_call_ = 0;
                       OnSynced(status, answer);
                     });
}

void SimAgent::OnSynced(const absl::Status& status, const std::string& answer) {
  if (absl::IsAborted(status) || absl::IsNotFound(status)) return EndLife();
  if (absl::IsFailedPrecondition(status)) return Fatal(status);
  if (!status.ok()) return BackOff();
  v1::SyncNodeResponse response;
  if (!response.ParseFromString(answer)) return Fatal(absl::InternalError("unreadable answer"));
  backoff_ = kBackoffMin;
  handler_->SyncAnswered(read_lease_);
  if (response.generation() != generation_seen_) {
    generation_seen_ = response.generation();
    syncing_ = true;
    handler_->TakeDesired(response);
    syncing_ = false;
  } else if (process_->Now() - sync_sent_ < kHeldMin && !woken_) {
    pause_ = process_->After(kBackoffMin, [this] {
      pause_ = 0;
      Run();
    });
    return;
  }
  Sync();
}

void SimAgent::EndLife() {
  incarnation_ = Incarnation(0);
  if (process_->Now() - life_began_ >= kShortLife) {
    backoff_ = kBackoffMin;
    return Run();
  }
  BackOff();
}

}  // namespace capstan::sim
