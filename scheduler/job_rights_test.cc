// Tests what users and nodes may do with a job, through the services of a scheduler with
// credentials.
#include "scheduler/job_rights.h"

#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc/credentials.h"
#include "common/net/grpc/grpc_server.h"
#include "common/net/grpc_types/capability_metadata.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/security/capability.h"
#include "common/security/testing/test_authority.h"
#include "common/storage/posix_disk.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"
#include "proto/scheduler.grpc.pb.h"
#include "scheduler/files/job_files_service.h"
#include "scheduler/scheduler_service.h"
#include "scheduler/store/testing/memory_store.h"
#include "scheduler/task_logs/task_logs_service.h"
#include "scheduler/testing/small_job.h"
#include "scheduler/testing/temporary_folder.h"

namespace capstan::scheduler::job_rights_test {
namespace {

using Stub = v1::Scheduler::Stub;

// A caller with a certificate.
struct Peer {
  Peer(const capstan::testing::TestAuthority& authority, const std::string& address, PeerRole role,
       const std::string& name)
      : credentials(Credentials::Read(
                        authority.MakeFolder(absl::StrCat("caller-", PeerRoleName(role), "-", name),
                                             role, name))
                        .value()) {
    const auto channel = MakeChannel(address, ChannelKind::kControl, credentials.get());
    scheduler = v1::Scheduler::NewStub(channel);
    logs = v1::TaskLogs::NewStub(channel);
    files = v1::JobFiles::NewStub(channel);
  }

  std::unique_ptr<Credentials> credentials;
  std::unique_ptr<v1::Scheduler::Stub> scheduler;
  std::unique_ptr<v1::TaskLogs::Stub> logs;
  std::unique_ptr<v1::JobFiles::Stub> files;
};

template <typename AnyStub, typename Method, typename Request, typename Response>
absl::Status Ask(AnyStub& stub, Method method, const Request& request, Response* response) {
  grpc::ClientContext context;
  SetDeadline(context, absl::Seconds(60));
  return FromGrpcStatus((stub.*method)(&context, request, response));
}

// A scheduler with its three services, as its main makes them; ann and bob are users.
struct Cluster {
  Cluster() {
    options.core.lease = absl::Minutes(10);
    options.core.broken_limit = absl::Minutes(10);
    options.core.sync_interval = absl::Milliseconds(20);
    options.data_folder = folder.path();
    Start();
  }
  ~Cluster() { Stop(); }
  void Start() {
    own = Credentials::Read(authority.MakeFolder("scheduler", PeerRole::kScheduler, "")).value();
    service = SchedulerService::Open(options, &store, &clock).value();
    JobRights& rights = service->rights();
    logs = std::make_unique<TaskLogsService>(
        KeptLogs::Options{.folder = folder.path() + "/task-logs"},
        TaskLogsService::Rights{
            .is_known = [&rights](const JobId& job) { return rights.HasJob(job); },
            .may_read = [&rights](const JobId& job,
                                  const JobCaller& caller) { return rights.MayRead(job, caller); },
            .may_keep =
                [&rights](const JobId& job, Rank rank, Incarnation incarnation,
                          const JobCaller& caller) {
                  return rights.MayKeepLog({job, rank, incarnation}, caller);
                }});
    files = std::make_unique<JobFilesService>(
        &disk, &clock,
        JobFilesService::Rights{.may_write =
                                    [&rights](const std::string& path, const JobCaller& caller) {
                                      return rights.MayWriteInto(path, caller);
                                    },
                                .may_read =
                                    [&rights](const std::string& path, const JobCaller& caller) {
                                      return rights.MayReadFrom(path, caller);
                                    }});
    REQUIRE_OK(logs->Start());
    service->Start();
    files->Start();
    server = GrpcServer::Start(
                 {.services = {service.get(), files.get(), logs.get()}, .credentials = own.get()})
                 .value();
  }
  void Stop() {
    peers.clear();
    service->Stop();
    files->Stop();
    logs->Stop();
    server->Shutdown(absl::ZeroDuration());
  }
  Peer& As(PeerRole role, const std::string& name) {
    auto& peer = peers[{role, name}];
    if (peer == nullptr) peer = std::make_unique<Peer>(authority, server->address(), role, name);
    return *peer;
  }
  Peer& User(const std::string& name) { return As(PeerRole::kUser, name); }
  Peer& Admin() { return As(PeerRole::kAdmin, "root"); }

  absl::StatusOr<std::string> Submit(Peer& peer, uint64_t submission = 0,
                                     const std::string& resume = "") {
    v1::SubmitJobRequest request;
    request.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
    request.set_submission_id(submission);
    request.set_resume_job(resume);
    *request.mutable_spec() = testing::MakeSmallJob(folder.path());
    v1::SubmitJobResponse response;
    const absl::Status status = Ask(*peer.scheduler, &Stub::SubmitJob, request, &response);
    if (!status.ok()) return status;
    return response.job_id();
  }
  std::vector<std::string> JobsOf(Peer& peer) {
    v1::ListJobsResponse response;
    REQUIRE_OK(Ask(*peer.scheduler, &Stub::ListJobs, v1::ListJobsRequest(), &response));
    std::vector<std::string> jobs;
    for (const v1::JobStatus& job : response.jobs()) {
      jobs.push_back(absl::StrCat(job.job_id(), " of ", job.owner()));
    }
    return jobs;
  }
  v1::RegisterResponse Join(v1::Role role, const std::string& name) {
    v1::RegisterRequest request;
    request.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
    request.set_role(role);
    request.set_name(name);
    request.set_identity(name);
    request.set_address(name + ":1");
    request.set_task_capacity(role == v1::WORKER ? 1 : 0);
    v1::RegisterResponse response;
    Peer& peer = As(role == v1::SERVER ? PeerRole::kServer : PeerRole::kWorker, name);
    REQUIRE_OK(Ask(*peer.scheduler, &Stub::Register, request, &response));
    return response;
  }
  v1::SyncNodeResponse Sync(PeerRole role, const v1::RegisterResponse& node) {
    v1::SyncNodeRequest request;
    request.set_node_id(node.node_id());
    request.set_incarnation(node.incarnation());
    v1::SyncNodeResponse response;
    REQUIRE_OK(Ask(*As(role, node.node_id()).scheduler, &Stub::SyncNode, request, &response));
    return response;
  }

  const capstan::testing::TestAuthority authority;
  testing::TemporaryFolder folder;
  SteadyClock clock;
  PosixDisk disk;
  MemoryStore store;
  SchedulerService::Options options;
  std::unique_ptr<Credentials> own;
  std::unique_ptr<SchedulerService> service;
  std::unique_ptr<TaskLogsService> logs;
  std::unique_ptr<JobFilesService> files;
  std::unique_ptr<GrpcServer> server;
  std::map<std::pair<PeerRole, std::string>, std::unique_ptr<Peer>> peers;
};

template <typename Request>
Request Of(const std::string& job) {
  Request request;
  request.set_job_id(job);
  return request;
}

// A call about a job.
struct JobCall {
  std::string name;
  bool changes = false;
  std::function<absl::Status(Peer&, const std::string& job)> call;
};

template <typename Request, typename Response, typename Method>
JobCall SchedulerCall(const std::string& name, bool changes, Method method) {
  return {name, changes, [method](Peer& peer, const std::string& job) {
            Response response;
            return Ask(*peer.scheduler, method, Of<Request>(job), &response);
          }};
}

// All calls about a job but those that end it. AnnotateJob and the like do nothing here.
std::vector<JobCall> JobCalls(Cluster& cluster) {
  return {
      SchedulerCall<v1::GetJobRequest, v1::GetJobResponse>("GetJob", false, &Stub::GetJob),
      SchedulerCall<v1::GetTablesRequest, v1::GetTablesResponse>("GetTables", false,
                                                                 &Stub::GetTables),
      SchedulerCall<v1::OpenSnapshotRequest, v1::OpenSnapshotResponse>("OpenSnapshot", false,
                                                                       &Stub::OpenSnapshot),
      {"ReadKeptLog", false,
       [](Peer& peer, const std::string& job) {
         v1::ReadTaskLogResponse response;
         return Ask(*peer.logs, &v1::TaskLogs::Stub::ReadKeptLog, Of<v1::ReadTaskLogRequest>(job),
                    &response);
       }},
      {"SubmitJob that resumes it", false,
       [&cluster](Peer& peer, const std::string& job) {
         return cluster.Submit(peer, 0, job).status();
       }},
      SchedulerCall<v1::AnnotateJobRequest, v1::AnnotateJobResponse>("AnnotateJob", true,
                                                                     &Stub::AnnotateJob),
      SchedulerCall<v1::ExportJobRequest, v1::ExportJobResponse>("ExportJob", true,
                                                                 &Stub::ExportJob),
      SchedulerCall<v1::SaveCheckpointRequest, v1::SaveCheckpointResponse>("SaveCheckpoint", true,
                                                                           &Stub::SaveCheckpoint),
      SchedulerCall<v1::DeleteJobRequest, v1::DeleteJobResponse>("DeleteJob", true,
                                                                 &Stub::DeleteJob),
      SchedulerCall<v1::StopJobRequest, v1::StopJobResponse>("StopJob", true, &Stub::StopJob),
  };
}

// The same text for any job.
std::string Without(const std::string& job, const absl::Status& status) {
  return absl::StrReplaceAll(std::string(status.message()), {{job, "JOB"}});
}

TEST_CASE("Job rights: another user's job answers each call like an unknown one", "[security]") {
  Cluster cluster;
  Peer& ann = cluster.User("ann");
  Peer& bob = cluster.User("bob");
  REQUIRE_OK_AND_ASSIGN(const std::string job, cluster.Submit(ann));
  for (const JobCall& each : JobCalls(cluster)) {
    INFO(each.name);
    const absl::Status foreign = each.call(bob, job);
    const absl::Status unknown = each.call(bob, "nobody-9");
    CHECK(absl::IsNotFound(foreign));
    CHECK(foreign.code() == unknown.code());
    CHECK(Without(job, foreign) == Without("nobody-9", unknown));
  }
  // Nothing has happened to it, and its owner may call all of that; so may an admin.
  v1::GetJobResponse status;
  REQUIRE_OK(Ask(*ann.scheduler, &Stub::GetJob, Of<v1::GetJobRequest>(job), &status));
  CHECK(status.status().state() == v1::PENDING);
  CHECK(status.status().owner() == "user/ann");
  for (const JobCall& each : JobCalls(cluster)) {
    INFO(each.name);
    const std::string unknown = Without("nobody-9", each.call(ann, "nobody-9"));
    if (each.name == "ReadKeptLog") continue;  // There is no log.
    CHECK(Without(job, each.call(cluster.Admin(), job)) != unknown);
    CHECK(Without(job, each.call(ann, job)) != unknown);
  }
}

TEST_CASE("Job rights: a list has the caller's own jobs, an admin's has all", "[security]") {
  Cluster cluster;
  Peer& ann = cluster.User("ann");
  Peer& bob = cluster.User("bob");
  REQUIRE_OK(cluster.Submit(ann));
  REQUIRE_OK(cluster.Submit(bob));
  REQUIRE_OK(cluster.Submit(cluster.Admin()));
  using Jobs = std::vector<std::string>;
  const auto check = [&] {
    CHECK(cluster.JobsOf(cluster.User("ann")) == Jobs{"small-1 of user/ann"});
    CHECK(cluster.JobsOf(cluster.User("bob")) == Jobs{"small-2 of user/bob"});
    // The name alone is not enough.
    CHECK(cluster.JobsOf(cluster.User("root")).empty());
    CHECK(cluster.JobsOf(cluster.As(PeerRole::kAdmin, "ann")) ==
          Jobs{"small-1 of user/ann", "small-2 of user/bob", "small-3 of admin/root"});
  };
  check();
  cluster.Stop();
  cluster.store.Crash();
  cluster.Start();
  check();
}

TEST_CASE("Job rights: a reader reads all jobs", "[security]") {
  Cluster cluster;
  REQUIRE_OK_AND_ASSIGN(const std::string job, cluster.Submit(cluster.User("ann")));
  Peer& reader = cluster.As(PeerRole::kReader, "dashboard");
  v1::GetJobResponse status;
  REQUIRE_OK(Ask(*reader.scheduler, &Stub::GetJob, Of<v1::GetJobRequest>(job), &status));
  v1::GetTablesResponse tables;
  CHECK_STATUS(Ask(*reader.scheduler, &Stub::GetTables, Of<v1::GetTablesRequest>(job), &tables),
               absl::StatusCode::kFailedPrecondition, "has not started yet");
  v1::StopJobResponse stopped;
  CHECK_STATUS(Ask(*reader.scheduler, &Stub::StopJob, Of<v1::StopJobRequest>(job), &stopped),
               absl::StatusCode::kPermissionDenied, "called by capstan://test/reader/dashboard");
}

TEST_CASE("Job rights: a submission is repeated by the user who made it", "[security]") {
  Cluster cluster;
  REQUIRE_OK_AND_ASSIGN(const std::string job, cluster.Submit(cluster.User("ann"), 77));
  CHECK(cluster.Submit(cluster.User("ann"), 77).value() == job);
  REQUIRE_OK_AND_ASSIGN(const std::string other, cluster.Submit(cluster.User("bob"), 77));
  CHECK(other != job);
  CHECK(cluster.Submit(cluster.User("bob"), 77).value() == other);
}

TEST_CASE("Job rights: a job without an owner is for admins", "[security]") {
  Cluster cluster;
  REQUIRE_OK_AND_ASSIGN(const std::string job, cluster.Submit(cluster.User("ann")));
  AdmittedJob old;
  old.plan.id = job;  // As a Capstan without owners has stored it.
  const AdmittedJobs jobs = {{job, std::make_shared<const AdmittedJob>(old)}};
  const auto caller = [](PeerRole role) {
    return JobCaller(Identity{.cluster = "test", .role = role, .name = "ann"});
  };
  CHECK(absl::IsNotFound(CheckMayRead(jobs, job, caller(PeerRole::kUser))));
  CHECK(absl::IsNotFound(CheckMayChange(jobs, job, caller(PeerRole::kUser))));
  REQUIRE_OK(CheckMayRead(jobs, job, caller(PeerRole::kAdmin)));
  REQUIRE_OK(CheckMayChange(jobs, job, caller(PeerRole::kAdmin)));
  REQUIRE_OK(CheckMayChange(jobs, job, std::nullopt));
}

// A job of ann's on server-1 and worker-1; server-2 and worker-2 have joined too late for it.
struct RunningJob : Cluster {
  RunningJob() {
    const v1::RegisterResponse first = Join(v1::SERVER, "server-1");
    const v1::RegisterResponse worker = Join(v1::WORKER, "worker-1");
    job = Submit(User("ann")).value();
    tables = Sync(PeerRole::kServer, first);
    tasks = Sync(PeerRole::kWorker, worker);
    REQUIRE(tasks.tasks_size() == 1);
    Join(v1::SERVER, "server-2");
    second_worker = Join(v1::WORKER, "worker-2");
  }
  absl::Status SyncTask(const std::string& worker) {
    v1::SyncTaskRequest request = Of<v1::SyncTaskRequest>(job);
    request.set_incarnation(tasks.tasks(0).incarnation());
    request.mutable_failure()->set_reason(v1::Failure::USER_ERROR);
    request.mutable_failure()->set_message("bad luck");
    v1::SyncTaskResponse response;
    return Ask(*As(PeerRole::kWorker, worker).scheduler, &Stub::SyncTask, request, &response);
  }
  absl::Status KeepLog(const std::string& worker, uint64_t incarnation) {
    v1::KeepTaskLogRequest request = Of<v1::KeepTaskLogRequest>(job);
    request.set_incarnation(incarnation);
    request.set_data("hello\n");
    v1::KeepTaskLogResponse response;
    return Ask(*As(PeerRole::kWorker, worker).logs, &v1::TaskLogs::Stub::KeepTaskLog, request,
               &response);
  }
  v1::JobState State() {
    v1::GetJobResponse status;
    REQUIRE_OK(Ask(*Admin().scheduler, &Stub::GetJob, Of<v1::GetJobRequest>(job), &status));
    return status.status().state();
  }

  std::string job;
  v1::SyncNodeResponse tables, tasks;
  v1::RegisterResponse second_worker;
};

TEST_CASE("Job rights: the owner goes to servers and workers", "[security]") {
  RunningJob cluster;
  REQUIRE(cluster.tables.tables_size() == 1);
  CHECK(cluster.tables.tables(0).owner() == "user/ann");
  CHECK(cluster.tasks.tasks(0).owner() == "user/ann");
}

TEST_CASE("Job rights: only the worker of a task reports for it", "[security]") {
  RunningJob cluster;
  CHECK_STATUS(cluster.SyncTask("worker-2"), absl::StatusCode::kPermissionDenied,
               "runs on the worker \"worker-1\", but the caller's certificate names "
               "capstan://test/worker/worker-2");
  CHECK(cluster.State() == v1::RUNNING);
  REQUIRE_OK(cluster.SyncTask("worker-1"));
  CHECK(cluster.State() == v1::FAILED);
}

TEST_CASE("Job rights: a task opens snapshots of its own job alone", "[security]") {
  RunningJob cluster;
  REQUIRE_OK_AND_ASSIGN(const std::string other, cluster.Submit(cluster.User("bob")));
  const v1::SyncNodeResponse others = cluster.Sync(PeerRole::kWorker, cluster.second_worker);
  REQUIRE(others.tasks_size() == 1);
  const auto open = [&](const std::string& worker, const std::string& job,
                        const std::string& capability) {
    grpc::ClientContext context;
    SetDeadline(context, absl::Seconds(60));
    AddCapability(capability, &context);
    v1::OpenSnapshotResponse response;
    return FromGrpcStatus(
        cluster.As(PeerRole::kWorker, worker)
            .scheduler->OpenSnapshot(&context, Of<v1::OpenSnapshotRequest>(job), &response));
  };
  constexpr absl::StatusCode kDenied = absl::StatusCode::kPermissionDenied;
  const std::string& own = cluster.tasks.tasks(0).capability();
  std::string forged = own;
  forged.back() = static_cast<char>(forged.back() ^ 1);
  CHECK_STATUS(open("worker-1", cluster.job, ""), kDenied, "no capability, expected the job's");
  CHECK_STATUS(open("worker-1", cluster.job, forged), kDenied, "is forged");
  CHECK_STATUS(open("worker-1", other, own), kDenied,
               absl::StrCat("is for the job \"", cluster.job, "\", expected \"", other, "\""));
  CHECK_STATUS(open("worker-1", other, others.tasks(0).capability()), kDenied,
               "runs on the worker \"worker-2\", but the caller's certificate names "
               "capstan://test/worker/worker-1");
  CHECK(absl::IsNotFound(open("worker-1", "nobody-9", own)));
  REQUIRE_OK(open("worker-1", cluster.job, own));
}

TEST_CASE("Job rights: a capability that has expired lets no task read", "[security]") {
  AdmittedJob job;
  job.plan.id = "small-1";
  REQUIRE_OK_AND_ASSIGN(job.capability_key, CapabilityKey::Draw());
  const JobCaller worker = Identity{.cluster = "test", .role = PeerRole::kWorker, .name = "w-1"};
  const absl::Time now = absl::Now();
  const std::string capability =
      MintCapability(*job.capability_key, {.job = job.plan.id,
                                           .scope = Capability::Scope::kTask,
                                           .rank = Rank(0),
                                           .incarnation = Incarnation(1),
                                           .expiry = now + absl::Hours(1)});
  const JobTable jobs;
  REQUIRE_OK(CheckReadsForTask(job, jobs, worker, capability, now));
  CHECK_STATUS(CheckReadsForTask(job, jobs, worker, capability, now + absl::Hours(2)),
               absl::StatusCode::kPermissionDenied, "expired at ");
  job.capability_key.reset();
  CHECK_STATUS(CheckReadsForTask(job, jobs, worker, capability, now),
               absl::StatusCode::kPermissionDenied, "the job \"small-1\" has no capability key");
}

TEST_CASE("Job rights: only the worker of a task keeps its log", "[security]") {
  RunningJob cluster;
  const uint64_t incarnation = cluster.tasks.tasks(0).incarnation();
  CHECK_STATUS(cluster.KeepLog("worker-2", incarnation), absl::StatusCode::kPermissionDenied,
               "does not run on the caller, capstan://test/worker/worker-2");
  CHECK_STATUS(cluster.KeepLog("worker-2", incarnation - 1), absl::StatusCode::kPermissionDenied,
               "does not run on the caller");
  CHECK_STATUS(cluster.KeepLog("worker-1", incarnation + 1), absl::StatusCode::kPermissionDenied,
               "does not run on the caller");
  REQUIRE_OK(cluster.KeepLog("worker-1", incarnation));
  REQUIRE_OK(cluster.KeepLog("worker-1", incarnation - 1));  // It may have been there before.

  const auto read = [&](Peer& peer) {
    v1::ReadTaskLogResponse response;
    const absl::Status status = Ask(*peer.logs, &v1::TaskLogs::Stub::ReadKeptLog,
                                    Of<v1::ReadTaskLogRequest>(cluster.job), &response);
    return status.ok() ? response.data() : std::string(status.message());
  };
  CHECK(read(cluster.User("ann")) == "hello\n");
  CHECK(read(cluster.Admin()) == "hello\n");
  CHECK(read(cluster.User("bob")) == "the scheduler keeps no log of small-1 task 0");

  // Once the job has ended, its worker still sends the rest.
  REQUIRE_OK(cluster.SyncTask("worker-1"));
  REQUIRE_OK(cluster.KeepLog("worker-1", incarnation));
  CHECK(absl::IsPermissionDenied(cluster.KeepLog("worker-2", incarnation)));
}

TEST_CASE("Job rights: only nodes of a job read its checkpoints and write its files",
          "[security]") {
  RunningJob cluster;
  const std::string folder =
      absl::StrCat(cluster.folder.path(), "/jobs/", cluster.job, "/checkpoints/checkpoint-1");
  const auto read = [&](PeerRole role, const std::string& node) {
    v1::ReadPieceRequest request;
    request.set_folder(folder);
    request.set_file("MANIFEST");
    request.set_bytes_max(100);
    v1::ReadPieceResponse response;
    return Ask(*cluster.As(role, node).files, &v1::JobFiles::Stub::ReadPiece, request, &response);
  };
  const std::string refused = "no job may go back to a checkpoint in ";
  CHECK_STATUS(read(PeerRole::kServer, "server-2"), absl::StatusCode::kPermissionDenied,
               absl::StrCat(refused, folder, " now; for the caller, ",
                            "capstan://test/server/server-2, only jobs count that run on it"));
  CHECK_STATUS(read(PeerRole::kWorker, "worker-2"), absl::StatusCode::kPermissionDenied, refused);
  // There is no checkpoint, but these may look.
  CHECK(absl::IsNotFound(read(PeerRole::kServer, "server-1")));
  CHECK(absl::IsNotFound(read(PeerRole::kWorker, "worker-1")));
}

}  // namespace
}  // namespace capstan::scheduler::job_rights_test
