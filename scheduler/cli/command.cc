#include "scheduler/cli/command.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/cli/console.h"

namespace capstan::cli {

CLI::App* AddGroup(CLI::App& parent, const std::string& name, const std::string& description) {
  CLI::App* group = parent.add_subcommand(name, description);
  group->require_subcommand(1);
  return group;
}

CLI::App* AddCommand(CLI::App& group, const std::string& name, const std::string& description,
                     const std::string& examples, CommandLine& line, CommandFunction run,
                     Concerns concerns) {
  CLI::App* command = group.add_subcommand(name, description);
  command->footer(absl::StrCat("Examples:\n", examples));
  if (concerns == Concerns::kScheduler) {
    command
        ->add_option("--scheduler", line.flags.scheduler,
                     "Address of the scheduler; else CAPSTAN_SCHEDULER, the configuration file, "
                     "the running local cluster (see `capstan config show`)")
        ->type_name("HOST:PORT");
    command
        ->add_option("--tls-dir", line.flags.tls_dir,
                     "Folder of ca.pem, cert.pem and key.pem (`capstan cert user` makes it); else "
                     "CAPSTAN_TLS_DIR, the configuration file")
        ->type_name("FOLDER");
  }
  command
      ->add_option("-o,--output", line.flags.output,
                   "Form of the output: table, wide (more columns, in lists of jobs) or json")
      ->type_name("FORM");
  command->callback([&line, run = std::move(run), concerns] {
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
