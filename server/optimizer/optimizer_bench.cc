// Measures Apply of every rule in GB/s against a STREAM triad of the same size in the same run.
//
//   bazel run -c opt //server/optimizer:optimizer_bench [-- ELEMENTS [REPEATS]]
//
// It runs on one thread. By default it uses 16 Mi elements (64 MiB an array, beyond most caches)
// and 9 repeats; the best is shown, in CPU time of the thread. "of triad" is the share of the
// triad's rate. Bytes are counted as in README.md: every array read or written counts once, so that
// the triad has 12 bytes an element.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "common/types/instruction_set.h"
#include "server/optimizer/optimizer.h"
#include "server/optimizer/update_loops.h"

namespace capstan::server {
namespace {

struct Rule {
  std::string name;
  OptimizerConfig config;
};

std::vector<Rule> Rules() {
  using Kind = OptimizerKind;
  std::vector<Rule> rules = {
      {"sgd", {.kind = Kind::kSgd}},
      {"momentum", {.kind = Kind::kMomentum}},
      {"nesterov", {.kind = Kind::kNesterov}},
      {"adagrad", {.kind = Kind::kAdagrad}},
      {"rmsprop", {.kind = Kind::kRmsProp, .momentum = 0.0f}},
      {"rmsprop, momentum", {.kind = Kind::kRmsProp, .momentum = 0.9f}},
      {"adam", {.kind = Kind::kAdam}},
      {"adamw", {.kind = Kind::kAdamW}},
      {"ftrl", {.kind = Kind::kFtrl, .l1 = 1e-3f, .l2 = 1e-3f}},
      {"amsgrad", {.kind = Kind::kAmsGrad}},
      {"adadelta", {.kind = Kind::kAdadelta, .epsilon = 1e-6f}},
      {"lion", {.kind = Kind::kLion, .beta2 = 0.99f}},
      {"moving average", {.kind = Kind::kMovingAverage, .momentum = 0.1f}},
  };
  for (Rule& rule : rules) {
    rule.config.learning_rate = 1e-4f;
    if (rule.config.kind != Kind::kFtrl) rule.config.weight_decay = 1e-4f;
    rule.config.clip_value = 1.0f;
  }
  return rules;
}

// Returns the CPU seconds of this thread: other processes on a shared machine do not count.
double Now() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Returns the least seconds of `repeats` calls, after one that warms up, as STREAM does.
double Measure(int repeats, const std::function<void(int)>& call) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= repeats; ++i) {
    const double start = Now();
    call(i);
    if (i > 0) least = std::min(least, Now() - start);
  }
  return least;
}

const char* Name(InstructionSet set) {
  switch (set) {
    case InstructionSet::kBaseline:
      return "baseline";
    case InstructionSet::kAvx2:
      return "AVX2";
    case InstructionSet::kAvx512:
      return "AVX-512";
  }
  return "";
}

struct Arrays {
  std::vector<float> w, g, s0, s1, s2;
  explicit Arrays(size_t n) : w(n, 0.5f), g(n, 0.01f), s0(n, 0.1f), s1(n, 0.1f), s2(n, 0.1f) {}
};

double Triad(int64_t n, int repeats, Arrays* arrays) {
  const double seconds = Measure(repeats, [&](int) {
    float* const a = arrays->s0.data();
    const float* const b = arrays->w.data();
    const float* const c = arrays->g.data();
    for (int64_t i = 0; i < n; ++i) a[i] = b[i] + 0.25f * c[i];
  });
  return 12.0 * static_cast<double>(n) / seconds / 1e9;
}

void Report(InstructionSet set, int64_t n, int repeats, Arrays* arrays) {
  for (const Rule& rule : Rules()) {
    const int slots = StateSlots(rule.config);
    float* const state[] = {arrays->s0.data(), arrays->s1.data(), arrays->s2.data()};
    const double seconds = Measure(repeats, [&](int step) {
      ApplyWith(set, rule.config, step, n, arrays->w.data(), arrays->g.data(),
                absl::MakeConstSpan(state, static_cast<size_t>(slots)), arrays->w.data());
    });
    // The triad is measured beside each rule, because the machine is shared.
    const double triad = Triad(n, repeats, arrays);
    const int bytes = 12 + 8 * slots;
    const double rate = bytes * static_cast<double>(n) / seconds / 1e9;
    std::printf("%-10s %-18s %6d %10.3f %10.2f %10.2f %9.2f\n", Name(set), rule.name.c_str(), bytes,
                seconds * 1e9 / static_cast<double>(n), rate, triad, rate / triad);
  }
}

}  // namespace
}  // namespace capstan::server

int main(int argc, char** argv) {
  using capstan::InstructionSet;
  const int64_t n = argc > 1 ? std::atoll(argv[1]) : int64_t{16} << 20;
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 9;
  if (n < 1 || n > int64_t{1} << 32 || repeats < 1 || repeats > 1000) {
    std::fprintf(stderr, "usage: optimizer_bench [ELEMENTS 1..2^32 [REPEATS 1..1000]]\n");
    return 2;
  }
  capstan::server::Arrays arrays(static_cast<size_t>(n));
  std::printf("%lld elements, one thread, best of %d\n", static_cast<long long>(n), repeats);
  std::printf("%-10s %-18s %6s %10s %10s %10s %9s\n", "form", "rule", "B/elem", "ns/elem", "GB/s",
              "triad GB/s", "of triad");
  for (const InstructionSet set :
       {InstructionSet::kBaseline, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (IsSupported(set)) capstan::server::Report(set, n, repeats, &arrays);
  }
  return 0;
}
