// A server's memory: at 1 GiB of parameters, and while it works at full load.
//
//   server_memory --server=server/capstan-server [--soak-seconds=600]
//
// 1. One worker pushes to and pulls from 1 GiB of fp32 (SGD: no state; momentum: as much again)
//    until every value has been updated; resident memory against parameters plus state.
// 2. The same with 64 tensors of 1 MiB for so long: the slope of resident memory over the last
//    three quarters, and the open files at their begin and end.
// Exit codes: 0 all goals are reached, 1 one is not, 2 something failed.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/command_line/command.h"
#include "common/process/keep_memory.h"
#include "common/process/lock_order.h"
#include "common/status/status_macros.h"
#include "tests/benchmark/contender.h"
#include "tests/benchmark/processor_time.h"
#include "tests/benchmark/scratch_folder.h"

namespace capstan::benchmark {
namespace {

constexpr double kRatioGoal = 1.15;
constexpr double kSlopeGoal = 1.0;  // MiB a minute.
constexpr double kMebibyte = 1 << 20;
constexpr int kIterations = 4;  // Iterations of the first part: each updates everything.

struct Flags {
  std::string server;
  double soak_seconds = 600;
};

std::shared_ptr<const worker::TableArrays> GradientOf(const Layout& layout) {
  auto gradient = std::make_shared<worker::TableArrays>();
  gradient->emplace_back(static_cast<size_t>(layout.count()), 0.25f);
  return gradient;
}

const char* Verdict(bool reached) { return reached ? "reached" : "missed"; }

// Resident memory after all values were pushed to and pulled from.
absl::Status MeasureSize(const Flags& flags, Rule rule, const std::string& folder, bool* reached) {
  const Layout layout{.name = "1 GiB", .tensors = 256, .elements = 1 << 20};
  Contender ours({.name = "Capstan", .server = flags.server, .rule = rule}, layout, Mode::kAsp);
  const bool state = rule == Rule::kMomentum;
  CAPSTAN_RETURN_IF_ERROR(
      ours.Start(absl::StrCat(folder, state ? "/momentum" : "/sgd"), GradientOf(layout)));
  CAPSTAN_RETURN_IF_ERROR(ours.Run(kIterations));
  CAPSTAN_RETURN_IF_ERROR(ours.CheckRecorded());
  const double held = layout.mebibytes() * (state ? 2 : 1);
  const double resident = static_cast<double>(ours.server(0).ResidentBytes()) / kMebibyte;
  const bool good = resident <= kRatioGoal * held;
  std::printf(
      "1 GiB of parameters, %-8s  resident %.0f MiB, ratio %.3f of what it holds; goal at "
      "most %.2f: %s\n",
      state ? "momentum" : "SGD", resident, resident / held, kRatioGoal, Verdict(good));
  *reached = *reached && good;
  return absl::OkStatus();
}

struct Sample {
  double minutes = 0;
  double mebibytes = 0;
  int files = 0;
};

// Returns the slope of the least-squares line through the samples.
double SlopeOf(const std::vector<Sample>& samples) {
  double x = 0, y = 0;
  for (const Sample& sample : samples) x += sample.minutes, y += sample.mebibytes;
  x /= static_cast<double>(samples.size());
  y /= static_cast<double>(samples.size());
  double xy = 0, xx = 0;
  for (const Sample& sample : samples) {
    xy += (sample.minutes - x) * (sample.mebibytes - y);
    xx += (sample.minutes - x) * (sample.minutes - x);
  }
  return xx > 0 ? xy / xx : 0;
}

absl::Status Soak(const Flags& flags, const std::string& folder, bool* reached) {
  const Layout layout{.name = "64 tensors of 1 MiB", .tensors = 64, .elements = 1 << 18};
  Contender ours({.name = "Capstan", .server = flags.server}, layout, Mode::kAsp);
  CAPSTAN_RETURN_IF_ERROR(ours.Start(absl::StrCat(folder, "/soak"), GradientOf(layout)));
  const double begin = WallSeconds();
  std::vector<Sample> samples;
  int64_t iterations = 0;
  for (double passed = 0; passed < flags.soak_seconds; passed = WallSeconds() - begin) {
    CAPSTAN_RETURN_IF_ERROR(ours.Run(1));
    ++iterations;
    if (passed < flags.soak_seconds / 4) continue;
    samples.push_back({.minutes = passed / 60,
                       .mebibytes = static_cast<double>(ours.server(0).ResidentBytes()) / kMebibyte,
                       .files = ours.server(0).OpenFiles()});
  }
  CAPSTAN_RETURN_IF_ERROR(ours.CheckRecorded());
  if (samples.empty()) return absl::InvalidArgumentError("the soak is too short: no sample");
  const double slope = SlopeOf(samples);
  const bool flat = slope < kSlopeGoal;
  const bool closed = samples.back().files <= samples.front().files;
  std::printf(
      "soak of %.0f s, %.2f GB/s     resident %.0f MiB, slope %.2f MiB a minute; goal below "
      "%.0f: %s; open files %d, then %d: %s\n",
      flags.soak_seconds,
      2e-9 * kMebibyte * layout.mebibytes() * static_cast<double>(iterations) / flags.soak_seconds,
      samples.back().mebibytes, slope, kSlopeGoal, Verdict(flat), samples.front().files,
      samples.back().files, Verdict(closed));
  *reached = *reached && flat && closed;
  return absl::OkStatus();
}

absl::Status MeasureAll(const Flags& flags, bool* reached) {
  CAPSTAN_ASSIGN_OR_RETURN(const auto folder,
                           ScratchFolder::Make(ScratchFolder::Home(), "server-memory"));
  for (const Rule rule : {Rule::kSgd, Rule::kMomentum}) {
    CAPSTAN_RETURN_IF_ERROR(MeasureSize(flags, rule, folder->path(), reached));
  }
  return Soak(flags, folder->path(), reached);
}

int Main(int argc, char** argv) {
  Flags flags;
  Program program("Measures a server's memory: at 1 GiB of parameters, and at full load for long.");
  program.AddOption("--server", flags.server, "capstan-server").Required();
  program.AddOption("--soak-seconds", flags.soak_seconds, "length of the second part")
      .BetweenReals(0.001, 1e9)
      .ShowDefault();
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  bool reached = true;
  const absl::Status status = MeasureAll(flags, &reached);
  if (!status.ok()) {
    std::fprintf(stderr, "server_memory: %s\n", status.ToString().c_str());
    return 2;
  }
  return reached ? 0 : 1;
}

}  // namespace
}  // namespace capstan::benchmark

int main(int argc, char** argv) {
  capstan::KeepFreedMemory();
  capstan::SkipLockOrderChecks();
  return capstan::benchmark::Main(argc, argv);
}
