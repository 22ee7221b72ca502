#include "scheduler/cli/job/job_logs.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace capstan::cli::job_logs_test {
namespace {

using Lines = std::vector<std::string>;

TEST_CASE("LineCutter: lines come once they are whole, and the last one at the end", "[cli]") {
  Lines lines;
  LineCutter cutter([&lines](const std::string& line) { lines.push_back(line); });
  cutter.Add("");
  cutter.Add("one\ntw");
  CHECK(lines == Lines{"one"});
  cutter.Add("o\n\nthree");
  CHECK(lines == Lines{"one", "two", ""});
  cutter.Finish();
  cutter.Finish();
  CHECK(lines == Lines{"one", "two", "", "three"});
}

TEST_CASE("LineCutter: a line without an end does not grow for ever", "[cli]") {
  size_t received = 0;
  LineCutter cutter([&received](const std::string& line) { received += line.size(); });
  cutter.Add(std::string(LineCutter::kLineBytesMax, 'x'));
  CHECK(received == 0);
  cutter.Add("x");
  CHECK(received == LineCutter::kLineBytesMax + 1);
}

}  // namespace
}  // namespace capstan::cli::job_logs_test
