#include "tests/benchmark/report.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/benchmark/statistics.h"

namespace capstan::benchmark {
namespace {

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

std::string NumbersOf(const Series& series) {
  return absl::StrFormat(
      "{\"name\": %s, \"gb_per_s\": %.6g, \"gb_per_s_min\": %.6g, \"gb_per_s_max\": %.6g, "
      "\"cpu_s_per_gb\": %.6g, \"operations\": %d, \"p50_ms\": %.6g, \"p99_ms\": %.6g}",
      Quoted(series.name), Median(series.rates),
      *std::min_element(series.rates.begin(), series.rates.end()),
      *std::max_element(series.rates.begin(), series.rates.end()), Median(series.processor),
      series.operations.size(), Percentile(series.operations, 0.5) * 1e3,
      Percentile(series.operations, 0.99) * 1e3);
}

void PrintSeries(const Series& series) {
  std::printf("  %-34s%8.3f%8.3f%8.3f%10.3f", series.name.c_str(), Median(series.rates),
              *std::min_element(series.rates.begin(), series.rates.end()),
              *std::max_element(series.rates.begin(), series.rates.end()),
              Median(series.processor));
  std::printf("%10.3f%10.3f", Percentile(series.operations, 0.5) * 1e3,
              Percentile(series.operations, 0.99) * 1e3);
}

// How often the processor time of theirs ours takes, for the same bytes.
double ProcessorRatio(const Comparison& comparison, size_t which) {
  return Median(Ratios(comparison.series[0].processor, comparison.series[which].processor));
}

bool Reached(const Comparison& comparison, size_t which) {
  return Median(Ratios(comparison.series[0].rates, comparison.series[which].rates)) >=
         comparison.goals[which];
}

}  // namespace

void AddReportFlags(Command program, ReportFlags* flags) {
  program.AddOption("--rounds", flags->turns.rounds, "Rounds, at least 5").Between(5, 1000);
  program.AddOption("--seconds", flags->turns.seconds, "Of one turn").BetweenReals(0.01, 60.0);
  program.AddFlag("--json", flags->json, "Print JSON instead of tables");
}

void Report::Add(const Comparison& comparison) {
  for (size_t i = 1; i < comparison.series.size(); ++i) reached_ &= Reached(comparison, i);
  if (json_) {
    AddJson(comparison);
  } else {
    Print(comparison);
  }
}

void Report::Add(const Bound& bound) {
  const bool reached = bound.value <= bound.goal;
  reached_ &= reached;
  if (json_) {
    objects_.push_back(absl::StrFormat(
        "{\"measure\": %s, \"unit\": %s, \"value\": %.6g, \"at_most\": %.6g, \"reached\": %s}",
        Quoted(bound.measure), Quoted(bound.unit), bound.value, bound.goal,
        reached ? "true" : "false"));
    return;
  }
  std::printf("%-60s%10.3f %s; goal at most %.3f: %s\n", bound.measure.c_str(), bound.value,
              bound.unit.c_str(), bound.goal, reached ? "reached" : "missed");
  std::fflush(stdout);
}

void Report::Print(const Comparison& comparison) const {
  std::printf("%-36s%8s%8s%8s%10s%10s%10s  medians of %d rounds\n", comparison.measure.c_str(),
              "GB/s", "min", "max", "cpu s/GB", "p50 ms", "p99 ms",
              static_cast<int>(comparison.series[0].rates.size()));
  for (size_t i = 0; i < comparison.series.size(); ++i) {
    PrintSeries(comparison.series[i]);
    if (i > 0) {
      const auto ratios = Ratios(comparison.series[0].rates, comparison.series[i].rates);
      const auto [low, high] = MedianRange(ratios);
      std::printf("  ours is %.3f (%.3f to %.3f) of it, its cpu %.2f", Median(ratios), low, high,
                  ProcessorRatio(comparison, i));
      if (comparison.goals[i] > 0) {
        std::printf("; goal %.2f: %s", comparison.goals[i],
                    Reached(comparison, i) ? "reached" : "missed");
      }
    }
    std::printf("\n");
  }
  std::printf("\n");
  std::fflush(stdout);
}

void Report::AddJson(const Comparison& comparison) {
  for (size_t i = 1; i < comparison.series.size(); ++i) {
    const auto ratios = Ratios(comparison.series[0].rates, comparison.series[i].rates);
    const auto [low, high] = MedianRange(ratios);
    std::string object = absl::StrFormat(
        "{\"measure\": %s, \"rounds\": %d, \"ours\": %s, \"baseline\": %s, \"ratio\": %.6g, "
        "\"ratio_low\": %.6g, \"ratio_high\": %.6g, \"cpu_ratio\": %.6g",
        Quoted(comparison.measure), ratios.size(), NumbersOf(comparison.series[0]),
        NumbersOf(comparison.series[i]), Median(ratios), low, high, ProcessorRatio(comparison, i));
    if (comparison.goals[i] > 0) {
      absl::StrAppendFormat(&object, ", \"goal\": %.6g, \"reached\": %s", comparison.goals[i],
                            Reached(comparison, i) ? "true" : "false");
    }
    objects_.push_back(object + "}");
  }
}

int Report::Finish(const absl::Status& status) {
  if (json_) std::printf("[%s]\n", absl::StrJoin(objects_, ",\n ").c_str());
  if (status.ok()) return reached_ ? 0 : 1;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 2;
}

}  // namespace capstan::benchmark
