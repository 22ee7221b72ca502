// Calls of users about each other's jobs, and of nodes about jobs that do not run on them, to real
// daemons while a job trains.
#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc/credentials.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/security/testing/test_authority.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"
#include "common/wire/message_checksum.h"
#include "proto/job_files.grpc.pb.h"
#include "proto/parameter_server.grpc.pb.h"
#include "proto/scheduler.grpc.pb.h"
#include "proto/task_logs.grpc.pb.h"
#include "proto/worker.grpc.pb.h"
#include "scheduler/testing/small_job.h"
#include "tests/security/tls_daemon.h"

namespace capstan::job_owners_test {
namespace {

using testing::ReadFile;
using testing::TestAuthority;
using testing::TestPath;
using testing::TlsDaemon;

constexpr absl::Duration kPatience = absl::Seconds(60);

template <typename Stub, typename Method, typename Request, typename Response>
absl::Status Ask(const std::unique_ptr<Stub>& stub, Method method, const Request& request,
                 Response* response) {
  grpc::ClientContext context;
  SetDeadline(context, kPatience);
  return FromGrpcStatus((stub.get()->*method)(&context, request, response));
}

template <typename Request>
Request Of(const std::string& job) {
  Request request;
  request.set_job_id(job);
  return request;
}

// Two servers, each with a copy of all shards, and a worker. ann's job trains until it is stopped.
struct Cluster {
  Cluster()
      : scheduler(Start(PeerRole::kScheduler, "", "")),
        first(Start(PeerRole::kServer, "s-1", scheduler.address())),
        second(Start(PeerRole::kServer, "s-2", scheduler.address())),
        worker(Start(PeerRole::kWorker, "w-1", scheduler.address())) {
    v1::SubmitJobRequest submit;
    submit.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
    std::filesystem::create_directories(TestPath("files"));
    *submit.mutable_spec() = scheduler::testing::MakeSmallJob(TestPath("files"));
    submit.mutable_spec()->mutable_training()->set_epochs(1'000'000);
    submit.mutable_spec()->mutable_resources()->set_replicas(1);
    v1::SubmitJobResponse submitted;
    REQUIRE_OK(Ask(SchedulerAs(PeerRole::kUser, "ann"), &v1::Scheduler::Stub::SubmitJob, submit,
                   &submitted));
    job = submitted.job_id();
    AwaitIteration(10);
  }
  TlsDaemon Start(PeerRole role, const std::string& name, const std::string& address) const {
    return TlsDaemon(authority, {.role = role,
                                 .name = name,
                                 .scheduler = address,
                                 .flags = {"--allow-path=" + TestPath("files")}});
  }
  // After a change if its revision is `after`, at most a second later.
  v1::JobStatus Status(uint64_t after = 0) {
    v1::GetJobRequest request = Of<v1::GetJobRequest>(job);
    request.set_after_revision(after);
    request.set_wait_limit_ms(after == 0 ? 0 : 1000);
    v1::GetJobResponse response;
    REQUIRE_OK(Ask(SchedulerAs(PeerRole::kAdmin, "root"), &v1::Scheduler::Stub::GetJob, request,
                   &response));
    return response.status();
  }
  void AwaitIteration(int64_t iteration) {
    const absl::Time give_up = absl::Now() + kPatience;
    for (v1::JobStatus now = Status(); now.iteration() < iteration; now = Status(now.revision())) {
      INFO(now.DebugString());
      REQUIRE(absl::Now() < give_up);
    }
  }

  std::shared_ptr<grpc::Channel> ChannelTo(const TlsDaemon& daemon, PeerRole role,
                                           const std::string& name) {
    auto& own = credentials[{role, name}];
    if (own == nullptr) {
      const std::string folder = absl::StrCat("caller-", PeerRoleName(role), "-", name);
      own = Credentials::Read(authority.MakeFolder(folder, role, name)).value();
    }
    return MakeChannel(daemon.address(), ChannelKind::kControl, own.get(), daemon.peer());
  }
  std::unique_ptr<v1::Scheduler::Stub> SchedulerAs(PeerRole role, const std::string& name) {
    return v1::Scheduler::NewStub(ChannelTo(scheduler, role, name));
  }
  std::unique_ptr<v1::ParameterServer::Stub> ServerAs(PeerRole role, const std::string& name) {
    return v1::ParameterServer::NewStub(ChannelTo(first, role, name));
  }
  std::unique_ptr<v1::TaskLogs::Stub> LogsAs(PeerRole role, const std::string& name) {
    return v1::TaskLogs::NewStub(ChannelTo(scheduler, role, name));
  }
  std::unique_ptr<v1::JobFiles::Stub> FilesAs(PeerRole role, const std::string& name) {
    return v1::JobFiles::NewStub(ChannelTo(scheduler, role, name));
  }

  const TestAuthority authority;
  TlsDaemon scheduler, first, second, worker;
  std::map<std::pair<PeerRole, std::string>, std::unique_ptr<Credentials>> credentials;
  std::string job;
};

// A call about a job by a user. The job is the only thing in it that differs from call to call.
struct UserCall {
  std::string name;
  std::function<absl::Status(const std::string& user, const std::string& job)> call;
};

template <typename Request, typename Response, typename Method>
UserCall OfScheduler(Cluster& cluster, const std::string& name, Method method) {
  return {name, [&cluster, method](const std::string& user, const std::string& job) {
            Response response;
            return Ask(cluster.SchedulerAs(PeerRole::kUser, user), method, Of<Request>(job),
                       &response);
          }};
}

template <typename Request, typename Response, typename Method>
UserCall OfServer(Cluster& cluster, const std::string& name, Method method) {
  return {name, [&cluster, method](const std::string& user, const std::string& job) {
            Request request;
            if constexpr (requires { request.mutable_caller(); }) {
              request.mutable_caller()->set_job_id(job);
              request.mutable_caller()->set_rank(-1);
            } else {
              request.set_job_id(job);
            }
            Response response;
            return Ask(cluster.ServerAs(PeerRole::kUser, user), method, request, &response);
          }};
}

std::vector<UserCall> SchedulerCalls(Cluster& cluster) {
  using Stub = v1::Scheduler::Stub;
  return {
      OfScheduler<v1::GetJobRequest, v1::GetJobResponse>(cluster, "GetJob", &Stub::GetJob),
      OfScheduler<v1::GetTablesRequest, v1::GetTablesResponse>(cluster, "GetTables",
                                                               &Stub::GetTables),
      OfScheduler<v1::OpenSnapshotRequest, v1::OpenSnapshotResponse>(cluster, "OpenSnapshot",
                                                                     &Stub::OpenSnapshot),
      OfScheduler<v1::AnnotateJobRequest, v1::AnnotateJobResponse>(cluster, "AnnotateJob",
                                                                   &Stub::AnnotateJob),
      OfScheduler<v1::ExportJobRequest, v1::ExportJobResponse>(cluster, "ExportJob",
                                                               &Stub::ExportJob),
      OfScheduler<v1::SaveCheckpointRequest, v1::SaveCheckpointResponse>(cluster, "SaveCheckpoint",
                                                                         &Stub::SaveCheckpoint),
      OfScheduler<v1::DeleteJobRequest, v1::DeleteJobResponse>(cluster, "DeleteJob",
                                                               &Stub::DeleteJob),
      {"SubmitJob that resumes it",
       [&cluster](const std::string& user, const std::string& job) {
         v1::SubmitJobRequest request;
         request.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
         *request.mutable_spec() = scheduler::testing::MakeSmallJob(TestPath("files"));
         request.set_resume_job(job);
         v1::SubmitJobResponse response;
         return Ask(cluster.SchedulerAs(PeerRole::kUser, user), &Stub::SubmitJob, request,
                    &response);
       }},
      {"ReadKeptLog",
       [&cluster](const std::string& user, const std::string& job) {
         v1::ReadTaskLogResponse response;
         return Ask(cluster.LogsAs(PeerRole::kUser, user), &v1::TaskLogs::Stub::ReadKeptLog,
                    Of<v1::ReadTaskLogRequest>(job), &response);
       }},
      OfScheduler<v1::StopJobRequest, v1::StopJobResponse>(cluster, "StopJob", &Stub::StopJob),
  };
}

std::vector<UserCall> NodeCalls(Cluster& cluster) {
  using Stub = v1::ParameterServer::Stub;
  const uint64_t incarnation = cluster.Status().tasks(0).incarnation();
  const auto log = [&cluster](uint64_t of) {
    return [&cluster, of](const std::string& user, const std::string& job) {
      v1::ReadTaskLogRequest request = Of<v1::ReadTaskLogRequest>(job);
      request.set_incarnation(of);
      v1::ReadTaskLogResponse response;
      const auto stub =
          v1::Worker::NewStub(cluster.ChannelTo(cluster.worker, PeerRole::kUser, user));
      return Ask(stub, &v1::Worker::Stub::ReadTaskLog, request, &response);
    };
  };
  return {
      OfServer<v1::DescribeTablesRequest, v1::DescribeTablesResponse>(cluster, "DescribeTables",
                                                                      &Stub::DescribeTables),
      OfServer<v1::GetRoutingRequest, v1::GetRoutingResponse>(cluster, "GetRouting",
                                                              &Stub::GetRouting),
      OfServer<v1::ReadSnapshotRequest, v1::ReadSnapshotResponse>(cluster, "ReadSnapshot",
                                                                  &Stub::ReadSnapshot),
      OfServer<v1::ScanRowsRequest, v1::ScanRowsResponse>(cluster, "ScanRows", &Stub::ScanRows),
      OfServer<v1::PullRequest, v1::PullResponse>(cluster, "Pull", &Stub::Pull),
      {"ReadTaskLog", log(0)},
      {"ReadTaskLog of an incarnation", log(incarnation)},
  };
}

std::string Without(const std::string& job, const absl::Status& status) {
  return absl::StrCat(absl::StatusCodeToString(status.code()), ": ",
                      absl::StrReplaceAll(std::string(status.message()), {{job, "JOB"}}));
}

TEST_CASE("Job owners: a user finds another's job as little as one that is not there",
          "[security]") {
  Cluster cluster;
  std::vector<UserCall> calls = NodeCalls(cluster);
  for (UserCall& each : SchedulerCalls(cluster)) calls.push_back(std::move(each));
  for (const UserCall& each : calls) {
    const absl::Status foreign = each.call("bob", cluster.job);
    INFO(each.name << ": " << foreign);
    CHECK(absl::IsNotFound(foreign));
    CHECK(Without(cluster.job, foreign) == Without("nobody-9", each.call("bob", "nobody-9")));
  }
  v1::ListJobsResponse jobs;
  REQUIRE_OK(Ask(cluster.SchedulerAs(PeerRole::kUser, "bob"), &v1::Scheduler::Stub::ListJobs,
                 v1::ListJobsRequest(), &jobs));
  CHECK(jobs.jobs_size() == 0);
  v1::CloseSnapshotResponse closed;  // It has no effect, as on a job that is not there.
  REQUIRE_OK(Ask(cluster.ServerAs(PeerRole::kUser, "bob"),
                 &v1::ParameterServer::Stub::CloseSnapshot,
                 Of<v1::CloseSnapshotRequest>(cluster.job), &closed));
  const auto tables = [&](PeerRole role, const std::string& name) {
    v1::DescribeTablesResponse response;
    REQUIRE_OK(Ask(cluster.ServerAs(role, name), &v1::ParameterServer::Stub::DescribeTables,
                   v1::DescribeTablesRequest(), &response));
    return response.tables_size();
  };
  CHECK(tables(PeerRole::kUser, "bob") == 0);
  CHECK(tables(PeerRole::kUser, "ann") == 1);
  CHECK(tables(PeerRole::kMetrics, "prometheus") == 1);

  CHECK(cluster.Status().state() == v1::RUNNING);
  for (const UserCall& each : calls) {         // The last one stops it.
    if (each.name == "ReadKeptLog") continue;  // No part of the log may be kept yet.
    const absl::Status own = each.call("ann", cluster.job);
    INFO(each.name << ": " << own);
    CHECK(Without(cluster.job, own) != Without("nobody-9", each.call("ann", "nobody-9")));
  }
  CHECK(cluster.Status().state() == v1::STOPPED);
}

v1::ReplicateRequest MessageOf(const v1::RoutingTable& routing, const std::string& sender) {
  v1::ReplicateRequest message = Of<v1::ReplicateRequest>(routing.job_id());
  message.set_sender(sender);
  message.set_term(routing.shards(0).term());
  message.set_routing_generation(routing.generation());
  return message;
}

// The answer to a server with the certificate of `caller` that sends the message to `to`: the error
// of the whole call, or else the code of the message's result.
absl::StatusCode Replicate(Cluster& cluster, const TlsDaemon& to, const std::string& caller,
                           const v1::ReplicateRequest& message) {
  const auto stub = v1::ParameterServer::NewStub(cluster.ChannelTo(to, PeerRole::kServer, caller));
  v1::ReplicateBatch batch;
  *batch.add_messages() = message;
  Seal(&batch);
  v1::ReplicateBatchAnswer answer;
  const absl::Status status = Ask(stub, &v1::ParameterServer::Stub::Replicate, batch, &answer);
  if (!status.ok()) return status.code();
  return static_cast<absl::StatusCode>(answer.results(0).code());
}

absl::Status Install(Cluster& cluster, const TlsDaemon& to, const std::string& caller,
                     v1::ReplicateRequest message) {
  const auto stub = v1::ParameterServer::NewStub(cluster.ChannelTo(to, PeerRole::kServer, caller));
  message.mutable_install()->set_position(1'000'000'000);
  v1::InstallPart part;
  part.set_job_id(message.job_id());
  part.set_request(message.SerializeAsString());
  part.set_request_bytes(static_cast<int64_t>(part.request().size()));
  part.set_end(true);
  Seal(&part);
  grpc::ClientContext context;
  SetDeadline(context, kPatience);
  v1::ReplicateResponse response;
  const auto writer = stub->Install(&context, &response);
  writer->WriteLast(part, {});
  return FromGrpcStatus(writer->Finish());
}

TEST_CASE("Job owners: a server without a part in the job replicates nothing", "[security]") {
  Cluster cluster;
  v1::GetRoutingResponse routing;
  REQUIRE_OK(Ask(cluster.ServerAs(PeerRole::kUser, "ann"), &v1::ParameterServer::Stub::GetRouting,
                 Of<v1::GetRoutingRequest>(cluster.job), &routing));
  const v1::RoutingTable& table = routing.routing();
  const std::string primary = table.servers(table.shards(0).server()).node_id();
  const TlsDaemon& replica = primary == "s-1" ? cluster.second : cluster.first;
  // In its own name, and in that of the primary.
  CHECK(Replicate(cluster, replica, "s-9", MessageOf(table, "s-9")) ==
        absl::StatusCode::kPermissionDenied);
  CHECK(Replicate(cluster, replica, "s-9", MessageOf(table, primary)) ==
        absl::StatusCode::kPermissionDenied);
  CHECK_STATUS(Install(cluster, replica, "s-9", MessageOf(table, "s-9")),
               absl::StatusCode::kPermissionDenied,
               absl::StrCat("sent by \"s-9\": expected \"", primary, "\", the primary of term "));
  CHECK_STATUS(Install(cluster, replica, "s-9", MessageOf(table, primary)),
               absl::StatusCode::kPermissionDenied,
               absl::StrCat("sent in the name of the server \"", primary,
                            "\", but the caller's certificate names capstan://test/server/s-9"));
  // The replica asks nothing of itself.
  CHECK(Replicate(cluster, replica, replica.peer().name, MessageOf(table, replica.peer().name)) ==
        absl::StatusCode::kPermissionDenied);
  // The primary is admitted: it asks what the replica holds.
  CHECK(Replicate(cluster, replica, primary, MessageOf(table, primary)) == absl::StatusCode::kOk);

  cluster.AwaitIteration(cluster.Status().iteration() + 10);
}

TEST_CASE("Job owners: a node without a part in a job reads, reports, logs and writes nothing",
          "[security]") {
  Cluster cluster;
  const uint64_t incarnation = cluster.Status().tasks(0).incarnation();
  const std::string refused = "the caller, capstan://test/";
  {
    v1::SyncTaskRequest request = Of<v1::SyncTaskRequest>(cluster.job);
    request.set_incarnation(incarnation);
    request.mutable_failure()->set_reason(v1::Failure::USER_ERROR);
    v1::SyncTaskResponse response;
    CHECK_STATUS(Ask(cluster.SchedulerAs(PeerRole::kWorker, "w-9"), &v1::Scheduler::Stub::SyncTask,
                     request, &response),
                 absl::StatusCode::kPermissionDenied,
                 "runs on the worker \"w-1\", but the caller's certificate names "
                 "capstan://test/worker/w-9");
  }
  {
    v1::KeepTaskLogRequest request = Of<v1::KeepTaskLogRequest>(cluster.job);
    request.set_incarnation(incarnation);
    request.set_offset(1'000'000);
    request.set_data("forged");
    v1::KeepTaskLogResponse response;
    CHECK_STATUS(Ask(cluster.LogsAs(PeerRole::kWorker, "w-9"), &v1::TaskLogs::Stub::KeepTaskLog,
                     request, &response),
                 absl::StatusCode::kPermissionDenied, refused + "worker/w-9");
  }
  v1::OpenSnapshotResponse opened;
  CHECK_STATUS(
      Ask(cluster.SchedulerAs(PeerRole::kWorker, "w-9"), &v1::Scheduler::Stub::OpenSnapshot,
          Of<v1::OpenSnapshotRequest>(cluster.job), &opened),
      absl::StatusCode::kPermissionDenied, "no capability, expected the job's");
  const std::string folder =
      absl::StrCat(cluster.Status().output_directory(), "/checkpoints/checkpoint-1");
  for (const auto& [role, name] :
       {std::pair(PeerRole::kServer, "s-9"), std::pair(PeerRole::kWorker, "w-9")}) {
    const auto files = cluster.FilesAs(role, name);
    const auto check = [&](const absl::Status& status) {
      CHECK_STATUS(status, absl::StatusCode::kPermissionDenied,
                   absl::StrCat("; for ", refused, PeerRoleName(role), "/", name));
    };
    using Stub = v1::JobFiles::Stub;
    v1::ReadPieceRequest read;
    read.set_folder(folder);
    v1::ReadPieceResponse piece;
    check(Ask(files, &Stub::ReadPiece, read, &piece));
    v1::WritePieceRequest write;
    write.set_folder(folder);
    v1::WritePieceResponse written;
    check(Ask(files, &Stub::WritePiece, write, &written));
    v1::FinishFileRequest finish;
    finish.set_folder(folder);
    v1::FinishFileResponse finished;
    check(Ask(files, &Stub::FinishFile, finish, &finished));
    v1::MarkFolderRequest mark;
    mark.set_folder(folder);
    v1::MarkFolderResponse marked;
    check(Ask(files, &Stub::MarkFolder, mark, &marked));
  }
  // A server of the job may look for a checkpoint, though there is none yet.
  v1::ReadPieceRequest read;
  read.set_folder(folder);
  read.set_file("part");
  read.set_bytes_max(1);
  v1::ReadPieceResponse piece;
  CHECK(absl::IsNotFound(Ask(cluster.FilesAs(PeerRole::kServer, "s-1"),
                             &v1::JobFiles::Stub::ReadPiece, read, &piece)));
  CHECK(cluster.Status().state() == v1::RUNNING);
  CHECK(cluster.Status().restarts() == 0);
}

}  // namespace
}  // namespace capstan::job_owners_test
