#include "absl/strings/str_cat.h"
#include "common/command_line/command.h"
#include "common/process/version.h"
#include "proto/parameter_server.pb.h"
#include "scheduler/cli/commands.h"
#include "scheduler/cli/console/console.h"
#include "scheduler/cli/console/exit_code.h"
#include "scheduler/cli/view/output.pb.h"
#include "scheduler/cli/view/text/format.h"
#include "scheduler/cli/view/text/text_table.h"

namespace capstan::cli {
namespace {

void AddValue(ConfigOutput* output, const char* name, const Setting& setting) {
  ConfigValue* value = output->add_settings();
  value->set_name(name);
  value->set_value(setting.value);
  value->set_origin(setting.origin);
}

int ShowConfig(const Settings& settings) {
  ConfigOutput output;
  AddValue(&output, "scheduler", settings.scheduler);
  AddValue(&output, "output", settings.output);
  AddValue(&output, "tls-dir", settings.tls_dir);
  if (settings.format() == OutputFormat::kJson) {
    Print(ToJson(output));
    return kExitDone;
  }
  TextTable table({{"SETTING"}, {"VALUE"}, {"ORIGIN"}});
  for (const ConfigValue& value : output.settings()) {
    table.AddRow({value.name(), value.value(), value.origin()});
  }
  Print(table.ToString());
  return kExitDone;
}

int ShowVersion(const Settings& settings) {
  VersionOutput output;
  output.set_version(kVersion);
  output.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
  Print(settings.format() == OutputFormat::kJson
            ? ToJson(output)
            : absl::StrCat("capstan ", kVersion, ", protocol ", output.protocol_version(), "\n"));
  return kExitDone;
}

}  // namespace

void AddConfigCommands(Command config, CommandLine& line) {
  AddCommand(config, "show", "Each setting with its value and where it comes from",
             "  capstan config show\n  CAPSTAN_SCHEDULER=host:7070 capstan config show", line,
             ShowConfig);
}

void AddVersionCommand(Command program, CommandLine& line) {
  AddCommand(program, "version", "The version of this program and of the protocol it speaks",
             "  capstan version\n  capstan version -o json", line, ShowVersion,
             Concerns::kThisMachine);
}

}  // namespace capstan::cli
