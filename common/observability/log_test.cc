#include "common/observability/log.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace capstan::log_test {
namespace {

std::string TestFile(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  return std::string(folder != nullptr ? folder : "/tmp") + "/" + name;
}

std::string Contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST_CASE("Log: lines reach the file at once, with the role of that moment", "[log]") {
  const std::string path = TestFile("text.log");
  std::filesystem::remove(path);
  InitLogging({.role = "worker", .file = path});
  LogInfo({.job = "lenet-1", .iteration = 40}, "applied {} shards", 8);
  SetLogRole("worker-2");
  LogWarning({}, "{} {{}}", "braces");
  LogDebug({}, "not shown");
  const std::string text = Contents(path);
  CHECK_THAT(text, Catch::Contains(" INFO worker job=lenet-1 iteration=40 applied 8 shards\n"));
  CHECK_THAT(text, Catch::Contains(" WARN worker-2 braces {}\n"));
  CHECK(text.find("not shown") == std::string::npos);
}

TEST_CASE("Log: JSON lines, and an existing file is appended to", "[log]") {
  const std::string path = TestFile("json.log");
  std::ofstream(path) << "before\n";
  InitLogging({.role = "worker-1", .file = path, .json = true, .level = LogLevel::kDebug});
  LogDebug({}, "say \"{}\"", "hi");
  const std::string text = Contents(path);
  CHECK_THAT(text, Catch::StartsWith("before\n{\"time\":"));
  CHECK_THAT(text, Catch::Contains(R"("level":"DEBUG","role":"worker-1","message":"say \"hi\""})"));
}

TEST_CASE("Log: a file that cannot be opened leaves a logger that works", "[log]") {
  InitLogging({.role = "worker-1", .file = "/proc/none/such.log"});
  LogInfo({}, "still here");
  SUCCEED();
}

}  // namespace
}  // namespace capstan::log_test
