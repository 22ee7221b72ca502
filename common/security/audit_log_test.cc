#include "common/security/audit_log.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::audit_log_test {
namespace {

using Catch::Contains;
using testing::ReadFile;
using testing::TestPath;

constexpr char kStopJob[] = "/capstan.v1.Scheduler/StopJob";
constexpr char kReadTaskLog[] = "/capstan.v1.Worker/ReadTaskLog";

// An audit log in a file of its own, at a time that stands still.
struct Fixture {
  explicit Fixture(AuditLog::Options options = {}) {
    for (const char* name : {"audit.jsonl", "audit.1.jsonl", "audit.2.jsonl", "audit.3.jsonl"}) {
      std::filesystem::remove_all(TestPath(name));
    }
    options.daemon = "scheduler";
    options.now = [this] { return now; };
    log = std::make_unique<AuditLog>(std::move(options));
    REQUIRE_OK(log->Open(path));
  }
  std::vector<std::string> Lines() const {
    return absl::StrSplit(ReadFile(path), '\n', absl::SkipEmpty());
  }

  const std::string path = TestPath("audit.jsonl");
  absl::Time now = absl::FromUnixMillis(1'700'000'000'123);
  std::unique_ptr<AuditLog> log;
};

AuditedCall CallOf(const std::string& method) {
  return {.peer = "10.0.0.7:51234", .caller = "capstan://test/user/ann", .method = method};
}

absl::Status No(const std::string& why) { return absl::PermissionDeniedError(why); }

TEST_CASE("AuditLog: a call is one line of JSON", "[security]") {
  Fixture f;
  AuditedCall call = CallOf(kStopJob);
  call.job = "lenet-1";
  f.log->Allowed(call, absl::OkStatus());
  f.log->Allowed(call, absl::NotFoundError("there is no job"));
  call.node = "w-1";
  f.log->Refused(call, CallOutcome::kGate, No("its certificate is on the deny list"));
  f.log->Refused({.peer = "10.0.0.8:1"}, CallOutcome::kHandshake, No("no certificate"));
  const std::string begin = R"({"time":"2023-11-14T22:13:20.123Z","daemon":"scheduler",)";
  const std::string ann = begin + R"("peer":"10.0.0.7:51234","identity":"capstan://test/user/ann",)"
                                  R"("method":"/capstan.v1.Scheduler/StopJob","job":"lenet-1",)";
  CHECK(f.Lines() == std::vector<std::string>{
                         ann + R"("allowed":true})",
                         ann + R"("allowed":true,"status":"NOT_FOUND"})",
                         ann + R"("node":"w-1","allowed":false,"refused_by":"gate",)"
                               R"("reason":"its certificate is on the deny list"})",
                         begin + R"("peer":"10.0.0.8:1","allowed":false,"refused_by":"handshake",)"
                                 R"("reason":"no certificate"})"});
}

TEST_CASE("AuditLog: whatever bytes a peer sends, a line stays one JSON object", "[security]") {
  Fixture f;
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  const std::string forged = "\"}\n{\"allowed\":true}";
  const std::string large(1'000'000, '"');
  for (const std::string& text : {bytes, forged, large}) {
    f.log->Refused({.peer = text, .caller = text, .method = text, .job = text, .node = text},
                   CallOutcome::kHandler, No(text));
  }
  const std::vector<std::string> lines = f.Lines();
  REQUIRE(lines.size() == 3);
  for (const std::string& line : lines) {
    google::protobuf::Struct parsed;
    REQUIRE(google::protobuf::util::JsonStringToMessage(line, &parsed).ok());
    CHECK_FALSE(parsed.fields().at("allowed").bool_value());
    CHECK(parsed.fields().count("reason") == 1);
    CHECK(line.size() < 20'000);
  }
  google::protobuf::Struct parsed;
  REQUIRE(google::protobuf::util::JsonStringToMessage(lines[1], &parsed).ok());
  CHECK(parsed.fields().at("identity").string_value() == forged);
}

TEST_CASE("AuditLog: files are rotated, bounded, and their owner's alone", "[security]") {
  Fixture f({.file_bytes_max = 1000, .old_files_max = 2});
  for (int i = 0; i < 100; ++i) {
    AuditedCall call = CallOf(kStopJob);
    call.job = absl::StrCat("job-", i);
    f.log->Allowed(call, absl::OkStatus());
  }
  CHECK(absl::StrContains(f.Lines().back(), "\"job-99\""));
  CHECK_FALSE(std::filesystem::exists(TestPath("audit.3.jsonl")));
  for (const char* name : {"audit.jsonl", "audit.1.jsonl", "audit.2.jsonl"}) {
    struct stat facts {};
    REQUIRE(stat(TestPath(name).c_str(), &facts) == 0);
    CHECK((facts.st_mode & 0777) == 0600);
    CHECK(facts.st_size <= 1000);
  }
}

// Writes one line, of about 180 bytes.
void WriteLine(AuditLog& log, const std::string& job) {
  AuditedCall call = CallOf(kStopJob);
  call.job = job;
  log.Allowed(call, absl::OkStatus());
}

TEST_CASE("AuditLog: without descriptors the old file goes on, and is rotated later",
          "[security]") {
  Fixture f({.file_bytes_max = 1000, .old_files_max = 8});
  while (std::filesystem::file_size(f.path) <= 800) WriteLine(*f.log, "before");
  struct rlimit limit {};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const struct rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  WriteLine(*f.log, std::string(300, 'x'));
  WriteLine(*f.log, "short");
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  WriteLine(*f.log, "after");
  CHECK_THAT(ReadFile(TestPath("audit.1.jsonl")),
             Contains("\"before\"") && Contains("xxx") && Contains("\"short\""));
  REQUIRE(f.Lines().size() == 1);
  CHECK_THAT(f.Lines()[0], Contains("\"after\""));
}

TEST_CASE("AuditLog: no line is lost where an older file cannot be renamed", "[security]") {
  Fixture f({.file_bytes_max = 1000, .old_files_max = 2});
  std::ofstream(TestPath("audit.1.jsonl")) << "older\n";
  std::filesystem::create_directories(TestPath("audit.2.jsonl") + "/full");
  for (int i = 0; i < 20; ++i) WriteLine(*f.log, absl::StrCat("job-", i));
  CHECK(f.Lines().size() == 20);
  CHECK(ReadFile(TestPath("audit.1.jsonl")) == "older\n");
  std::filesystem::remove_all(TestPath("audit.2.jsonl"));
  WriteLine(*f.log, "job-20");
  CHECK(f.Lines().size() == 1);
  CHECK_THAT(ReadFile(TestPath("audit.1.jsonl")), Contains("\"job-0\"") && Contains("\"job-19\""));
  CHECK(ReadFile(TestPath("audit.2.jsonl")) == "older\n");
}

TEST_CASE("AuditLog: a line that an earlier process has left torn stays by itself", "[security]") {
  Fixture f;
  f.log.reset();
  std::ofstream(f.path) << "half";
  AuditLog next({.daemon = "scheduler"});
  REQUIRE_OK(next.Open(f.path));
  WriteLine(next, "whole");
  REQUIRE(f.Lines().size() == 2);
  CHECK(f.Lines()[0] == "half");
}

TEST_CASE("AuditLog: a file of an earlier process is kept, and closed to others", "[security]") {
  Fixture f;
  f.log->Allowed(CallOf(kStopJob), absl::OkStatus());
  std::filesystem::permissions(f.path, std::filesystem::perms(0644));
  AuditLog next({.daemon = "scheduler"});
  REQUIRE_OK(next.Open(f.path));
  next.Allowed(CallOf(kStopJob), absl::OkStatus());
  CHECK(f.Lines().size() == 2);
  CHECK(std::filesystem::status(f.path).permissions() == std::filesystem::perms(0600));
}

TEST_CASE("AuditLog: a file that cannot be opened is an error", "[security]") {
  AuditLog log({.daemon = "scheduler"});
  std::ofstream(TestPath("plain")) << "a file";
  CHECK_STATUS(log.Open(TestPath("plain") + "/audit.jsonl"), absl::StatusCode::kUnavailable,
               "plain/audit.jsonl");
}

TEST_CASE("AuditLog: a flood of refused calls is cut, and what is left out is counted",
          "[security]") {
  Fixture f({.refusals = {.burst = 3, .interval = absl::Seconds(1)}});
  for (int i = 0; i < 1000; ++i) {
    f.log->Refused(CallOf(kStopJob), CallOutcome::kGate, No("no"));
    // From one host, whatever its ports.
    f.log->Refused({.peer = absl::StrCat("10.0.0.8:", i)}, CallOutcome::kHandshake, No("no"));
  }
  CHECK(f.Lines().size() == 6);
  SECTION("in the next line") {
    f.now += absl::Seconds(1);
    f.log->Refused(CallOf(kStopJob), CallOutcome::kGate, No("no"));
    CHECK_THAT(f.Lines().back(), Catch::EndsWith(R"("suppressed":997})"));
  }
  SECTION("or when it has stopped") {
    f.now += LineLimiter::kQuiet;
    f.log->Allowed(CallOf(kStopJob), absl::OkStatus());
    REQUIRE(f.Lines().size() == 9);
    CHECK_THAT(f.Lines()[6], Catch::EndsWith(R"("suppressed_of":"10.0.0.8","suppressed":997})"));
    CHECK_THAT(f.Lines()[7], Catch::Contains(R"("suppressed_of":"capstan://test/user/ann",)"));
  }
  SECTION("or when the daemon ends") {
    f.log.reset();
    CHECK(f.Lines().size() == 8);
  }
}

TEST_CASE("AuditLog: calls that change something are all there, reads are limited", "[security]") {
  Fixture f({.reads = {.burst = 2, .interval = absl::Seconds(1)}});
  for (int i = 0; i < 10; ++i) {
    f.log->Allowed(CallOf(kStopJob), absl::OkStatus());
    f.log->Allowed(CallOf(kReadTaskLog), absl::OkStatus());
  }
  CHECK(f.Lines().size() == 12);
}

TEST_CASE("AuditLog: every call is counted, by method and outcome", "[security]") {
  Fixture f;
  CHECK(f.log->Counts().empty());
  f.log->CountAllowed(kStopJob);
  for (int i = 0; i < 1000; ++i) {
    f.log->Refused(CallOf(kStopJob), CallOutcome::kGate, No("no"));
    f.log->Refused(CallOf(absl::StrCat("/made/up-", i)), CallOutcome::kGate, No("no"));
  }
  const std::vector<CallCount> counts = f.log->Counts();
  REQUIRE(counts.size() == 3);
  CHECK(counts[0].method == kStopJob);
  CHECK(counts[0].outcome == CallOutcome::kAllowed);
  CHECK(counts[0].calls == 1);
  CHECK(counts[1].method == kStopJob);
  CHECK(counts[1].outcome == CallOutcome::kGate);
  CHECK(counts[1].calls == 1000);
  CHECK(counts[2].method.empty());
  CHECK(counts[2].calls == 1000);
}

}  // namespace
}  // namespace capstan::audit_log_test
