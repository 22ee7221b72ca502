#include "worker/client/call_history.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"

namespace capstan::worker::call_history_test {
namespace {

std::string Folder() {
  const char* scratch = std::getenv("TEST_TMPDIR");
  const std::string folder = absl::StrCat(scratch == nullptr ? "/tmp" : scratch, "/histories");
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  return folder;
}

std::string Read(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

SendMessage Message(OpKind kind) {
  SendMessage message{.message = MessageId(7), .op = OpId(1)};
  message.request = {.kind = kind, .iteration = Iteration(3), .slots = {2, 4}};
  message.shards = {{.key = {TableId(0), ShardId(1)}, .sequence = Sequence(5)},
                    {.key = {TableId(1), ShardId(0)}, .sequence = Sequence(6)}};
  return message;
}

TEST_CASE("Call history: a line for each message that leaves and each answer", "[worker][client]") {
  const std::string folder = Folder();
  ManualClock clock;
  clock.Advance(absl::Nanoseconds(10));
  REQUIRE_OK_AND_ASSIGN(const auto history,
                        CallHistory::Open(folder, "job-1", Rank(2), Incarnation(9), clock));
  history->Assigned(/*trains=*/true, Iteration(4));
  history->Begun(Message(OpKind::kPush));
  clock.Advance(absl::Nanoseconds(1));
  history->Answered(Message(OpKind::kPush), {{.version = Version(3)}, {.version = Version(4)}});
  history->Begun(Message(OpKind::kPull));
  history->Answered(Message(OpKind::kPull), {{.outcome = ShardReply::Outcome::kNotReady},
                                             {.outcome = ShardReply::Outcome::kPast}});
  // No line waits in a buffer.
  CHECK(Read(folder + "/job-1-2-9.history") ==
        "H job-1 2 9\n"
        "W 10 train 4\n"
        "B 10 7 push 3 2-4 0/1:5 1/0:6\n"
        "A 11 7 0/1:done:3 1/0:done:4\n"
        "B 11 7 pull 3 2-4 0/1:5 1/0:6\n"
        "A 11 7 0/1:not_ready:0 1/0:past:0\n");
}

TEST_CASE("Call history: there is one only where the environment names a folder",
          "[worker][client]") {
  const ManualClock clock;
  const auto of_environment = [&clock] {
    return CallHistory::OfEnvironment("job-1", Rank(0), Incarnation(1), clock);
  };
  unsetenv(CallHistory::kVariable);
  REQUIRE_OK_AND_ASSIGN(const auto none, of_environment());
  CHECK(none == nullptr);
  setenv(CallHistory::kVariable, Folder().c_str(), 1);
  REQUIRE_OK_AND_ASSIGN(const auto history, of_environment());
  CHECK(history != nullptr);
  setenv(CallHistory::kVariable, "/nowhere", 1);
  CHECK_STATUS(of_environment(), absl::StatusCode::kUnavailable, "cannot open /nowhere/job-1-0-1");
  unsetenv(CallHistory::kVariable);
}

}  // namespace
}  // namespace capstan::worker::call_history_test
