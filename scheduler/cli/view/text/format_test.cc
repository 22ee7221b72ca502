#include "scheduler/cli/view/text/format.h"

#include <catch2/catch.hpp>
#include <limits>

namespace capstan::cli::format_test {
namespace {

TEST_CASE("Format: counts are grouped by thousands", "[cli]") {
  CHECK(FormatCount(0) == "0");
  CHECK(FormatCount(999) == "999");
  CHECK(FormatCount(1000) == "1,000");
  CHECK(FormatCount(1234567) == "1,234,567");
  CHECK(FormatCount(-1000) == "-1,000");
  CHECK(FormatCount(-100) == "-100");
}

TEST_CASE("Format: shares, rates and bytes", "[cli]") {
  CHECK(FormatShare(0.8512) == "85.12 %");
  CHECK(FormatLoss(0.41234) == "0.4123");
  CHECK(FormatRate(8412.4) == "8,412 samples/s");
  CHECK(FormatRate(std::numeric_limits<double>::quiet_NaN()) == "- samples/s");
  CHECK(FormatRate(std::numeric_limits<double>::infinity()) == "- samples/s");
  CHECK(FormatBytes(512) == "512 B");
  CHECK(FormatBytes(1536) == "1.5 KiB");
  CHECK(FormatBytes(int64_t{3} << 30) == "3.0 GiB");
}

TEST_CASE("Format: a time that is not known is a dash", "[cli]") { CHECK(TimeText(0) == "-"); }

TEST_CASE("Format: enumerations become the words users know, unknown ones stay visible", "[cli]") {
  CHECK(StateName(v1::RUNNING) == "RUNNING");
  CHECK(ReasonName(v1::Failure::DIVERGED) == "Diverged");
  CHECK(ReasonName(v1::Failure::OUT_OF_MEMORY) == "OutOfMemory");
  CHECK(ReasonName(v1::Failure::USER_ERROR) == "UserError");
  CHECK(ReasonName(static_cast<v1::Failure::Reason>(77)) == "Reason77");
  CHECK(RoleName(v1::SERVER) == "server");
  CHECK(HasEnded(v1::STOPPED));
  CHECK_FALSE(HasEnded(v1::PENDING));
}

TEST_CASE("Format: JSON has every field, also those at their default", "[cli]") {
  v1::SubmitJobResponse response;
  response.set_job_id("lenet-1");
  CHECK(ToJson(response) == "{\n \"jobId\": \"lenet-1\",\n \"warnings\": []\n}\n");
  CHECK(ToJsonLine(response) == "{\"jobId\":\"lenet-1\",\"warnings\":[]}\n");
  CHECK(ToJson(v1::SubmitJobResponse()) == "{\n \"jobId\": \"\",\n \"warnings\": []\n}\n");
}

}  // namespace
}  // namespace capstan::cli::format_test
