#include "tests/simulation/sim_server.h"

#include <utility>

#include "common/status/status_macros.h"
#include "tests/simulation/methods.h"

namespace capstan::sim {

SimServer::SimServer(World* world, SimNetwork::HostId host, HostClock* clock, std::string name)
    : world_(world),
      process_(std::move(name), &world->loop, clock),
      endpoint_(world->network.AddEndpoint(host, &process_)) {
  world_->network.SetHandler(endpoint_, [this](const Call& call) { Handle(call); });
  process_.set_on_kill([this] {
    world_->network.EndpointDied(endpoint_);
    agent_.reset();
    server_agent_.reset();
    jobs_.reset();
    timer_ = 0;
  });
}

void SimServer::Start() {
  process_.Start();
  jobs_ = std::make_unique<server::HeldJobs>();
  server_agent_ = std::make_unique<server::ServerAgent>(jobs_.get(), [this] {
    process_.After(absl::ZeroDuration(), [this] { agent_->Wake(); });
  });
  server_agent_->UseInline();
  v1::RegisterRequest registration;
  registration.set_role(v1::SERVER);
  registration.set_name(process_.name());
  registration.set_address(World::AddressOf(endpoint_));
  agent_ = std::make_unique<SimAgent>(&world_->network, &process_, endpoint_, world_->scheduler,
                                      registration, server_agent_.get());
  agent_->Start();
}

void SimServer::Handle(const Call& call) {
  absl::Status status = absl::UnimplementedError("no such method");
  if (call->method == kPush) status = Push(call);
  if (call->method == kPull) status = Pull(call);
  if (!status.ok()) call->Answer(status, "");
  Arm();
}

absl::Status SimServer::Push(const Call& call) {
  v1::PushRequest request;
  if (!request.ParseFromString(call->bytes)) return absl::InternalError("unreadable message");
  CAPSTAN_ASSIGN_OR_RETURN(const auto job, jobs_->Find(request.caller().job_id()));
  v1::PushResponse response;
  CAPSTAN_RETURN_IF_ERROR(job->Push(request, &response));
  world_->Tell([&](Checker& checker) {
    checker.PushAnswered(process_.name(), request, response);
  });
  call->Answer(absl::OkStatus(), response.SerializeAsString());
  return absl::OkStatus();
}

absl::Status SimServer::Pull(const Call& call) {
  auto request = std::make_shared<v1::PullRequest>();
  if (!request->ParseFromString(call->bytes)) return absl::InternalError("unreadable message");
  CAPSTAN_ASSIGN_OR_RETURN(const auto job, jobs_->Find(request->caller().job_id()));
  auto response = std::make_shared<v1::PullResponse>();
  const auto id = job->Pull(*request, process_.Now(), response.get(),
                            [this, call, request, response](const absl::Status& status) {
                              if (status.ok()) {
                                world_->Tell([&](Checker& checker) {
                                  checker.PullAnswered(process_.name(), *request, *response);
                                });
                              }
                              call->Answer(status, response->SerializeAsString());
                            });
  if (id.has_value()) {
    call->on_cancel = [job, id = *id] { job->Cancel(id); };
  }
  return absl::OkStatus();
}

void SimServer::Arm() {
  process_.CancelTimer(timer_);
  timer_ = process_.At(jobs_->Tick(process_.Now()), [this] {
    timer_ = 0;
    Arm();
  });
}

}  // namespace capstan::sim
