#include "common/observability/log_format.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/time/civil_time.h"
#include "absl/time/time.h"

namespace capstan::log_format_test {
namespace {

const absl::Time kNoon =
    absl::FromCivil(absl::CivilSecond(2026, 1, 31, 12, 0, 0), absl::UTCTimeZone()) +
    absl::Milliseconds(123);

TEST_CASE("Log line: text holds time, level, role, job, iteration and message", "[log]") {
  const LogRecord record{kNoon, "INFO", "server-1", "lenet-1", 40, "applied 8 shards"};
  CHECK(FormatText(record) ==
        "2026-01-31T12:00:00.123Z INFO server-1 job=lenet-1 iteration=40 applied 8 shards");
}

TEST_CASE("Log line: JSON holds the same fields", "[log]") {
  const LogRecord record{kNoon, "INFO", "server-1", "lenet-1", 40, "applied 8 shards"};
  CHECK(FormatJson(record) ==
        R"({"time":"2026-01-31T12:00:00.123Z","level":"INFO","role":"server-1","job":"lenet-1",)"
        R"("iteration":40,"message":"applied 8 shards"})");
}

TEST_CASE("Log line: absent fields are left out", "[log]") {
  const LogRecord record{kNoon, "ERROR", "", "", -1, "no"};
  CHECK(FormatText(record) == "2026-01-31T12:00:00.123Z ERROR no");
  CHECK(FormatJson(record) ==
        R"({"time":"2026-01-31T12:00:00.123Z","level":"ERROR","message":"no"})");
}

TEST_CASE("Log line: a message with line breaks stays one line", "[log]") {
  const LogRecord record{kNoon, "INFO", "", "", -1, "a\nb\r\tc\x1b[0m\xc2\x9b"};
  CHECK(FormatText(record) == R"(2026-01-31T12:00:00.123Z INFO a\nb\r\tc\u001b[0m\u009b)");
  CHECK(FormatJson(record).find('\n') == std::string::npos);
}

}  // namespace
}  // namespace capstan::log_format_test
