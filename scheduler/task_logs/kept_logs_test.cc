#include "scheduler/task_logs/kept_logs.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "common/testing/status_matchers.h"
#include "scheduler/testing/temporary_folder.h"

namespace capstan::scheduler::kept_logs_test {
namespace {

const Rank kRank{3};
const Incarnation kIncarnation{7};

struct Fixture {
  Fixture() { Open(); }
  void Open() {
    logs = std::make_unique<KeptLogs>(options);
    REQUIRE_OK(logs->Open([](const JobId& job) { return job != "gone-9"; }));
  }
  int64_t Keep(int64_t offset, const std::string& data, const JobId& job = "a-1",
               Incarnation incarnation = kIncarnation) {
    REQUIRE_OK_AND_ASSIGN(const int64_t end, logs->Keep(job, kRank, incarnation, offset, data));
    return end;
  }
  // Reads the whole stored log in parts of at most `part` bytes, and checks the size of each part.
  std::string All(const JobId& job = "a-1", Incarnation incarnation = kIncarnation,
                  int64_t part = 1000) {
    std::string all;
    for (int64_t offset = 0;;) {
      REQUIRE_OK_AND_ASSIGN(const KeptLogs::Part read,
                            logs->Read(job, kRank, incarnation, offset, part));
      CHECK(static_cast<int64_t>(read.data.size()) <= part);
      if (read.data.empty()) return all;
      all += read.data;
      offset = read.next_offset;
    }
  }
  testing::TemporaryFolder folder;
  KeptLogs::Options options{.folder = folder.path() + "/logs"};
  std::unique_ptr<KeptLogs> logs;
};

TEST_CASE("KeptLogs: parts follow each other, a repeated one changes nothing", "[scheduler]") {
  Fixture f;
  CHECK(f.Keep(0, "") == 0);
  CHECK(f.Keep(0, "one\n") == 4);
  CHECK(f.Keep(0, "one\n") == 4);
  CHECK(f.Keep(2, "e\ntwo\n") == 8);
  CHECK(f.Keep(0, "") == 8);
  CHECK(f.All() == "one\ntwo\n");
  CHECK(f.All("a-1", kIncarnation, 3) == "one\ntwo\n");
  CHECK(f.logs->bytes() == 8);
  f.Open();  // The next scheduler.
  CHECK(f.Keep(8, "three\n") == 14);
  CHECK(f.All() == "one\ntwo\nthree\n");
}

TEST_CASE("KeptLogs: what is missed is left out, and passed over by readers", "[scheduler]") {
  Fixture f;
  f.Keep(0, "begin\n");
  CHECK(f.Keep(1000, "end\n") == 1004);
  CHECK(f.All() == "begin\nend\n");
  REQUIRE_OK_AND_ASSIGN(const auto part, f.logs->Read("a-1", kRank, kIncarnation, 500, 100));
  CHECK(part.data == "end\n");
  CHECK(part.next_offset == 1004);
  REQUIRE_OK_AND_ASSIGN(const auto tail, f.logs->Read("a-1", kRank, kIncarnation, -2, 100));
  CHECK(tail.data == "d\n");
  REQUIRE_OK_AND_ASSIGN(const auto beyond, f.logs->Read("a-1", kRank, kIncarnation, 5000, 100));
  CHECK(beyond.data.empty());
  CHECK(beyond.next_offset == 1004);
}

TEST_CASE("KeptLogs: at least the last bytes of a rank are kept, and not many more",
          "[scheduler]") {
  Fixture f;
  std::string whole;
  const std::string piece(100'000, 'x');
  for (int i = 0; i < 40; ++i) {
    const std::string data = std::to_string(i) + piece;
    f.Keep(static_cast<int64_t>(whole.size()), data);
    whole += data;
  }
  const std::string kept = f.All("a-1", kIncarnation, 1 << 20);
  CHECK(kept.size() >= size_t{1} << 20);
  CHECK(kept.size() < size_t{2} << 20);
  CHECK(whole.substr(whole.size() - kept.size()) == kept);
  CHECK(f.logs->bytes() == static_cast<int64_t>(kept.size()));
  // Logs of later incarnations displace those of earlier ones.
  for (int i = 0; i < 20; ++i) f.Keep(i * 100'000, piece, "a-1", Incarnation(8));
  CHECK_STATUS(f.logs->Read("a-1", kRank, kIncarnation, 0, 10), absl::StatusCode::kNotFound,
               "a-1 task 3");
  REQUIRE_OK_AND_ASSIGN(const auto newest, f.logs->Read("a-1", kRank, Incarnation(0), 0, 10));
  CHECK(newest.incarnation == Incarnation(8));
}

TEST_CASE("KeptLogs: the logs of the job that wrote longest ago make room for others",
          "[scheduler]") {
  Fixture f;
  f.options.bytes_max = 100;
  f.Open();
  f.Keep(0, std::string(40, 'a'), "a-1");
  f.Keep(0, std::string(40, 'b'), "b-2");
  f.Keep(40, "a", "a-1");
  f.Keep(0, std::string(30, 'c'), "c-3");
  CHECK_STATUS(f.logs->Read("b-2", kRank, kIncarnation, 0, 10), absl::StatusCode::kNotFound, "b-2");
  CHECK(f.All("a-1").size() == 41);
  CHECK(f.All("c-3").size() == 30);
  CHECK(f.logs->bytes() == 71);
  CHECK_STATUS(f.logs->Keep("a-1", kRank, kIncarnation, 41, std::string(60, 'a')).status(),
               absl::StatusCode::kResourceExhausted, "a-1 alone");
}

TEST_CASE("KeptLogs: unknown and forgotten jobs leave nothing, foreign files are let be",
          "[scheduler]") {
  Fixture f;
  f.Keep(0, "x", "gone-9");
  f.Keep(0, "x", "a-1");
  f.Keep(0, "x", "b-2");
  std::ofstream(f.options.folder + "/note.txt") << "mine";
  std::filesystem::create_directories(f.options.folder + "/photos/1999");
  std::ofstream(f.options.folder + "/photos/beach.jpg") << "mine";
  f.Open();
  CHECK_FALSE(std::filesystem::exists(f.options.folder + "/gone-9"));
  CHECK(f.logs->bytes() == 2);
  f.logs->Remove("a-1");
  f.logs->Remove("a-1");
  CHECK_FALSE(std::filesystem::exists(f.options.folder + "/a-1"));
  CHECK(f.All("b-2") == "x");
  CHECK(f.logs->bytes() == 1);
  CHECK(std::filesystem::exists(f.options.folder + "/note.txt"));
  CHECK(std::filesystem::exists(f.options.folder + "/photos/1999"));
  CHECK(std::filesystem::exists(f.options.folder + "/photos/beach.jpg"));
}

}  // namespace
}  // namespace capstan::scheduler::kept_logs_test
