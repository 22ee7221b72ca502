#include "scheduler/cli/operations/node_command.h"

#include <memory>
#include <string>

#include "scheduler/cli/client.h"
#include "scheduler/cli/console.h"
#include "scheduler/cli/exit_code.h"
#include "scheduler/cli/interrupts.h"
#include "scheduler/cli/operations/node_drain.h"
#include "scheduler/cli/view/format.h"
#include "scheduler/cli/view/node_view.h"

namespace capstan::cli {
namespace {

int List(const Settings& settings) {
  SchedulerClient scheduler(settings.scheduler);
  const auto nodes = scheduler.ListNodes();
  if (!nodes.ok()) return Fail(nodes.status());
  Print(settings.format() == OutputFormat::kJson ? ToJson(*nodes) : NodeTable(*nodes));
  return kExitDone;
}

struct DrainArguments {
  std::string node;
  bool cancel = false;
};

int Drain(const Settings& settings, const DrainArguments& arguments) {
  const Interrupts interrupts;
  SchedulerClient scheduler(settings.scheduler);
  return arguments.cancel ? CancelDrain(scheduler, arguments.node, settings.format())
                          : DrainUntilSafe(scheduler, arguments.node, settings.format());
}

}  // namespace

void AddNodeCommands(CLI::App& node, CommandLine& line) {
  AddCommand(node, "list", "The cluster's servers and workers, and those that died lately",
             "  capstan node list\n  capstan node list -o json", line, List);
  auto arguments = std::make_shared<DrainArguments>();
  CLI::App* drain = AddCommand(
      node, "drain", "Move what a daemon has elsewhere, and return when it is safe to stop it",
      "  capstan node drain server-1\n"
      "  capstan node drain server-1 --cancel     # take it into use again\n"
      "Training goes on meanwhile. Exit code: 0 it is safe to stop, 2 no such node,\n"
      "130 interrupted (it goes on being drained).",
      line, [arguments](const Settings& settings) { return Drain(settings, *arguments); });
  drain->add_option("NODE", arguments->node, "Name of the node, as `capstan node list` shows it")
      ->required();
  drain->add_flag("--cancel", arguments->cancel, "Give it work again");
}

}  // namespace capstan::cli
