#include "server/log/log_collector.h"

#include <catch2/catch.hpp>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/storage/testing/sim_disk.h"
#include "common/testing/status_matchers.h"
#include "server/log/server_log.h"
#include "server/log/testing/log_fixture.h"

namespace capstan::server::log_collector_test {
namespace {

using Strings = std::vector<std::string>;

const ShardKey kShard{TableId(0), ShardId(0)};
const Strings kBoth = {"job-1.aa-1", "job-2.aa-2"};

// A server's process; its disk and the calendar outlive it.
struct Fixture {
  Fixture() {
    Start();
    for (const auto& [job, unique_id] : {std::pair{"job-1", "aa-1"}, {"job-2", "aa-2"}}) {
      log->Identify(job, unique_id);
      log->Begin(job, kShard, Term(1),
                 std::make_shared<v1::ShardSnapshot>(testing::FixtureSnapshot(0, 1, 100)), nullptr);
    }
    RunTasks();
    Start();
  }
  void Start() {
    collector.reset();
    tasks.clear();
    ServerLog::Options options;
    options.disk = &disk;
    options.folder = "logs";
    options.execute = [this](TaskRunner::Task task) { tasks.push_back(std::move(task)); };
    options.on_logged = [](const JobId&, const std::string&, const ShardKey&, Term, Position) {};
    options.on_failed = [](const JobId&, const std::string&, const absl::Status&) {};
    log = std::make_unique<ServerLog>(std::move(options));
    REQUIRE_OK(log->Open());
    collector = std::make_unique<LogCollector>(
        log.get(),
        LogCollector::Options{.disk = &disk, .folder = "logs", .now = [this] { return now; }});
  }
  void RunTasks() {
    while (!tasks.empty()) {
      const TaskRunner::Task task = std::move(tasks.front());
      tasks.pop_front();
      task();
    }
  }
  // Lets `time` pass and collects. Returns the logs that are left on the disk.
  Strings After(absl::Duration time) {
    now += time;
    removed = collector->CollectDue();
    RunTasks();
    return disk.List("logs").value();
  }

  // Does what the server's agent does at each registration.
  void Register(const std::set<std::string>& living) {
    collector->OnLiving(living);
    log->BeginIncarnation(incarnation = incarnation.Next());
  }

  SimDisk disk{1};
  Incarnation incarnation{1};
  absl::Time now = absl::FromUnixSeconds(1'000'000);
  Strings removed;  // Unique ids of the logs that were collected last.
  std::deque<TaskRunner::Task> tasks;
  std::unique_ptr<ServerLog> log;
  std::unique_ptr<LogCollector> collector;
};

TEST_CASE(
    "LogCollector: the log of a job that ended while its server was away goes after the "
    "grace (issue 20)",
    "[server][storage]") {
  Fixture f;
  f.Register({"aa-1"});
  CHECK(f.After(absl::ZeroDuration()) == kBoth);  // Never at once.
  CHECK(f.After(LogCollector::kGrace - absl::Seconds(1)) == kBoth);
  CHECK(f.removed.empty());
  CHECK(f.After(absl::Seconds(1)) == Strings{"job-1.aa-1"});
  CHECK(f.removed == Strings{"aa-2"});
  CHECK(f.log->Stored().size() == 1);
  CHECK(f.After(2 * LogCollector::kGrace) == Strings{"job-1.aa-1"});
  CHECK(f.removed.empty());
}

TEST_CASE("LogCollector: the grace runs on while the server is away", "[server][storage]") {
  Fixture f;
  f.Register({"aa-1"});
  f.now += LogCollector::kGrace;
  f.Start();
  CHECK(f.After(absl::ZeroDuration()) == kBoth);  // The scheduler has not been asked again.
  f.Register({"aa-1"});
  CHECK(f.After(absl::ZeroDuration()) == Strings{"job-1.aa-1"});
}

TEST_CASE("LogCollector: a log whose job lives again stays, and is given the whole grace later",
          "[server][storage]") {
  Fixture f;
  f.Register({"aa-1"});
  f.now += LogCollector::kGrace - absl::Seconds(1);
  SECTION("at the next registration") { f.Register({"aa-1", "aa-2"}); }
  SECTION("by its assignment to this server") { f.log->Identify("job-2", "aa-2"); }
  CHECK(f.After(LogCollector::kGrace) == kBoth);
  f.Start();
  f.Register({"aa-1"});
  CHECK(f.After(LogCollector::kGrace - absl::Seconds(1)) == kBoth);
  CHECK(f.After(absl::Seconds(1)) == Strings{"job-1.aa-1"});
}

TEST_CASE("LogCollector: a mark of a time to come, or that says nothing, is made anew",
          "[server][storage]") {
  Fixture f;
  f.Register({"aa-1"});
  SECTION("the calendar was set back") { f.now -= absl::Hours(1000); }
  SECTION("it is empty") { REQUIRE_OK(f.disk.Create("logs/job-2.aa-2/unclaimed")); }
  f.Start();
  f.Register({"aa-1"});
  CHECK(f.After(LogCollector::kGrace - absl::Seconds(1)) == kBoth);
  CHECK(f.After(absl::Seconds(1)) == Strings{"job-1.aa-1"});
}

TEST_CASE("LogCollector: a folder without a job's unique id is nobody's to remove",
          "[server][storage]") {
  Fixture f;
  REQUIRE_OK(f.disk.MakeFolder("logs/job-3"));
  REQUIRE_OK(f.disk.Create("logs/job-3/notes"));
  REQUIRE_OK(f.disk.MakeFolder("logs/www.example.org"));
  f.Start();
  f.Register({});
  CHECK(f.After(LogCollector::kGrace) == Strings{"job-3", "www.example.org"});
}

}  // namespace
}  // namespace capstan::server::log_collector_test
