#include "tests/simulation/run_seeds.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/simulation/network/fault.h"
#include "tests/simulation/run_seed.h"
#include "tests/simulation/world/options.h"
#include "tests/simulation/world/reached.h"

namespace capstan::sim {
namespace {

// A process's results, in memory that it shares with its parent.
struct Report {
  uint64_t running = 0;  // Index of the seed at work.
  bool done = false;
  int64_t seeds = 0;
  int64_t failures = 0;
  int64_t events = 0;
  int64_t slowest_us = 0;
  uint64_t slowest_seed = 0;
  FaultCounts faults;
  ReachedCounts reached;
};

void Add(const Report& from, Report* to) {
  to->seeds += from.seeds;
  to->failures += from.failures;
  to->events += from.events;
  if (from.slowest_us > to->slowest_us) {
    to->slowest_us = from.slowest_us;
    to->slowest_seed = from.slowest_seed;
  }
  for (size_t i = 0; i < kFaults; ++i) to->faults.injected[i] += from.faults.injected[i];
  for (size_t i = 0; i < kReachedCount; ++i) to->reached.times[i] += from.reached.times[i];
}

void PrintReplay(uint64_t seed) {
  std::printf("  replay: bazel run //tests/simulation:sim -- --seed=%llu\n",
              static_cast<unsigned long long>(seed));
  std::fflush(stdout);
}

// Runs every jobs-th seed from the one of index report->running on.
void RunShare(const SeedRange& range, Report* report) {
  for (uint64_t i = report->running; i < range.count; i += static_cast<uint64_t>(range.jobs)) {
    const uint64_t seed = range.first + i;
    report->running = i;
    const absl::Time begin = absl::Now();
    const SeedResult result = RunSeed(DrawOptions(seed), /*verbose=*/false);
    const Report one{.seeds = 1,
                     .failures = result.failure.empty() ? 0 : 1,
                     .events = result.events,
                     .slowest_us = absl::ToInt64Microseconds(absl::Now() - begin),
                     .slowest_seed = seed,
                     .faults = result.faults,
                     .reached = result.reached};
    Add(one, report);
    if (result.failure.empty()) continue;
    std::printf("seed %llu FAILED: %s\n", static_cast<unsigned long long>(seed),
                result.failure.c_str());
    PrintReplay(seed);
  }
  report->done = true;
}

pid_t StartShare(const SeedRange& range, Report* report) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child != 0) return child;
  RunShare(range, report);
  std::fflush(stdout);
  _Exit(0);
}

Report RunForked(const SeedRange& range) {
  const size_t bytes = sizeof(Report) * static_cast<size_t>(range.jobs);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Report total;
  if (memory == MAP_FAILED) {
    RunShare({.first = range.first, .count = range.count, .jobs = 1}, &total);
    return total;
  }
  auto* reports = static_cast<Report*>(memory);
  std::vector<pid_t> children;
  for (int job = 0; job < range.jobs; ++job) {
    Report* report = new (reports + job) Report();
    report->running = static_cast<uint64_t>(job);
    children.push_back(StartShare(range, report));
  }
  for (pid_t ended = wait(nullptr); ended > 0; ended = wait(nullptr)) {
    const auto child = std::find(children.begin(), children.end(), ended);
    if (child == children.end()) continue;
    Report& report = reports[child - children.begin()];
    if (report.done) continue;
    ++total.failures;
    const uint64_t seed = range.first + report.running;
    std::printf("seed %llu CRASHED\n", static_cast<unsigned long long>(seed));
    PrintReplay(seed);
    report.running += static_cast<uint64_t>(range.jobs);
    *child = StartShare(range, &report);
  }
  for (int job = 0; job < range.jobs; ++job) Add(reports[job], &total);
  munmap(memory, bytes);
  return total;
}

}  // namespace

int RunSeeds(const SeedRange& range) {
  const absl::Time begin = absl::Now();
  const Report total = RunForked(range);
  int zeros = 0;
  int missing = 0;
  std::printf("faults injected:\n");
  for (size_t i = 0; i < kFaults; ++i) {
    const absl::string_view name = FaultName(static_cast<Fault>(i));
    std::printf("%12lld  %.*s\n", static_cast<long long>(total.faults.injected[i]),
                static_cast<int>(name.size()), name.data());
    zeros += total.faults.injected[i] == 0;
  }
  std::printf("reached:\n");
  for (size_t i = 0; i < kReachedCount; ++i) {
    const absl::string_view name = ReachedName(static_cast<Reached>(i));
    std::printf("%12lld  %.*s\n", static_cast<long long>(total.reached.times[i]),
                static_cast<int>(name.size()), name.data());
    if (total.reached.times[i] > 0) continue;
    ++zeros;
    const auto reached = static_cast<Reached>(i);
    missing += std::find(range.needed.begin(), range.needed.end(), reached) != range.needed.end();
  }
  const absl::Duration took = absl::Now() - begin;
  std::printf(
      "%lld seeds, %lld failures, %d counts are zero; %s, %.1f ms a seed and core, %lld events; "
      "slowest seed %llu: %.0f ms\n",
      static_cast<long long>(total.seeds), static_cast<long long>(total.failures), zeros,
      absl::FormatDuration(took).c_str(),
      absl::ToDoubleMilliseconds(took) * range.jobs /
          static_cast<double>(std::max<int64_t>(1, total.seeds)),
      static_cast<long long>(total.events), static_cast<unsigned long long>(total.slowest_seed),
      static_cast<double>(total.slowest_us) / 1000);
  return total.failures == 0 && (range.complete ? zeros : missing) == 0 ? 0 : 1;
}

}  // namespace capstan::sim
