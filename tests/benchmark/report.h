// Report: what a benchmark measured, as tables for people or as JSON for other programs.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_BENCHMARK_REPORT_H_
#define CAPSTAN_TESTS_BENCHMARK_REPORT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/command_line/command.h"
#include "tests/benchmark/turns.h"

namespace capstan::benchmark {

// One thing measured of us and of others, in turn.
struct Comparison {
  std::string measure;         // "push, 1 MiB".
  std::vector<Series> series;  // The first one is ours; as many rounds of each.
  std::vector<double> goals;   // Ratio to reach, a series each; 0: none. The first is 0.
};

// One number of ours that must not be larger than another one.
struct Bound {
  std::string measure;  // "lone pull of 1 KiB, p99".
  std::string unit;
  double value = 0;
  double goal = 0;
};

// Flags of every benchmark.
struct ReportFlags {
  TurnOptions turns;
  bool json = false;
};

// Adds --rounds, --seconds and --json.
void AddReportFlags(Command program, ReportFlags* flags);

class Report {
 public:
  // Tables are printed as they come, JSON at the end.
  explicit Report(bool json) : json_(json) {}

  // Prints `comparison` (or keeps it for the JSON).
  void Add(const Comparison& comparison);
  void Add(const Bound& bound);

  // Ends the report. Returns the exit code: 0 all goals are reached, 1 one is not, 2 `status` is an
  // error, which is printed.
  int Finish(const absl::Status& status);

 private:
  void Print(const Comparison& comparison) const;
  void AddJson(const Comparison& comparison);

  const bool json_;
  bool reached_ = true;
  std::vector<std::string> objects_;  // JSON, one for each series that ours is compared with.
};

}  // namespace capstan::benchmark

#endif  // CAPSTAN_TESTS_BENCHMARK_REPORT_H_
