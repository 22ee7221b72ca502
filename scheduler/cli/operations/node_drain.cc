#include "scheduler/cli/operations/node_drain.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "scheduler/cli/client/patience.h"
#include "scheduler/cli/console/console.h"
#include "scheduler/cli/console/exit_code.h"
#include "scheduler/cli/console/interrupts.h"
#include "scheduler/cli/view/text/format.h"
#include "scheduler/cli/view/text/text_table.h"

namespace capstan::cli {
namespace {

constexpr absl::Duration kWaitLimit = absl::Milliseconds(500);    // Longest delay of a signal.
constexpr absl::Duration kPollInterval = absl::Milliseconds(50);  // Wait after a quick answer.

// Returns "server-1: 3 shards, 0 tasks left: waiting for ...".
std::string ProgressLine(const std::string& node_id, const v1::DrainNodeResponse& state) {
  std::string line = absl::StrCat(
      node_id, ": ", FormatCount(state.shards()), state.shards() == 1 ? " shard, " : " shards, ",
      FormatCount(state.tasks()), state.tasks() == 1 ? " task left" : " tasks left");
  if (!state.detail().empty()) absl::StrAppend(&line, ": ", Printable(state.detail()));
  return absl::StrCat(line, "\n");
}

}  // namespace

int DrainUntilSafe(SchedulerClient& scheduler, const std::string& node_id, OutputFormat format) {
  const bool json = format == OutputFormat::kJson;
  std::string shown;
  Patience patience(scheduler.address(), {});
  while (Interrupts::Signal() == 0) {
    const auto state = scheduler.DrainNode(node_id, kWaitLimit);
    if (patience.AsksAgain(state.status())) continue;
    if (!state.ok()) return Fail(state.status());
    if (state->safe_to_stop()) {
      Print(json ? ToJson(*state) : absl::StrCat(node_id, " is safe to stop\n"));
      return kExitDone;
    }
    const std::string line = ProgressLine(node_id, *state);
    if (!json && line != shown) Print(line);
    shown = line;
    Interrupts::Sleep(kPollInterval);
  }
  std::fprintf(stderr,
               "\n%s goes on being drained. Wait for it again: capstan node drain %s\n"
               "Take it into use again: capstan node drain %s --cancel\n",
               node_id.c_str(), node_id.c_str(), node_id.c_str());
  return kExitSignal + Interrupts::Signal();
}

int CancelDrain(SchedulerClient& scheduler, const std::string& node_id, OutputFormat format) {
  const auto state = scheduler.CancelDrain(node_id);
  if (!state.ok()) return Fail(state.status());
  Print(format == OutputFormat::kJson ? ToJson(*state)
                                      : absl::StrCat(node_id, " is in use again\n"));
  return kExitDone;
}

}  // namespace capstan::cli
