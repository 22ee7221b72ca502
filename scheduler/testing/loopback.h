// Loopback: a scheduler on a free port of this host, with its own data folder and store, and a
// client. Its leases are so long that no silent node dies unless the test asks for it.
//
// Thread safety: Ask, Get and Sync are thread-safe; only the test's thread calls the rest.
#ifndef CAPSTAN_SCHEDULER_TESTING_LOOPBACK_H_
#define CAPSTAN_SCHEDULER_TESTING_LOOPBACK_H_

#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc/grpc_server.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"
#include "proto/scheduler.grpc.pb.h"
#include "scheduler/scheduler_service.h"
#include "scheduler/store/testing/memory_store.h"
#include "scheduler/testing/temporary_folder.h"

namespace capstan::scheduler::testing {

struct Loopback {
  explicit Loopback(absl::Duration sync_interval = absl::Seconds(30),
                    absl::Duration broken_limit = absl::Minutes(10)) {
    options.core.lease = absl::Minutes(10);
    options.core.broken_limit = broken_limit;
    options.core.sync_interval = sync_interval;
    options.data_folder = folder.path();
    options.on_fatal = [this](const absl::Status& status) {
      fatal = status;
      ended.Notify();
    };
    Start();
  }
  ~Loopback() { Stop(); }
  void Start() {
    auto opened = SchedulerService::Open(options, &store, &clock);
    REQUIRE_OK(opened.status());
    service = *std::move(opened);
    service->Start();
    server = GrpcServer::Start({.services = {service.get()}}).value();
    stub = v1::Scheduler::NewStub(MakeChannel(server->address(), ChannelKind::kControl));
  }
  void Stop() {
    service->Stop();
    server->Shutdown(absl::ZeroDuration());
  }
  // Starts another incarnation of the scheduler on the same store.
  void Restart() {
    Stop();
    store.Crash();
    Start();
  }
  // Restarts the scheduler with `rows` in its store: none after the data folder was removed, or
  // those of a backup.
  void StartWith(const StoreRows& rows) {
    Stop();
    std::vector<StoreWrite> writes;
    const StoreRows before = store.Load().value();
    for (const auto& [key, bytes] : before) writes.push_back({key, std::nullopt});
    for (const auto& [key, bytes] : rows) writes.push_back({key, bytes});
    REQUIRE_OK(store.Write(writes));
    Start();
  }

  template <typename Method, typename Request, typename Response>
  absl::Status Ask(Method method, const Request& request, Response* response) {
    grpc::ClientContext context;
    SetDeadline(context, absl::Seconds(60));
    return FromGrpcStatus((stub.get()->*method)(&context, request, response));
  }
  v1::RegisterResponse Join(v1::Role role, const std::string& name) {
    v1::RegisterRequest request;
    request.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
    request.set_role(role);
    request.set_name(name);
    request.set_identity(name);  // A node that joins again succeeds itself.
    request.set_address((name.empty() ? "host" : name) + ":1");
    request.set_task_capacity(role == v1::WORKER ? 1 : 0);
    v1::RegisterResponse response;
    REQUIRE_OK(Ask(&v1::Scheduler::Stub::Register, request, &response));
    return response;
  }
  absl::StatusOr<std::string> Submit(const v1::JobSpec& spec, uint64_t submission_id = 0) {
    v1::SubmitJobRequest request;
    request.set_submission_id(submission_id);
    request.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
    *request.mutable_spec() = spec;
    v1::SubmitJobResponse response;
    if (absl::Status status = Ask(&v1::Scheduler::Stub::SubmitJob, request, &response);
        !status.ok()) {
      return status;
    }
    return response.job_id();
  }
  v1::JobStatus Get(const std::string& job, uint64_t after = 0, int wait_ms = 0) {
    v1::GetJobRequest request;
    request.set_job_id(job);
    request.set_after_revision(after);
    request.set_wait_limit_ms(wait_ms);
    v1::GetJobResponse response;
    // No REQUIRE, because other threads call this, too. An empty status fails their checks.
    if (!Ask(&v1::Scheduler::Stub::GetJob, request, &response).ok()) return {};
    return response.status();
  }
  absl::StatusOr<v1::SyncNodeResponse> Sync(const v1::RegisterResponse& node, uint64_t seen,
                                            const v1::SyncNodeRequest& state = {}) {
    v1::SyncNodeRequest request = state;
    request.set_node_id(node.node_id());
    request.set_incarnation(node.incarnation());
    request.set_generation_seen(seen);
    v1::SyncNodeResponse response;
    if (absl::Status status = Ask(&v1::Scheduler::Stub::SyncNode, request, &response);
        !status.ok()) {
      return status;
    }
    return response;
  }

  TemporaryFolder folder;
  SteadyClock clock;
  MemoryStore store;
  SchedulerService::Options options;
  absl::Status fatal;
  absl::Notification ended;
  std::unique_ptr<SchedulerService> service;
  std::unique_ptr<GrpcServer> server;
  std::unique_ptr<v1::Scheduler::Stub> stub;
};

}  // namespace capstan::scheduler::testing

#endif  // CAPSTAN_SCHEDULER_TESTING_LOOPBACK_H_
