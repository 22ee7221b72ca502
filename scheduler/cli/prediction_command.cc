#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/command_line/command.h"
#include "scheduler/cli/cluster/binaries.h"
#include "scheduler/cli/commands.h"
#include "scheduler/cli/console/console.h"
#include "scheduler/cli/settings/settings.h"

namespace capstan::cli {
namespace {

// Replaces this process by capstan-worker. Returns only if that fails.
int BecomeWorker(const CommandLine& line, const std::string& name,
                 const std::vector<std::string>& given) {
  const auto settings = ResolveSettings(line.flags, Environment::OfProcess());
  if (!settings.ok()) return Fail(settings.status());
  const auto worker = FindBinary(BinarySearch::OfProcess(), "worker");
  if (!worker.ok()) return Fail(worker.status());
  // The configured output comes first, so that the command line's arguments override it.
  std::vector<std::string> arguments = {*worker, name,
                                        absl::StrCat("--output=", settings->output.value)};
  arguments.insert(arguments.end(), given.begin(), given.end());
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  signal(SIGPIPE, SIG_DFL);  // exec keeps what Main ignores.
  execv(worker->c_str(), pointers.data());
  return Fail(absl::ErrnoToStatus(errno, *worker));
}

void Add(Command program, const char* name, const char* description, CommandLine& line) {
  // The worker parses all further arguments.
  program.AddCommand(name, description)
      .OnNamedWith([&line, name](const std::vector<std::string>& arguments) {
        line.run = [&line, name, arguments] { return BecomeWorker(line, name, arguments); };
      });
}

}  // namespace

void AddPredictionCommands(Command program, CommandLine& line) {
  Add(program, "predict", "Predict with an exported model: CSV or JSON lines", line);
  Add(program, "evaluate", "The figures of an exported model on data", line);
}

}  // namespace capstan::cli
