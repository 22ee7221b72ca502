#include "common/report/metrics_log.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

#include "common/testing/status_matchers.h"

namespace capstan::metrics_log_test {
namespace {

// A folder of this test's own, removed with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    const char* const base = std::getenv("TEST_TMPDIR");
    std::string pattern = std::string(base != nullptr ? base : "/tmp") + "/metrics_log_XXXXXX";
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string Contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

MetricsRecord Example() {
  return {.job = "lenet-1",
          .phase = MetricsRecord::Phase::kTrain,
          .unix_ms = 1700000000123,
          .epoch = 2,
          .iteration = 400,
          .loss = 0.25,
          .accuracy = 0.9125,
          .samples_per_second = 1234.5,
          .staleness = {7, 0, 3}};
}

TEST_CASE("MetricsLog: a record is one line of JSON with every field", "[common][report]") {
  CHECK(ToJsonLine(Example()) ==
        "{\"job\":\"lenet-1\",\"phase\":\"train\",\"unix_ms\":1700000000123,\"epoch\":2,"
        "\"iteration\":400,\"loss\":0.25,\"accuracy\":0.9125,\"samples_per_second\":1234.5,"
        "\"staleness\":[7,0,3]}\n");
}

TEST_CASE("MetricsLog: only figures that there are have a key", "[common][report]") {
  MetricsRecord record = Example();
  record.auc = 0.75;
  CHECK_THAT(ToJsonLine(record),
             Catch::Contains("\"accuracy\":0.9125,\"auc\":0.75,\"samples_per_second\""));
  record.auc = std::numeric_limits<double>::quiet_NaN();
  CHECK_THAT(ToJsonLine(record), Catch::Contains(",\"auc\":null,"));
  record.accuracy = record.auc = std::nullopt;
  record.rmse = 1.5;
  CHECK_THAT(ToJsonLine(record),
             Catch::Contains("\"loss\":0.25,\"rmse\":1.5,\"samples_per_second\""));
}

TEST_CASE("MetricsLog: rows that workers had kept are told where they keep any",
          "[common][report]") {
  MetricsRecord record = Example();
  record.rows_pulled = 12;
  CHECK_THAT(ToJsonLine(record),
             Catch::EndsWith("[7,0,3],\"rows_cached\":0,\"rows_pulled\":12}\n"));
}

TEST_CASE("MetricsLog: what JSON cannot say is null, and text is escaped", "[common][report]") {
  MetricsRecord record = Example();
  record.job = "a\"b\\c\nd";
  record.phase = MetricsRecord::Phase::kTest;
  record.loss = std::numeric_limits<double>::quiet_NaN();
  record.samples_per_second = -std::numeric_limits<double>::infinity();
  record.staleness.clear();
  const std::string line = ToJsonLine(record);
  CHECK_THAT(line, Catch::StartsWith("{\"job\":\"a\\\"b\\\\c\\nd\",\"phase\":\"test\""));
  CHECK_THAT(line, Catch::Contains("\"loss\":null,"));
  CHECK_THAT(line, Catch::Contains("\"samples_per_second\":null,\"staleness\":[]}"));
}

TEST_CASE("MetricsLog: a line can be read as soon as Append returns", "[common][report]") {
  const TemporaryFolder folder;
  const std::string path = folder.File("metrics.jsonl");
  REQUIRE_OK_AND_ASSIGN(const auto log, MetricsLog::Open(path));
  CHECK(Contents(path).empty());
  const std::string line = ToJsonLine(Example());
  REQUIRE_OK(log->Append(Example()));
  CHECK(Contents(path) == line);
  REQUIRE_OK(log->Append(Example()));
  CHECK(Contents(path) == line + line);
}

}  // namespace
}  // namespace capstan::metrics_log_test
