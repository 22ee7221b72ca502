// Dense push + pull: 64 tensors of 1 MiB with the add on the server, against ZeroMQ.
//
//   dense_push_pull --server=server/capstan-server --baseline=.../baseline_server
//
// An operation is an iteration: every worker pushes a gradient of all tensors and pulls all values
// after it. Ours runs as ASP with SGD; ZeroMQ's server adds into its table. Servers are processes
// of their own on loopback, workers are threads of this one; contestants take turns. GB/s count
// numbers as fp32, also those that travel as bf16.
// Exit codes: 0 all goals are reached, 1 one is not, 2 something failed.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/command_line/command.h"
#include "common/process/keep_memory.h"
#include "common/process/lock_order.h"
#include "common/status/status_macros.h"
#include "tests/benchmark/baseline/zmq_fleet.h"
#include "tests/benchmark/contender.h"
#include "tests/benchmark/push_pull_contestant.h"
#include "tests/benchmark/report.h"
#include "tests/benchmark/scratch_folder.h"
#include "tests/benchmark/turns.h"

namespace capstan::benchmark {
namespace {

constexpr double kGoal = 1.0;
constexpr double kHalfGoal = 1.8;  // bf16 on the wire.

struct Flags {
  ReportFlags report;
  std::string server;
  std::string baseline;
};

const Layout& Tensors() {
  static const Layout layout{
      .name = "64 tensors of 1 MiB", .tensors = 64, .elements = (1 << 20) / sizeof(float)};
  return layout;
}

// Small whole numbers, whose sums are exact.
std::vector<float> Gradient() {
  std::vector<float> gradient(static_cast<size_t>(Tensors().count()));
  for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>(i % 7) - 3.0f;
  return gradient;
}

// Compares with as many servers as workers.
absl::Status CompareSize(const Flags& flags, int workers, NumberFormat format,
                         const std::string& folder,
                         const std::shared_ptr<const worker::TableArrays>& gradient,
                         Report* report) {
  const bool half = format != NumberFormat::kFp32;
  Contender ours({.name = "Capstan",
                  .server = flags.server,
                  .servers = workers,
                  .workers = workers,
                  .rule = Rule::kSgd,
                  .format = format},
                 Tensors(), Mode::kAsp);
  CAPSTAN_RETURN_IF_ERROR(
      ours.Start(absl::StrCat(folder, "/", workers, half ? "-bf16" : ""), gradient));
  ZmqFleet theirs(workers, workers, Tensors().tensors, (*gradient)[0]);
  CAPSTAN_RETURN_IF_ERROR(theirs.Start(flags.baseline, folder));
  Comparison comparison{
      .measure = absl::StrCat("dense push + pull", half ? " as bf16, " : ", ", workers,
                              workers == 1 ? " worker" : " workers", " and ", workers,
                              workers == 1 ? " server" : " servers"),
      .goals = {0, half ? kHalfGoal : kGoal}};
  const double bytes = 2.0 * workers * static_cast<double>(Tensors().count()) * sizeof(float);
  CAPSTAN_ASSIGN_OR_RETURN(comparison.series,
                           MeasureInTurn({PushPullContestant("Capstan", ours, bytes),
                                          PushPullContestant("ZeroMQ", theirs, bytes)},
                                         flags.report.turns));
  report->Add(comparison);
  CAPSTAN_RETURN_IF_ERROR(theirs.CheckSums());
  return ours.CheckRecorded();
}

absl::Status CompareAll(const Flags& flags, Report* report) {
  CAPSTAN_ASSIGN_OR_RETURN(const auto folder,
                           ScratchFolder::Make(ScratchFolder::Home(), "dense-push-pull"));
  const auto gradient =
      std::make_shared<const worker::TableArrays>(worker::TableArrays{Gradient()});
  for (const NumberFormat format : {NumberFormat::kFp32, NumberFormat::kBf16}) {
    for (const int workers : {1, 2}) {
      CAPSTAN_RETURN_IF_ERROR(
          CompareSize(flags, workers, format, folder->path(), gradient, report));
    }
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  Program program("Measures dense push + pull against a ZeroMQ server that adds into a table.");
  AddReportFlags(program, &flags.report);
  program.AddOption("--server", flags.server, "capstan-server").Required();
  program.AddOption("--baseline", flags.baseline, "baseline_server").Required();
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  Report report(flags.report.json);
  return report.Finish(CompareAll(flags, &report));
}

}  // namespace
}  // namespace capstan::benchmark

int main(int argc, char** argv) {
  capstan::KeepFreedMemory();
  capstan::SkipLockOrderChecks();
  return capstan::benchmark::Main(argc, argv);
}
