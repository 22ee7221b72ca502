// How fast the server's update rules are, against the memory: the STREAM triad of the same run.
//
//   optimizer_speed [--elements=83886080] [--json]
//
// Bytes count each array that a rule reads or writes once (server/optimizer/README.md), those of
// the triad likewise. Arrays are walked in shards of 4 MiB, as a server does; with two threads each
// has half of the shards. All arrays together are far larger than a last-level cache.
// Exit codes: 0 all goals are reached, 1 one is not, 2 something failed.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/command_line/command.h"
#include "common/status/status_macros.h"
#include "server/optimizer/optimizer.h"
#include "tests/benchmark/baseline/triad.h"
#include "tests/benchmark/processor_time.h"
#include "tests/benchmark/report.h"
#include "tests/benchmark/turns.h"

namespace capstan::benchmark {
namespace {

constexpr int64_t kShardElements = 1 << 20;
constexpr double kGoal = 0.9;
constexpr size_t kAlignment = 4096;

struct Flags {
  ReportFlags report;
  int64_t elements = 80 << 20;
};

struct Free {
  void operator()(float* array) const { std::free(array); }
};
using Array = std::unique_ptr<float[], Free>;

Array MakeArray(int64_t n, float value) {
  auto* const array =
      static_cast<float*>(std::aligned_alloc(kAlignment, static_cast<size_t>(n) * sizeof(float)));
  std::fill(array, array + n, value);
  return Array(array);
}

struct Arrays {
  Arrays(int64_t elements, float gradients, float states)
      : n(elements),
        weights(MakeArray(n, 0.5f)),
        gradient(MakeArray(n, gradients)),
        state{MakeArray(n, states), MakeArray(n, states)},
        sum(MakeArray(n, 0.0f)) {}
  const int64_t n;
  Array weights, gradient, state[2], sum;  // The triad writes `sum`.
};

struct Rule {
  std::string name;
  server::OptimizerConfig config;
};

std::vector<Rule> Rules() {
  using Kind = server::OptimizerKind;
  std::vector<Rule> rules = {{"SGD", {.kind = Kind::kSgd}},
                             {"momentum", {.kind = Kind::kMomentum}},
                             {"Adagrad", {.kind = Kind::kAdagrad}},
                             {"Adam", {.kind = Kind::kAdam}},
                             {"FTRL", {.kind = Kind::kFtrl, .l1 = 1e-3f, .l2 = 1e-3f}}};
  for (Rule& rule : rules) rule.config.learning_rate = 1e-4f;
  return rules;
}

// Returns the rules whose state shrinks at each update without a gradient; it became denormal once.
std::vector<Rule> RulesThatDecay() {
  std::vector<Rule> rules = Rules();
  std::erase_if(rules, [](const Rule& rule) {
    return rule.config.kind != server::OptimizerKind::kMomentum &&
           rule.config.kind != server::OptimizerKind::kAdam;
  });
  for (Rule& rule : rules) rule.name += " without gradients for long";
  return rules;
}

// Calls work(begin, end) for each shard of [0, n), from so many threads.
void ForShards(int64_t n, int threads, const std::function<void(int64_t, int64_t)>& work) {
  const int64_t shards = (n + kShardElements - 1) / kShardElements;
  const auto share = [&](int which) {
    const int64_t first = shards * which / threads, last = shards * (which + 1) / threads;
    for (int64_t shard = first; shard < last; ++shard) {
      work(shard * kShardElements, std::min(n, (shard + 1) * kShardElements));
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(share, i);
  share(0);
  for (std::thread& thread : others) thread.join();
}

// An operation is a pass over all elements.
Contestant PassesOf(const std::string& name, int64_t n, int threads, double bytes,
                    const std::function<void(int64_t, int64_t)>& work) {
  return {.name = name, .run = [=](int64_t count) -> absl::StatusOr<Turn> {
            OperationTimer timer(ProcessorSeconds);
            for (int64_t i = 0; i < count; ++i) {
              timer.Begin();
              ForShards(n, threads, work);
              timer.End(bytes * static_cast<double>(n));
            }
            return timer.Take();
          }};
}

Contestant RuleContestant(const Rule& rule, const Arrays& arrays, int threads) {
  const auto slots = static_cast<size_t>(server::StateSlots(rule.config));
  const auto update = [&arrays, slots, config = rule.config](int64_t begin, int64_t end) {
    float* const weights = arrays.weights.get() + begin;
    float* const state[] = {arrays.state[0].get() + begin, arrays.state[1].get() + begin};
    // The step only sets bias corrections, which cost the same whatever they are.
    server::Apply(config, 100, end - begin, weights, arrays.gradient.get() + begin,
                  absl::MakeConstSpan(state, slots), weights);
  };
  return PassesOf(rule.name, arrays.n, threads, 12.0 + 8.0 * static_cast<double>(slots), update);
}

std::vector<Contestant> Triads(const Arrays& arrays, int threads) {
  std::vector<Contestant> triads;
  const auto add = [&](const std::string& name, auto* triad) {
    const auto work = [&arrays, triad](int64_t begin, int64_t end) {
      triad(end - begin, arrays.weights.get() + begin, arrays.gradient.get() + begin,
            arrays.sum.get() + begin);
    };
    triads.push_back(PassesOf(name, arrays.n, threads, kTriadBytes, work));
  };
  add("STREAM triad", Triad);
  add("STREAM triad, streaming stores", StreamingTriad);
  return triads;
}

// The faster triad of this machine is what rules are compared with. Their best rounds say which it
// is, as in STREAM: a busy machine makes neither faster.
absl::StatusOr<Contestant> FasterTriad(const Arrays& arrays, int threads,
                                       const TurnOptions& turns) {
  std::vector<Contestant> triads = Triads(arrays, threads);
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<Series> series, MeasureInTurn(triads, turns));
  const auto best = [](const Series& one) {
    return *std::max_element(one.rates.begin(), one.rates.end());
  };
  return best(series[0]) > best(series[1]) ? triads[0] : triads[1];
}

absl::Status Compare(const std::vector<Rule>& rules, const Arrays& arrays, const Flags& flags,
                     Report* report) {
  for (const int threads : {1, 2}) {
    CAPSTAN_ASSIGN_OR_RETURN(const Contestant triad,
                             FasterTriad(arrays, threads, flags.report.turns));
    for (const Rule& rule : rules) {
      CAPSTAN_ASSIGN_OR_RETURN(
          std::vector<Series> series,
          MeasureInTurn({RuleContestant(rule, arrays, threads), triad}, flags.report.turns));
      const char* const suffix = threads == 1 ? " thread" : " threads";
      report->Add({.measure = absl::StrCat("optimizer ", rule.name, ", ", threads, suffix),
                   .series = std::move(series),
                   .goals = {0, kGoal}});
    }
  }
  return absl::OkStatus();
}

absl::Status CompareAll(const Flags& flags, Report* report) {
  CAPSTAN_RETURN_IF_ERROR(Compare(
      Rules(), Arrays(flags.elements, /*gradients=*/0.01f, /*states=*/0.1f), flags, report));
  return Compare(RulesThatDecay(), Arrays(flags.elements, /*gradients=*/0.0f, /*states=*/1e-40f),
                 flags, report);
}

int Main(int argc, char** argv) {
  Flags flags;
  Program program("Measures the server's update rules against the STREAM triad.");
  AddReportFlags(program, &flags.report);
  program.AddOption("--elements", flags.elements, "Of each of the five arrays; a multiple of 1024")
      .Between(1 << 20, int64_t{1} << 32);
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  flags.elements -= flags.elements % 1024;  // aligned_alloc needs a multiple.
  Report report(flags.report.json);
  return report.Finish(CompareAll(flags, &report));
}

}  // namespace
}  // namespace capstan::benchmark

int main(int argc, char** argv) { return capstan::benchmark::Main(argc, argv); }
