#include "scheduler/counter_file.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "common/testing/status_matchers.h"
#include "scheduler/testing/temporary_folder.h"

namespace capstan::scheduler {
namespace {

TEST_CASE("Counter file: lives and job numbers go on over restarts", "[scheduler]") {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/counters";
  {
    REQUIRE_OK_AND_ASSIGN(CounterFile counters, CounterFile::Open(path));
    CHECK(counters.life() == 1);
    CHECK(*counters.NextJob() == 1);
    CHECK(*counters.NextJob() == 2);
  }
  REQUIRE_OK_AND_ASSIGN(CounterFile counters, CounterFile::Open(path));
  CHECK(counters.life() == 2);
  CHECK(*counters.NextJob() == 3);
}

TEST_CASE("Counter file: a foreign file is refused, as is a folder that cannot be written", "[scheduler]") {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/counters";
  std::ofstream(path) << "hello";
  CHECK_STATUS(CounterFile::Open(path), absl::StatusCode::kDataLoss, path);
  CHECK_STATUS(CounterFile::Open(folder.path() + "/none/counters"), absl::StatusCode::kUnavailable,
               "/none/counters");
}

}  // namespace
}  // namespace capstan::scheduler
