// Tests the logs that servers register with, and the records that servers receive.
#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "common/testing/status_matchers.h"
#include "scheduler/codec/node_codec.h"
#include "scheduler/store/job_record.h"

namespace capstan::scheduler::kept_logs_codec_test {
namespace {

v1::RegisterRequest Registration() {
  v1::RegisterRequest request;
  v1::KeptLog& log = *request.add_logs();
  log.set_job_id("job-1");
  log.set_unique_id("0af-9");
  log.set_record("where it stands");
  return request;
}

TEST_CASE("Kept logs codec: what cannot be is refused", "[scheduler]") {
  REQUIRE_OK(CheckKeptLogs(v1::RegisterRequest()));
  v1::RegisterRequest request = Registration();
  REQUIRE_OK(CheckKeptLogs(request));
  const auto refused = [&](const std::string& why) {
    CHECK_STATUS(CheckKeptLogs(request), absl::StatusCode::kInvalidArgument, why);
  };
  SECTION("an id that could name another folder") {
    request.mutable_logs(0)->set_unique_id("../x");
    refused("unique_id \"../x\"");
  }
  SECTION("no id") {
    request.mutable_logs(0)->clear_unique_id();
    refused("expected 1 to 64 characters");
  }
  SECTION("a long id") {
    request.mutable_logs(0)->set_unique_id(std::string(65, 'a'));
    refused("expected 1 to 64 characters");
  }
  SECTION("a large record") {
    request.mutable_logs(0)->set_record(std::string(kJobRecordBytesMax + 1, 'x'));
    refused("a record of 1048577");
  }
  SECTION("too many") {
    for (int i = 0; i < 1000; ++i) *request.add_logs() = request.logs(0);
    refused("logs: 1001, expected at most 1000");
  }
}

TEST_CASE("Kept logs codec: a server is sent the record of a job that has one", "[scheduler]") {
  auto job = std::make_shared<AdmittedJob>();
  job->plan.id = "job-1";
  auto routing = std::make_shared<Routing>();
  routing->job = "job-1";
  NodeReply reply;
  reply.tables.push_back({.routing = routing, .membership = {}});
  const AdmittedJobs jobs = {{"job-1", job}};
  const JobRecords records = {{"job-1", std::make_shared<const std::string>("as it stands")}};
  const auto record = [&](const JobRecords& all) {
    v1::SyncNodeResponse response;
    EncodeNodeReply(reply, jobs, all, response);
    return response.tables(0).record();
  };
  CHECK(record(records).empty());
  reply.tables[0].record = 3;
  CHECK(record(records) == "as it stands");
  CHECK(record({}).empty());  // No record is available, as if it were too large.
}

TEST_CASE("Kept logs codec: the highest version is reported where a log was read", "[scheduler]") {
  v1::SyncNodeRequest request;
  v1::TableState& table = *request.add_tables();
  CHECK_FALSE(DecodeNodeReport(request)->tables[0].version_max.has_value());
  table.set_version_max(7);
  CHECK(DecodeNodeReport(request)->tables[0].version_max == Version(7));
}

}  // namespace
}  // namespace capstan::scheduler::kept_logs_codec_test
