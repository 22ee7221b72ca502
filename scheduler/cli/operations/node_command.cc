#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/command_line/command.h"
#include "scheduler/cli/client/client.h"
#include "scheduler/cli/commands.h"
#include "scheduler/cli/console/console.h"
#include "scheduler/cli/console/exit_code.h"
#include "scheduler/cli/console/interrupts.h"
#include "scheduler/cli/operations/node_drain.h"
#include "scheduler/cli/view/node_view.h"
#include "scheduler/cli/view/text/format.h"

namespace capstan::cli {
namespace {

int List(const Settings& settings) {
  SchedulerClient scheduler(settings.scheduler, settings.credentials.get());
  const auto nodes = scheduler.ListNodes();
  if (!nodes.ok()) return Fail(nodes.status());
  Print(settings.format() == OutputFormat::kJson ? ToJson(*nodes) : NodeTable(*nodes));
  return kExitDone;
}

int Describe(const Settings& settings, const std::string& name) {
  SchedulerClient scheduler(settings.scheduler, settings.credentials.get());
  const auto nodes = scheduler.ListNodes();
  if (!nodes.ok()) return Fail(nodes.status());
  for (const v1::NodeStatus& node : nodes->nodes()) {
    if (node.node_id() != name) continue;
    Print(settings.format() == OutputFormat::kJson ? ToJson(node) : DescribeNode(node));
    return kExitDone;
  }
  return Fail(absl::NotFoundError(absl::StrCat("there is no node \"", name, "\"")));
}

struct DrainArguments {
  std::string node;
  bool cancel = false;
};

int Drain(const Settings& settings, const DrainArguments& arguments) {
  const Interrupts interrupts;
  SchedulerClient scheduler(settings.scheduler, settings.credentials.get());
  return arguments.cancel ? CancelDrain(scheduler, arguments.node, settings.format())
                          : DrainUntilSafe(scheduler, arguments.node, settings.format());
}

}  // namespace

void AddNodeCommands(Command node, CommandLine& line) {
  AddCommand(node, "list", "The cluster's servers and workers, and those that died lately",
             "  capstan node list\n  capstan node list -o json", line, List);
  auto name = std::make_shared<std::string>();
  AddCommand(node, "describe", "A daemon in full, with its GPUs or why it has none",
             "  capstan node describe worker-1", line,
             [name](const Settings& settings) { return Describe(settings, *name); })
      .AddOption("NODE", *name, "Name of the node, as `capstan node list` shows it")
      .Required();
  auto arguments = std::make_shared<DrainArguments>();
  Command drain = AddCommand(
      node, "drain", "Move what a daemon has elsewhere, and return when it is safe to stop it",
      "  capstan node drain server-1\n"
      "  capstan node drain server-1 --cancel     # take it into use again\n"
      "Training goes on meanwhile. Exit code: 0 it is safe to stop, 2 no such node,\n"
      "130 interrupted (it goes on being drained).",
      line, [arguments](const Settings& settings) { return Drain(settings, *arguments); });
  drain.AddOption("NODE", arguments->node, "Name of the node, as `capstan node list` shows it")
      .Required();
  drain.AddFlag("--cancel", arguments->cancel, "Give it work again");
}

}  // namespace capstan::cli
