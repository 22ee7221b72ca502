#include "common/report/update_log.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::update_log_test {
namespace {

const std::vector<std::string> kNames = {"parameters", "ads"};

TableUpdate Example() {
  return {.iteration = 400,
          .epoch = 2,
          .slot = 3,
          .positions = {.begin = 48, .end = 64},
          .table = 0,
          .parameters = 0x9f86d081884c7d65,
          .gradient = 0x0026b46b68ffc68f,
          .keys = 0,
          .rank = 1};
}

TableUpdate OfRows() {
  TableUpdate update = Example();
  update.table = 1;
  update.keys = 0x1;
  return update;
}

TEST_CASE("Update log: what is appended is read, with the tables by their names",
          "[common][report]") {
  const std::string path = testing::TestPath("appended.csv");
  {
    REQUIRE_OK_AND_ASSIGN(const auto log, UpdateLog::Open(path, "c1-ab"));
    REQUIRE_OK(log->Append({Example(), OfRows()}, kNames));
  }
  CHECK(testing::ReadFile(path) ==
        "# capstan updates 1 of c1-ab\n"
        "iteration,epoch,slot,begin,end,table,parameters,gradient,keys,rank\n"
        "400,2,3,48,64,parameters,9f86d081884c7d65,0026b46b68ffc68f,,1\n"
        "400,2,3,48,64,ads,9f86d081884c7d65,0026b46b68ffc68f,0000000000000001,1\n");
  REQUIRE_OK_AND_ASSIGN(const LoggedUpdates logged, ReadUpdateLog(path));
  CHECK(logged.table_names == kNames);
  CHECK(logged.updates == std::vector{Example(), OfRows()});
  CHECK(logged.torn_lines == 0);
}

TEST_CASE("Update log: a job goes on in its own file, and replaces another job's",
          "[common][report]") {
  const std::string path = testing::TestPath("replaced.csv");
  for (const char* job : {"c1-ab", "c1-cd", "c1-cd"}) {
    REQUIRE_OK_AND_ASSIGN(const auto log, UpdateLog::Open(path, job));
    REQUIRE_OK(log->Append({Example()}, kNames));
  }
  CHECK_THAT(testing::ReadFile(path), Catch::StartsWith("# capstan updates 1 of c1-cd\n"));
  REQUIRE_OK_AND_ASSIGN(const LoggedUpdates logged, ReadUpdateLog(path));
  CHECK(logged.updates == std::vector{Example(), Example()});
}

TEST_CASE("Update log: torn lines are left out and counted", "[common][report]") {
  const std::string path = testing::TestPath("torn.csv");
  const std::string whole = "400,2,3,48,64,parameters,9f86d081884c7d65,0026b46b68ffc68f,,1";
  std::ofstream(path) << "# capstan updates 1 of c1-ab\ncolumns\n"
                      << whole << "\n"
                      << whole.substr(0, 40) << "\n"
                      << whole.substr(0, 55) << "\n"
                      << whole << "\n400,2";
  REQUIRE_OK_AND_ASSIGN(const LoggedUpdates logged, ReadUpdateLog(path));
  CHECK(logged.updates == std::vector{Example(), Example()});
  CHECK(logged.torn_lines == 3);
}

TEST_CASE("Update log: another file, and none, are errors by name", "[common][report]") {
  const std::string other = testing::TestPath("other.csv");
  std::ofstream(other) << "a,b\n1,2\n";
  CHECK_STATUS(ReadUpdateLog(other), absl::StatusCode::kInvalidArgument, other);
  const std::string empty = testing::TestPath("empty.csv");
  std::ofstream(empty).close();
  CHECK_STATUS(ReadUpdateLog(empty), absl::StatusCode::kInvalidArgument, "updates.csv");
  const std::string missing = testing::TestPath("missing.csv");
  CHECK_STATUS(ReadUpdateLog(missing), absl::StatusCode::kNotFound, missing);
}

}  // namespace
}  // namespace capstan::update_log_test
