#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "scheduler/cli/binaries.h"
#include "scheduler/cli/commands.h"
#include "scheduler/cli/console.h"
#include "scheduler/cli/settings.h"

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

void Add(CLI::App& app, const char* name, const char* description, CommandLine& line) {
  CLI::App* command = app.add_subcommand(name, description);
  // The worker parses all further arguments.
  command->set_help_flag();
  command->prefix_command();
  command->callback([&line, command, name] {
    line.run = [&line, command, name] { return BecomeWorker(line, name, command->remaining()); };
  });
}

}  // namespace

void AddPredictionCommands(CLI::App& app, CommandLine& line) {
  Add(app, "predict", "Predict with an exported model: CSV or JSON lines", line);
  Add(app, "evaluate", "The figures of an exported model on data", line);
}

}  // namespace capstan::cli
