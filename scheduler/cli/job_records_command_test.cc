#include "scheduler/cli/job_records_command.h"

#include <catch2/catch.hpp>

#include "common/testing/status_matchers.h"

namespace capstan::cli::job_records_command_test {
namespace {

TEST_CASE("AddLabels: sets and removes, and refuses what is neither", "[cli]") {
  v1::AnnotateJobRequest request;
  REQUIRE_OK(AddLabels({"team=ads", "empty=", "eq=a=b", "old-", "a-b-"}, request));
  CHECK(request.set_labels().at("team") == "ads");
  CHECK(request.set_labels().at("empty").empty());
  CHECK(request.set_labels().at("eq") == "a=b");
  REQUIRE(request.remove_labels_size() == 2);
  CHECK(request.remove_labels(0) == "old");
  CHECK(request.remove_labels(1) == "a-b");
  for (const char* wrong : {"team", "=ads", "-", ""}) {
    INFO(wrong);
    CHECK_STATUS(AddLabels({wrong}, request), absl::StatusCode::kInvalidArgument,
                 "expected KEY=VALUE, or KEY- to remove a label");
  }
}

}  // namespace
}  // namespace capstan::cli::job_records_command_test
