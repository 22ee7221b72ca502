// Dense push + pull through shared memory: 64 tensors of 1 MiB, against our own TCP connections and
// against what memcpy allows for the same copies.
//
//   shared_memory --server=server/capstan-server
//
// An operation is an iteration of one worker with one server, as in dense_push_pull.
// Exit codes: 0 all goals are reached, 1 one is not, 2 something failed.
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/command_line/command.h"
#include "common/process/keep_memory.h"
#include "common/process/lock_order.h"
#include "common/status/status_macros.h"
#include "tests/benchmark/baseline/copy_bound.h"
#include "tests/benchmark/contender.h"
#include "tests/benchmark/push_pull_contestant.h"
#include "tests/benchmark/report.h"
#include "tests/benchmark/scratch_folder.h"
#include "tests/benchmark/turns.h"

namespace capstan::benchmark {
namespace {

constexpr double kTcpGoal = 2.0;
constexpr double kCopyGoal = 0.8;

struct Flags {
  ReportFlags report;
  std::string server;
};

absl::Status Compare(const Flags& flags, Report* report) {
  CAPSTAN_ASSIGN_OR_RETURN(const auto folder,
                           ScratchFolder::Make(ScratchFolder::Home(), "shared-memory"));
  const Layout layout{
      .name = "64 tensors of 1 MiB", .tensors = 64, .elements = (1 << 20) / sizeof(float)};
  const auto gradient = std::make_shared<const worker::TableArrays>(
      worker::TableArrays{std::vector<float>(static_cast<size_t>(layout.count()), 1.0f)});
  const double bytes = 2.0 * static_cast<double>(layout.count()) * sizeof(float);
  const Config tcp{.name = "Capstan over TCP", .server = flags.server, .rule = Rule::kSgd};
  Config shared = tcp;
  shared.name = "Capstan";
  shared.shared_memory = true;
  Contender ours(shared, layout, Mode::kAsp), over_tcp(tcp, layout, Mode::kAsp);
  CAPSTAN_RETURN_IF_ERROR(ours.Start(folder->path() + "/shared", gradient));
  CAPSTAN_RETURN_IF_ERROR(over_tcp.Start(folder->path() + "/tcp", gradient));
  CopyBound copies((*gradient)[0]);
  Comparison comparison{.measure = "dense push + pull, shared memory",
                        .goals = {0, kTcpGoal, kCopyGoal}};
  CAPSTAN_ASSIGN_OR_RETURN(
      comparison.series,
      MeasureInTurn(
          {PushPullContestant(shared.name, ours, bytes),
           PushPullContestant(tcp.name, over_tcp, bytes),
           PushPullContestant(absl::StrCat("memcpy, ", CopyBound::kCopies, " copies and the add"),
                              copies, bytes)},
          flags.report.turns));
  report->Add(comparison);
  CAPSTAN_RETURN_IF_ERROR(ours.CheckRecorded());
  return over_tcp.CheckRecorded();
}

int Main(int argc, char** argv) {
  Flags flags;
  Program program("Measures dense push + pull through shared memory.");
  AddReportFlags(program, &flags.report);
  program.AddOption("--server", flags.server, "capstan-server").Required();
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  Report report(flags.report.json);
  return report.Finish(Compare(flags, &report));
}

}  // namespace
}  // namespace capstan::benchmark

int main(int argc, char** argv) {
  capstan::KeepFreedMemory();
  capstan::SkipLockOrderChecks();
  return capstan::benchmark::Main(argc, argv);
}
