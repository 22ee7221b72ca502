#include "tests/simulation/shells/sim_transport.h"

#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "common/net/frame/frame.h"
#include "common/net/frame/testing/whole_frame.h"
#include "common/wire/tensor_message.h"
#include "proto/parameter_server.pb.h"
#include "tests/simulation/network/methods.h"

namespace capstan::sim {
namespace {

using worker::OpKind;
using worker::Transfer;

std::string WireBytes(const PushMessage& push) { return std::string(Encode(push)); }
std::string WireBytes(const v1::PullRequest& pull) { return pull.SerializeAsString(); }

void CountOutcomes(World* world, const v1::PushResponse& pushed) {
  for (const v1::ShardPushResult& shard : pushed.shards()) {
    const bool repeated = shard.outcome() == v1::ShardPushResult::DUPLICATE;
    if (repeated) ++world->reached[Reached::kPushDuplicateAnswered];
    if (shard.outcome() == v1::ShardPushResult::LATE) ++world->reached[Reached::kPushLate];
  }
}

// One message of a task to a server, as a call on the simulated network.
struct SimTransfer final : Transfer {
  SimTransfer(World* of_world, SimNetwork::EndpointId of_task, SimNetwork::EndpointId of_server,
              OpKind of_kind)
      : world(of_world), self(of_task), server(of_server), kind(of_kind) {}

  bool Start(Request request, Done done) override {
    const std::string payload =
        std::visit([](const auto& message) { return WireBytes(message); }, request.message);
    world->network.Call(self, server, kind == OpKind::kPush ? kPush : kPull,
                        EncodeFrame({.kind = FrameKind::kRequest}, payload), request.timeout,
                        [parse = *this, done = std::move(done)](const absl::Status& status,
                                                                const std::string& answer) {
                          done(status.ok() ? parse.Parse(answer) : status);
                        });
    return true;
  }
  void Cancel() override {}  // Its answer, if one comes, is not expected any more.

  // A damaged answer ends the connection, as in DataCaller.
  absl::StatusOr<Answer> Parse(const std::string& answer) const {
    const absl::StatusOr<std::string> payload = DecodeFrame(answer);
    if (!payload.ok()) {
      ++world->reached[Reached::kDamagedFrame];
      world->network.Reset(self, server);
      return absl::UnavailableError(payload.status().message());
    }
    if (kind == OpKind::kPull) {
      absl::StatusOr<PullAnswer> pulled = DecodePullAnswer(absl::Cord(*payload));
      if (pulled.ok()) return *std::move(pulled);
    } else if (v1::PushResponse pushed; pushed.ParseFromString(*payload)) {
      CountOutcomes(world, pushed);
      return pushed;
    }
    return absl::InternalError("unreadable answer");
  }

  World* const world;
  const SimNetwork::EndpointId self;
  const SimNetwork::EndpointId server;
  const OpKind kind;
};

}  // namespace

std::shared_ptr<Transfer> SimTransport::NewTransfer(OpKind kind) {
  return std::make_shared<SimTransfer>(world_, self_, World::EndpointOf(address_), kind);
}

void SimTransport::AskRouting(const JobId& job, absl::Duration timeout, RoutingDone done) {
  v1::GetRoutingRequest request;
  request.set_job_id(job);
  world_->network.Call(
      self_, World::EndpointOf(address_), kGetRouting, request.SerializeAsString(), timeout,
      [done = std::move(done)](const absl::Status& status, const std::string& answer) {
        if (!status.ok()) return done(status);
        v1::GetRoutingResponse response;
        if (!response.ParseFromString(answer)) {
          return done(absl::InternalError("unreadable answer"));
        }
        done(response.routing());
      });
}

}  // namespace capstan::sim
