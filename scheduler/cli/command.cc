#include "scheduler/cli/command.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/cli/console/console.h"

namespace capstan::cli {

Command AddGroup(Command parent, const std::string& name, const std::string& description) {
  Command group = parent.AddCommand(name, description);
  group.RequireCommand();
  return group;
}

Command AddCommand(Command group, const std::string& name, const std::string& description,
                   const std::string& examples, CommandLine& line, CommandFunction run,
                   Concerns concerns) {
  Command command = group.AddCommand(name, description);
  command.SetFooter(absl::StrCat("Examples:\n", examples));
  if (concerns == Concerns::kScheduler) {
    command
        .AddOption("--scheduler", line.flags.scheduler,
                   "Address of the scheduler; else CAPSTAN_SCHEDULER, the configuration file, "
                   "the running local cluster (see `capstan config show`)")
        .ValueName("HOST:PORT");
    command
        .AddOption("--tls-dir", line.flags.tls_dir,
                   "Folder of ca.pem, cert.pem and key.pem (`capstan cert user` makes it); else "
                   "CAPSTAN_TLS_DIR, the configuration file")
        .ValueName("FOLDER");
  }
  command
      .AddOption("-o,--output", line.flags.output,
                 "Form of the output: table, wide (more columns, in lists of jobs) or json")
      .ValueName("FORM");
  command.OnNamed([&line, run = std::move(run), concerns] {
    line.run = [&line, run, concerns] {
      auto settings = ResolveSettings(line.flags, Environment::OfProcess());
      if (!settings.ok()) return Fail(settings.status());
      if (concerns == Concerns::kScheduler) {
        const absl::Status opened = OpenCredentials(&*settings);
        if (!opened.ok()) return Fail(opened);
      }
      return run(*settings);
    };
  });
  return command;
}

}  // namespace capstan::cli
