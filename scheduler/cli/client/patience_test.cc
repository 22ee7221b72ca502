#include "scheduler/cli/client/patience.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace capstan::cli::patience_test {
namespace {

struct Said {
  Patience::Options Options(absl::Duration limit) {
    return {.limit = limit,
            .interval = absl::ZeroDuration(),
            .meanwhile = "the job goes on",
            .say = [this](const std::string& line) { lines.push_back(line); }};
  }
  std::vector<std::string> lines;
};

TEST_CASE("Patience: asks again while nobody answers, and says so once", "[cli]") {
  Said said;
  Patience patience("host:7070", said.Options(absl::Minutes(1)));
  CHECK_FALSE(patience.AsksAgain(absl::OkStatus()));
  CHECK(said.lines.empty());
  CHECK(patience.AsksAgain(absl::UnavailableError("refused")));
  CHECK(patience.AsksAgain(absl::DeadlineExceededError("slow")));
  REQUIRE(said.lines.size() == 1);
  CHECK(said.lines[0] ==
        "the scheduler at host:7070 does not answer; the job goes on, trying for 1 min 0 s");
  CHECK_FALSE(patience.AsksAgain(absl::OkStatus()));
  REQUIRE(said.lines.size() == 2);
  CHECK(said.lines[1] == "the scheduler answers again");
  CHECK(patience.AsksAgain(absl::UnavailableError("refused")));
  CHECK(said.lines.size() == 3);
}

TEST_CASE("Patience: an error that is an answer is one", "[cli]") {
  Said said;
  Patience patience("host:7070", said.Options(absl::Minutes(1)));
  CHECK_FALSE(patience.AsksAgain(absl::NotFoundError("no such job")));
  CHECK(patience.AsksAgain(absl::UnavailableError("refused")));
  CHECK_FALSE(patience.AsksAgain(absl::FailedPreconditionError("it has ended")));
  CHECK(said.lines.back() == "the scheduler answers again");
}

TEST_CASE("Patience: is over after its limit", "[cli]") {
  Said said;
  Patience patience("host:7070", said.Options(absl::ZeroDuration()));
  CHECK_FALSE(patience.AsksAgain(absl::UnavailableError("refused")));
  CHECK(said.lines.size() == 1);
}

}  // namespace
}  // namespace capstan::cli::patience_test
