#include "worker/daemon/task_files.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/testing/status_matchers.h"

namespace capstan::worker::task_files_test {
namespace {

std::string WorkDir() {
  const char* folder = std::getenv("TEST_TMPDIR");
  const std::string work_dir = std::string(folder != nullptr ? folder : "/tmp") + "/task_files";
  std::filesystem::remove_all(work_dir);
  return work_dir;
}

v1::TaskAssignment Assignment() {
  v1::TaskAssignment assignment;
  assignment.set_job_id("lenet-1");
  assignment.set_rank(2);
  assignment.set_incarnation(5);
  assignment.mutable_spec()->mutable_model()->set_zoo("lenet");
  return assignment;
}

TEST_CASE("Task files: each incarnation of a task has its own folder", "[worker]") {
  REQUIRE_OK_AND_ASSIGN(const TaskFiles files,
                        TaskFilesOf("/var/capstan", {"lenet-1", Rank(2), Incarnation(5)}));
  CHECK(files.folder == "/var/capstan/lenet-1/2-5");
  CHECK(files.spec == "/var/capstan/lenet-1/2-5/task.textproto");
  CHECK(files.log == "/var/capstan/lenet-1/2-5/task.log");
}

TEST_CASE("Task files: names that lead elsewhere are refused", "[worker]") {
  for (const std::string job :
       {"", ".", "..", "../etc", "a/b", "/etc", ".hidden", "a b", "a\nb", "ä"}) {
    CAPTURE(job);
    CHECK_STATUS(TaskFilesOf("/var/capstan", {job, Rank(0), Incarnation(1)}),
                 absl::StatusCode::kInvalidArgument, "job_id");
    CHECK_STATUS(NewestIncarnation("/var/capstan", job, Rank(0)),
                 absl::StatusCode::kInvalidArgument, "job_id");
  }
  CHECK_STATUS(TaskFilesOf("/var/capstan", {std::string(129, 'a'), Rank(0), Incarnation(1)}),
               absl::StatusCode::kInvalidArgument, "1 to 128");
  CHECK_STATUS(TaskFilesOf("/var/capstan", {"lenet-1", Rank(-1), Incarnation(1)}),
               absl::StatusCode::kInvalidArgument, "rank: -1");
  CHECK_STATUS(TaskFilesOf("/var/capstan", {"lenet-1", Rank(0), Incarnation(0)}),
               absl::StatusCode::kInvalidArgument, "incarnation: 0");
}

TEST_CASE("Task files: a spec is read back as it was written", "[worker]") {
  REQUIRE_OK_AND_ASSIGN(const TaskFiles files,
                        TaskFilesOf(WorkDir(), {"lenet-1", Rank(2), Incarnation(5)}));
  REQUIRE_OK(WriteTaskSpec(files, Assignment()));
  using std::filesystem::perms;
  CHECK(std::filesystem::status(files.spec).permissions() ==
        (perms::owner_read | perms::owner_write));
  REQUIRE_OK_AND_ASSIGN(const v1::TaskAssignment read, ReadTaskSpec(files.spec));
  CHECK(read.ShortDebugString() == Assignment().ShortDebugString());
}

TEST_CASE("Task files: a spec that is missing or malformed is named", "[worker]") {
  CHECK_STATUS(ReadTaskSpec("/proc/none/task.textproto"), absl::StatusCode::kNotFound,
               "/proc/none/task.textproto");
  const std::string work_dir = WorkDir();
  std::filesystem::create_directories(work_dir);
  std::ofstream(work_dir + "/bad") << "rank: many";
  CHECK_STATUS(ReadTaskSpec(work_dir + "/bad"), absl::StatusCode::kInvalidArgument, "/bad");
  CHECK_STATUS(WriteTaskSpec({"/proc/none", "/proc/none/spec", ""}, Assignment()),
               absl::StatusCode::kUnavailable, "/proc/none");
}

TEST_CASE("Task files: the newest incarnation is the highest number, not the last name",
          "[worker]") {
  const std::string work_dir = WorkDir();
  for (const char* name : {"2-9", "2-10", "2-x", "12-99", "3-11", "junk"}) {
    std::filesystem::create_directories(work_dir + "/lenet-1/" + name);
  }
  CHECK(NewestIncarnation(work_dir, "lenet-1", Rank(2)).value() == Incarnation(10));
  CHECK_STATUS(NewestIncarnation(work_dir, "lenet-1", Rank(0)), absl::StatusCode::kNotFound,
               "task 0 of job lenet-1");
  CHECK_STATUS(NewestIncarnation(work_dir, "lenet-9", Rank(0)), absl::StatusCode::kNotFound,
               "lenet-9");
}

// Makes a task's files, which were last written `hours` ago.
TaskFiles Leave(const std::string& work_dir, const std::string& job, uint64_t incarnation,
                int hours) {
  const TaskFiles files = TaskFilesOf(work_dir, {job, Rank(0), Incarnation(incarnation)}).value();
  REQUIRE_OK(WriteTaskSpec(files, Assignment()));
  std::ofstream(files.log) << "a line";
  std::filesystem::last_write_time(
      files.log, std::filesystem::file_time_type::clock::now() - std::chrono::hours(hours));
  return files;
}

TEST_CASE("Task files: of ended tasks the newest are kept, and running ones always", "[worker]") {
  const std::string work_dir = WorkDir();
  const TaskFiles running = Leave(work_dir, "old", 1, 90);
  const TaskFiles oldest = Leave(work_dir, "old", 2, 80);
  const TaskFiles gone = Leave(work_dir, "gone", 9, 70);
  const TaskFiles kept = Leave(work_dir, "new", 3, 60);
  const TaskFiles newest = Leave(work_dir, "new", 4, 50);
  const auto is_running = [](const TaskName& task) { return task.incarnation == Incarnation(1); };
  // Models that tasks were to send: only a running task still does.
  const std::string sends = running.folder + "/.export-0-1";
  const std::string sent_no_more = newest.folder + "/.export-0-4";
  std::filesystem::create_directories(sends);
  std::filesystem::create_directories(sent_no_more);
  CHECK(DeleteOldTasks(work_dir, 2, is_running) == 2);
  CHECK(std::filesystem::exists(running.log));
  CHECK(std::filesystem::exists(sends));
  CHECK_FALSE(std::filesystem::exists(sent_no_more));
  CHECK_FALSE(std::filesystem::exists(oldest.folder));
  CHECK_FALSE(std::filesystem::exists(work_dir + "/gone"));
  CHECK(std::filesystem::exists(kept.log));
  CHECK(std::filesystem::exists(newest.spec));
  CHECK(DeleteOldTasks(work_dir, 2, is_running) == 0);
}

TEST_CASE("Task files: what no task has left is not touched", "[worker]") {
  const std::string work_dir = WorkDir();
  const TaskFiles old = Leave(work_dir, "lenet-1", 5, 1);
  std::ofstream(old.folder + "/notes.txt") << "mine";
  for (const char* name : {"lenet-1/data", "lenet-1/1-x", "lenet-1/7-7", "photos/2026"}) {
    std::filesystem::create_directories(work_dir + "/" + name);
  }
  CHECK(DeleteOldTasks(work_dir, 0, [](const TaskName&) { return false; }) == 1);
  CHECK_FALSE(std::filesystem::exists(old.log));
  CHECK(std::filesystem::exists(old.folder + "/notes.txt"));
  for (const char* name : {"lenet-1/data", "lenet-1/1-x", "lenet-1/7-7", "photos/2026"}) {
    CHECK(std::filesystem::exists(work_dir + "/" + name));
  }
  CHECK(DeleteOldTasks("/proc/none", 0, [](const TaskName&) { return false; }) == 0);
}

}  // namespace
}  // namespace capstan::worker::task_files_test
