#include "scheduler/task_logs/task_logs_service.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc/grpc_server.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/testing/status_matchers.h"
#include "scheduler/testing/temporary_folder.h"

namespace capstan::scheduler::task_logs_service_test {
namespace {

struct Fixture {
  Fixture()
      : service({.folder = folder.path() + "/logs"},
                {.is_known = [](const JobId& job) { return job == "a-1"; },
                 .may_read = [](const JobId& job, const auto&) { return job == "a-1"; },
                 .may_keep = [](const JobId& job, Rank, Incarnation,
                                const auto&) { return job == "a-1"; }}) {
    REQUIRE_OK(service.Start());
    server = GrpcServer::Start({.services = {&service}}).value();
    stub = v1::TaskLogs::NewStub(MakeChannel(server->address(), ChannelKind::kControl));
  }
  ~Fixture() {
    service.Stop();
    server->Shutdown(absl::ZeroDuration());
  }
  absl::StatusOr<int64_t> Keep(const v1::KeepTaskLogRequest& request) {
    grpc::ClientContext context;
    SetDeadline(context, absl::Seconds(30));
    v1::KeepTaskLogResponse response;
    const absl::Status status = FromGrpcStatus(stub->KeepTaskLog(&context, request, &response));
    if (!status.ok()) return status;
    return response.next_offset();
  }
  absl::StatusOr<v1::ReadTaskLogResponse> Read(const std::string& job, int32_t bytes_max = 0) {
    grpc::ClientContext context;
    SetDeadline(context, absl::Seconds(30));
    v1::ReadTaskLogRequest request;
    request.set_job_id(job);
    request.set_bytes_max(bytes_max);
    v1::ReadTaskLogResponse response;
    const absl::Status status = FromGrpcStatus(stub->ReadKeptLog(&context, request, &response));
    if (!status.ok()) return status;
    return response;
  }
  static v1::KeepTaskLogRequest Good() {
    v1::KeepTaskLogRequest request;
    request.set_job_id("a-1");
    request.set_incarnation(5);
    request.set_data("hello\n");
    return request;
  }

  testing::TemporaryFolder folder;
  TaskLogsService service;
  std::unique_ptr<GrpcServer> server;
  std::unique_ptr<v1::TaskLogs::Stub> stub;
};

TEST_CASE("Task logs: what a worker hands on can be read, until the job is forgotten",
          "[scheduler]") {
  Fixture f;
  CHECK(f.Keep(f.Good()).value() == 6);
  REQUIRE_OK_AND_ASSIGN(const v1::ReadTaskLogResponse read, f.Read("a-1"));
  CHECK(read.data() == "hello\n");
  CHECK(read.incarnation() == 5);
  CHECK(read.next_offset() == 6);
  f.service.Forget("a-1");
  CHECK_STATUS(f.Read("a-1").status(), absl::StatusCode::kNotFound, "no log of a-1 task 0");
}

TEST_CASE("Task logs: bad requests are refused by field, and unknown jobs by name", "[scheduler]") {
  Fixture f;
  v1::KeepTaskLogRequest request = f.Good();
  request.set_rank(-1);
  CHECK_STATUS(f.Keep(request).status(), absl::StatusCode::kInvalidArgument, "rank: -1");
  request = f.Good();
  request.set_incarnation(0);
  CHECK_STATUS(f.Keep(request).status(), absl::StatusCode::kInvalidArgument, "incarnation: 0");
  request = f.Good();
  request.set_offset(-4);
  CHECK_STATUS(f.Keep(request).status(), absl::StatusCode::kInvalidArgument, "offset: -4");
  request = f.Good();
  request.set_data(std::string((256 << 10) + 1, 'x'));
  CHECK_STATUS(f.Keep(request).status(), absl::StatusCode::kInvalidArgument, "data: 262145");
  request = f.Good();
  request.set_job_id("../../etc");
  CHECK_STATUS(f.Keep(request).status(), absl::StatusCode::kNotFound, "\"../../etc\"");
  CHECK_STATUS(f.Read("a-1", -1).status(), absl::StatusCode::kInvalidArgument, "bytes_max: -1");
  CHECK_STATUS(f.Read("nobody").status(), absl::StatusCode::kNotFound, "nobody");
}

}  // namespace
}  // namespace capstan::scheduler::task_logs_service_test
