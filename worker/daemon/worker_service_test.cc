#include "worker/daemon/worker_service.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "common/testing/status_matchers.h"

namespace capstan::worker::worker_service_test {
namespace {

// A work folder in which task 0 of lenet-1 has run twice; `running`: it still runs.
struct Fixture {
  std::string work_dir;
  bool running = false;

  Fixture() {
    const char* folder = std::getenv("TEST_TMPDIR");
    work_dir = std::string(folder != nullptr ? folder : "/tmp") + "/worker_service";
    std::filesystem::remove_all(work_dir);
    Write(1, "first incarnation\n");
    Write(2, "0123456789");
  }
  void Write(int incarnation, const std::string& text) {
    const std::string folder = work_dir + "/lenet-1/0-" + std::to_string(incarnation);
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/task.log") << text;
  }
  absl::StatusOr<v1::ReadTaskLogResponse> Read(int64_t offset, int bytes_max = 0,
                                               uint64_t incarnation = 0,
                                               const std::string& job = "lenet-1") {
    v1::ReadTaskLogRequest request;
    request.set_job_id(job);
    request.set_incarnation(incarnation);
    request.set_offset(offset);
    request.set_bytes_max(bytes_max);
    return ReadTaskLog(work_dir, request, [this](const TaskName&) { return running; });
  }
};

TEST_CASE_METHOD(Fixture, "ReadTaskLog: parts follow each other to the end", "[worker]") {
  REQUIRE_OK_AND_ASSIGN(const auto first, Read(0, 4));
  CHECK(first.data() == "0123");
  CHECK(first.next_offset() == 4);
  CHECK_FALSE(first.ended());
  CHECK(first.incarnation() == 2);
  REQUIRE_OK_AND_ASSIGN(const auto rest, Read(first.next_offset()));
  CHECK(rest.data() == "456789");
  CHECK(rest.ended());
}

TEST_CASE_METHOD(Fixture, "ReadTaskLog: a log is not ended while its task runs", "[worker]") {
  running = true;
  REQUIRE_OK_AND_ASSIGN(const auto all, Read(0));
  CHECK(all.data() == "0123456789");
  CHECK_FALSE(all.ended());
  REQUIRE_OK_AND_ASSIGN(const auto nothing_yet, Read(10));
  CHECK(nothing_yet.data().empty());
  CHECK(nothing_yet.next_offset() == 10);
}

TEST_CASE_METHOD(Fixture, "ReadTaskLog: a negative offset counts from the end", "[worker]") {
  REQUIRE_OK_AND_ASSIGN(const auto tail, Read(-3));
  CHECK(tail.data() == "789");
  CHECK(tail.next_offset() == 10);
  for (const int64_t offset : {int64_t{-11}, std::numeric_limits<int64_t>::min()}) {
    REQUIRE_OK_AND_ASSIGN(const auto all, Read(offset));
    CHECK(all.data() == "0123456789");
  }
}

TEST_CASE_METHOD(Fixture, "ReadTaskLog: an offset past the end reads nothing", "[worker]") {
  REQUIRE_OK_AND_ASSIGN(const auto past, Read(std::numeric_limits<int64_t>::max()));
  CHECK(past.data().empty());
  CHECK(past.next_offset() == 10);
  CHECK(past.ended());
}

TEST_CASE_METHOD(Fixture, "ReadTaskLog: an earlier incarnation can be asked for", "[worker]") {
  REQUIRE_OK_AND_ASSIGN(const auto first, Read(0, 0, 1));
  CHECK(first.data() == "first incarnation\n");
  CHECK(first.incarnation() == 1);
}

TEST_CASE_METHOD(Fixture, "ReadTaskLog: a task that is about to start has an empty log",
                 "[worker]") {
  running = true;
  REQUIRE_OK_AND_ASSIGN(const auto nothing, Read(0, 0, 3));
  CHECK(nothing.data().empty());
  CHECK_FALSE(nothing.ended());
}

TEST_CASE_METHOD(Fixture, "ReadTaskLog: bad requests are refused by field", "[worker]") {
  CHECK_STATUS(Read(0, -1), absl::StatusCode::kInvalidArgument, "bytes_max: -1");
  CHECK_STATUS(Read(0, (1 << 20) + 1), absl::StatusCode::kInvalidArgument, "bytes_max: 1048577");
  CHECK_STATUS(Read(0, 0, 0, "../lenet-1"), absl::StatusCode::kInvalidArgument, "job_id");
  CHECK_STATUS(Read(0, 0, 7), absl::StatusCode::kNotFound, "0-7");
  CHECK_STATUS(Read(0, 0, 0, "lenet-2"), absl::StatusCode::kNotFound, "lenet-2");
}

TEST_CASE_METHOD(Fixture, "ReadTaskLog: a link in place of the log is not followed", "[worker]") {
  const std::string log = work_dir + "/lenet-1/0-2/task.log";
  std::filesystem::remove(log);
  std::filesystem::create_symlink("/etc/passwd", log);
  CHECK_STATUS(Read(0), absl::StatusCode::kUnavailable, "symbolic links");
}

TEST_CASE_METHOD(Fixture, "CheckMayReadLog: a log of another user's job is like one that is not",
                 "[worker][security]") {
  std::ofstream(work_dir + "/lenet-1/0-2/task.textproto") << "job_id: 'lenet-1' owner: 'user/ann'";
  const auto check = [&](PeerRole role, const std::string& name, uint64_t incarnation,
                         const std::string& job = "lenet-1") {
    v1::ReadTaskLogRequest request;
    request.set_job_id(job);
    request.set_incarnation(incarnation);
    return CheckMayReadLog(work_dir, request,
                           Identity{.cluster = "prod", .role = role, .name = name});
  };
  for (const uint64_t incarnation : {0, 2}) {
    REQUIRE_OK(check(PeerRole::kUser, "ann", incarnation));
    REQUIRE_OK(check(PeerRole::kAdmin, "root", incarnation));
    const absl::Status foreign = check(PeerRole::kUser, "bob", incarnation);
    const absl::Status unknown = check(PeerRole::kUser, "bob", incarnation, "lenet-2");
    CHECK(absl::IsNotFound(foreign));
    std::string text(unknown.message());
    REQUIRE(text.find("lenet-2") != std::string::npos);
    text.replace(text.find("lenet-2"), 7, "lenet-1");
    CHECK(foreign == absl::NotFoundError(text));
  }
  // The first incarnation has left no spec.
  CHECK(absl::IsNotFound(check(PeerRole::kUser, "ann", 1)));
  REQUIRE_OK(check(PeerRole::kAdmin, "root", 1));
}

}  // namespace
}  // namespace capstan::worker::worker_service_test
