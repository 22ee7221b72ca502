#include "tests/simulation/shells/sim_agent.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/net/node/agent_timing.h"
#include "tests/simulation/network/methods.h"

namespace capstan::sim {
namespace {

constexpr absl::Duration kConnectionLimit = absl::Hours(24);  // A real one has no deadline.

NodeRegistration::Options OptionsOf(World* world, const std::string& name,
                                    v1::RegisterRequest registration,
                                    std::function<void()> on_name_taken) {
  registration.set_name(name);
  registration.set_identity(name);  // All processes of a name have one folder, or a copy of it.
  return {.scheduler = "sim",
          .self = std::move(registration),
          .log =
              [world, name](LogLevel, const std::string& line) {
                world->trace.Narrate(absl::StrCat(name, ": ", line));
              },
          .on_fatal =
              [world, name, on_name_taken = std::move(on_name_taken)](const absl::Status& status) {
                if (absl::IsAlreadyExists(status) && on_name_taken) return on_name_taken();
                world->failure = absl::StrCat(name, ": ", status.ToString());
              }};
}

template <typename Response>
absl::Status Parse(absl::Status status, const std::string& answer, Response* response) {
  if (status.ok() && !response->ParseFromString(answer)) {
    status = absl::FailedPreconditionError("unreadable answer");
  }
  return status;
}

}  // namespace

SimAgent::SimAgent(World* world, Process* process, SimNetwork::EndpointId self,
                   v1::RegisterRequest registration, NodeHandler* handler,
                   std::function<void()> on_name_taken)
    : world_(world),
      process_(process),
      self_(self),
      registration_(
          OptionsOf(world, process->name(), std::move(registration), std::move(on_name_taken)),
          handler) {}

void SimAgent::Run() {
  if (registration_.registered()) return Sync();
  if (leaves_ > 0) return EndAllLeaving();
  Register();
}

void SimAgent::Do(const NodeRegistration::Next& next) {
  switch (next.kind) {
    case NodeRegistration::Next::Kind::kCall:
      return Run();
    case NodeRegistration::Next::Kind::kBackOff:
      process_->After(next.pause, [this] { Run(); });
      return;
    case NodeRegistration::Next::Kind::kPause:
      if (woken_) return Run();
      pause_ = process_->After(next.pause, [this] {
        pause_ = 0;
        Run();
      });
      return;
    case NodeRegistration::Next::Kind::kEnd:
      return;
  }
}

void SimAgent::Interrupt() {
  if (call_ != 0) {
    world_->network.Cancel(std::exchange(call_, 0));
  } else if (pause_ != 0) {
    process_->CancelTimer(std::exchange(pause_, 0));
  } else {
    return;  // The state is read anew when what is under way here is over.
  }
  process_->After(absl::ZeroDuration(), [this] { Run(); });
}

void SimAgent::Wake() {
  woken_ = true;
  if (call_ == 0 || syncs_) Interrupt();
}

void SimAgent::Leave(When when, absl::Duration limit, std::function<void(bool answered)> done) {
  const uint64_t id = ++leaves_;
  leaving_[id] = {when, std::move(done)};
  process_->After(limit, [this, id] { EndLeaving(id, /*answered=*/false); });
  woken_ = true;
  Interrupt();
}

void SimAgent::TellLeaving(uint64_t last, bool safe) {
  std::vector<uint64_t> over;
  for (const auto& [id, leaving] : leaving_) {
    if (id <= last && (safe || leaving.when == When::kTold)) over.push_back(id);
  }
  for (const uint64_t id : over) EndLeaving(id, /*answered=*/true);
}

void SimAgent::EndAllLeaving() {
  while (!leaving_.empty()) EndLeaving(leaving_.begin()->first, /*answered=*/false);
}

void SimAgent::EndLeaving(uint64_t id, bool answered) {
  auto ended = leaving_.extract(id);
  if (ended.empty()) return;
  world_->loop.After(absl::ZeroDuration(),
                     [process = process_, incarnation = process_->incarnation(), answered,
                      done = std::move(ended.mapped().done)] {
                       if (process->alive() && process->incarnation() == incarnation)
                         done(answered);
                     });
}

void SimAgent::Register() {
  woken_ = false;
  syncs_ = false;
  call_ = world_->network.Call(self_, world_->scheduler, kRegister,
                               registration_.RegisterRequest().SerializeAsString(),
                               agent_timing::kRegisterTimeout,
                               [this](const absl::Status& answered, const std::string& answer) {
                                 call_ = 0;
                                 v1::RegisterResponse response;
                                 const absl::Status status = Parse(answered, answer, &response);
                                 const NodeRegistration::Next next =
                                     registration_.OnRegistered(status, response, process_->Now());
                                 if (registration_.registered()) KeepConnection();
                                 Do(next);
                               });
}

void SimAgent::Sync() {
  woken_ = false;
  syncs_ = true;
  const uint64_t told = leaves_;
  const v1::SyncNodeRequest request = registration_.SyncRequest(told > 0);
  call_ = world_->network.Call(self_, world_->scheduler, kSyncNode, request.SerializeAsString(),
                               registration_.sync_timeout(),
                               [this, told, sent = process_->Now()](const absl::Status& answered,
                                                                    const std::string& answer) {
                                 call_ = 0;
                                 v1::SyncNodeResponse response;
                                 const absl::Status status = Parse(answered, answer, &response);
                                 const NodeRegistration::Next next = registration_.OnSynced(
                                     status, response, sent, process_->Now());
                                 if (status.ok()) KeepConnection();
                                 if (status.ok()) TellLeaving(told, response.may_stop());
                                 Do(next);
                               });
}

void SimAgent::KeepConnection() {
  if (connection_ != 0 && connected_ == registration_.incarnation()) return;
  if (connection_ != 0) world_->network.Cancel(connection_);
  connected_ = registration_.incarnation();
  v1::HoldConnectionRequest request;
  request.set_node_id(registration_.node_id());
  request.set_incarnation(connected_.value());
  connection_ = world_->network.Call(
      self_, world_->scheduler, kHoldConnection, request.SerializeAsString(), kConnectionLimit,
      [this](const absl::Status&, const std::string&) { connection_ = 0; });
}

}  // namespace capstan::sim
