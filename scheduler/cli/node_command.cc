#include "scheduler/cli/node_command.h"

#include "scheduler/cli/client.h"
#include "scheduler/cli/console.h"
#include "scheduler/cli/exit_code.h"
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

}  // namespace

void AddNodeCommands(CLI::App& node, CommandLine& line) {
  AddCommand(node, "list", "The cluster's servers and workers, and those that died lately",
             "  capstan node list\n  capstan node list -o json", line, List);
}

}  // namespace capstan::cli
