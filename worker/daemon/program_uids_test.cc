#include "worker/daemon/program_uids.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "common/testing/status_matchers.h"

namespace capstan::worker::program_uids_test {
namespace {

absl::StatusOr<bool> Free(uid_t) { return true; }

TEST_CASE("Program uids: a range is two numbers of users that are not root", "[worker]") {
  REQUIRE_OK_AND_ASSIGN(const UidRange range, ParseUidRange("61184-65519"));
  CHECK(range == kDynamicUids);
  REQUIRE_OK(ParseUidRange("1-1"));
  REQUIRE_OK(ParseUidRange("1-4294967293"));
  for (const char* text : {"", "off", "5", "0-5", "6-5", "1-4294967294", "-1-5", "1-5-9", "a-b"}) {
    CHECK_STATUS(ParseUidRange(text), absl::StatusCode::kInvalidArgument, "expected FIRST-LAST");
  }
}

TEST_CASE("Program uids: a job has a number until its last task has ended", "[worker]") {
  ProgramUids uids({100, 102}, 0);
  CHECK(*uids.TaskStarts("a", Free) == 100);
  CHECK(*uids.TaskStarts("a", Free) == 100);
  CHECK(*uids.TaskStarts("b", Free) == 101);
  CHECK_FALSE(uids.TaskEnds("a"));
  CHECK(uids.TaskEnds("a"));
  uids.GiveBack("a");
  // The number that has come back is the last one to be given again.
  CHECK(*uids.TaskStarts("c", Free) == 102);
  CHECK(*uids.TaskStarts("d", Free) == 100);
  CHECK_STATUS(uids.TaskStarts("e", Free), absl::StatusCode::kResourceExhausted,
               "all users from 100 to 102");
}

TEST_CASE("Program uids: a task that starts before the number is given back keeps it", "[worker]") {
  ProgramUids uids({100, 102}, 2);
  CHECK(*uids.TaskStarts("a", Free) == 102);
  CHECK(uids.TaskEnds("a"));
  CHECK(*uids.TaskStarts("a", Free) == 102);
  uids.GiveBack("a");
  CHECK(*uids.TaskStarts("b", Free) == 100);
  CHECK(uids.TaskEnds("a"));
  // Until it is given back, nobody else gets it.
  CHECK(*uids.TaskStarts("c", Free) == 101);
  CHECK_STATUS(uids.TaskStarts("d", Free), absl::StatusCode::kResourceExhausted, "");
  uids.GiveBack("unknown");
}

TEST_CASE("Program uids: a number that is in use elsewhere is passed over", "[worker]") {
  ProgramUids uids({100, 102}, 1'000'000'000'000);
  std::set<uid_t> given;
  const auto not_101 = [](uid_t uid) -> absl::StatusOr<bool> { return uid != 101; };
  for (const char* job : {"a", "b"}) given.insert(*uids.TaskStarts(job, not_101));
  CHECK(given == std::set<uid_t>{100, 102});
  CHECK_STATUS(uids.TaskStarts("c", not_101), absl::StatusCode::kResourceExhausted, "");
  ProgramUids others({100, 102}, 0);
  CHECK_STATUS(others.TaskStarts(
                   "a", [](uid_t) -> absl::StatusOr<bool> { return absl::UnavailableError("no"); }),
               absl::StatusCode::kUnavailable, "no");
}

}  // namespace
}  // namespace capstan::worker::program_uids_test
