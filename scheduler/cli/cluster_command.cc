#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/command_line/command.h"
#include "common/net/grpc/credentials.h"
#include "common/status/status_macros.h"
#include "common/time/duration_text.h"
#include "scheduler/cli/client/client.h"
#include "scheduler/cli/cluster/local_cluster.h"
#include "scheduler/cli/commands.h"
#include "scheduler/cli/console/console.h"
#include "scheduler/cli/console/exit_code.h"
#include "scheduler/cli/console/interrupts.h"
#include "scheduler/cli/job/submit.h"
#include "scheduler/cli/settings/cluster_file.h"
#include "scheduler/cli/settings/process.h"
#include "scheduler/cli/view/output.pb.h"
#include "scheduler/cli/view/text/format.h"
#include "scheduler/cli/view/text/text_table.h"

namespace capstan::cli {
namespace {

constexpr absl::Duration kGrace = absl::Seconds(15);
constexpr absl::Duration kWatchInterval = absl::Milliseconds(200);
constexpr int kNodesMax = 256;  // Nodes of each role on one machine.
constexpr int kRunsMax = 64;    // Clusters of `cluster run` without --dir at one time.
// Folders of data on many machines; Debian's packages use the second one.
constexpr const char* kDataFolders[] = {"/data", "/usr/share/datasets"};

struct ClusterArguments {
  std::string directory;  // Empty: the default folder.
  int servers = 2;
  int workers = 2;
  bool foreground = false;
  JobSource job;
  bool replace_model = false;
  bool logs = false;
  std::vector<std::string> allow_path;
  std::vector<std::string> rule_plugins;
};

absl::StatusOr<std::string> DirectoryOf(const ClusterArguments& arguments) {
  std::string directory = arguments.directory;
  if (directory.empty()) {
    CAPSTAN_ASSIGN_OR_RETURN(directory, DefaultClusterDirectory(Environment::OfProcess()));
  }
  std::error_code error;
  const auto absolute = std::filesystem::absolute(directory, error);
  if (error) return absl::InternalError(absl::StrCat("no working directory: ", error.message()));
  return absolute.lexically_normal().string();
}

ClusterOutput OutputOf(const std::string& directory, const ClusterFile& cluster) {
  ClusterOutput output;
  output.set_directory(directory);
  output.set_scheduler(cluster.scheduler());
  output.set_tls_dir(cluster.tls_dir());
  for (const LocalProcess& process : cluster.processes()) {
    ClusterProcess* shown = output.add_processes();
    shown->set_name(process.name());
    shown->set_pid(process.pid());
    shown->set_alive(IsAlive({process.pid(), process.start_time()}));
    shown->set_address(process.address());
    shown->set_log(process.log());
  }
  return output;
}

std::string ProcessTable(const ClusterOutput& cluster) {
  TextTable table({{"NAME"}, {"STATE"}, {"PID", TextTable::Align::kRight}, {"ADDRESS"}, {"LOG"}});
  for (const ClusterProcess& process : cluster.processes()) {
    table.AddRow({process.name(), process.alive() ? "alive" : "dead", absl::StrCat(process.pid()),
                  process.address(), process.log()});
  }
  return table.ToString();
}

// Returns the folders in which the user of a local cluster expects his files. They give a job no
// right that its submitter lacks, because the user who submits also starts the daemons. They keep a
// job file that came from elsewhere away from the rest of the machine.
std::vector<std::string> AllowedTo(const ClusterArguments& arguments) {
  std::vector<std::string> folders(std::begin(kDataFolders), std::end(kDataFolders));
  std::error_code error;
  folders.push_back(std::filesystem::current_path(error).string());
  folders.push_back(std::filesystem::temp_directory_path(error).string());
  folders.push_back(Environment::OfProcess().variable("HOME").value_or(""));
  for (const std::string& file : {arguments.job.file, arguments.job.base}) {
    if (file.empty()) continue;
    folders.push_back(std::filesystem::absolute(file, error).parent_path().string());
  }
  for (std::string& folder : folders) {
    folder = std::filesystem::path(folder).lexically_normal().string();
  }
  std::erase_if(folders, [](const std::string& folder) { return !absl::StartsWith(folder, "/"); });
  folders.insert(folders.end(), arguments.allow_path.begin(), arguments.allow_path.end());
  return folders;
}

absl::StatusOr<ClusterFile> Start(const ClusterArguments& arguments, const std::string& directory,
                                  bool end_with_parent) {
  LocalClusterOptions options;
  options.directory = directory;
  options.servers = arguments.servers;
  options.workers = arguments.workers;
  options.end_with_parent = end_with_parent;
  options.allow_path = AllowedTo(arguments);
  for (const std::string& file : arguments.rule_plugins) {
    std::error_code error;  // The daemons run in another folder.
    options.rule_plugins.push_back(std::filesystem::absolute(file, error).string());
  }
  CAPSTAN_ASSIGN_OR_RETURN(options.binaries, FindBinaries(BinarySearch::OfProcess()));
  return StartLocalCluster(options);
}

// Starts the cluster of one job. Without --dir it gets the first folder beside `directory`, the
// default one, in which no cluster is: jobs of other clusters neither wait for this one nor end
// with it, and `directory` stays free for `cluster up`. Sets `*directory` to the cluster's folder.
absl::StatusOr<ClusterFile> StartForRun(const ClusterArguments& arguments, std::string* directory) {
  const bool is_default = arguments.directory.empty();
  const std::string first = is_default ? *directory + "-run" : *directory;
  *directory = first;
  for (int number = 2;; ++number) {
    auto cluster = Start(arguments, *directory, /*end_with_parent=*/true);
    if (!is_default || !absl::IsAlreadyExists(cluster.status()) || number > kRunsMax) {
      return cluster;
    }
    *directory = absl::StrCat(first, "-", number);
  }
}

// Reports a failed start, and returns the exit code.
int FailStart(const absl::Status& status) {
  if (!absl::IsCancelled(status)) return Fail(status);
  return kExitSignal + Interrupts::Signal();
}

// Stops a cluster and prints the names of killed daemons. Returns false after an error.
bool TakeDown(const std::string& directory) {
  const auto report = StopLocalCluster(directory, kGrace);
  if (!report.ok()) {
    Fail(report.status());
    return false;
  }
  if (!report->killed.empty()) {
    std::fprintf(stderr, "capstan: killed, as they did not end within %s: %s\n",
                 DurationText(kGrace).c_str(), absl::StrJoin(report->killed, ", ").c_str());
  }
  return true;
}

// Waits until a signal comes or the scheduler ends, then stops the cluster. Returns the exit code.
int StayInForeground(const std::string& directory, const ClusterFile& cluster) {
  std::vector<std::string> told;
  while (!Interrupts::Sleep(kWatchInterval)) {
    const std::vector<std::string> dead = DeadProcesses(cluster);
    if (dead != told)
      std::fprintf(stderr, "capstan: ended: %s\n", absl::StrJoin(dead, ", ").c_str());
    told = dead;
    if (!dead.empty() && dead[0] == cluster.processes(0).name()) break;
  }
  TakeDown(directory);
  return Interrupts::Signal() == 0 ? kExitFailed : kExitSignal + Interrupts::Signal();
}

// Returns the variables by which other commands reach a cluster outside the default folder.
std::string ExportLine(const ClusterFile& cluster) {
  return absl::StrCat("export CAPSTAN_SCHEDULER=", cluster.scheduler(),
                      " CAPSTAN_TLS_DIR=", cluster.tls_dir(), "\n");
}

int Up(const Settings& settings, const ClusterArguments& arguments) {
  const auto directory = DirectoryOf(arguments);
  if (!directory.ok()) return Fail(directory.status());
  const Interrupts interrupts;
  const auto cluster = Start(arguments, *directory, arguments.foreground);
  if (!cluster.ok()) return FailStart(cluster.status());
  const ClusterOutput output = OutputOf(*directory, *cluster);
  if (settings.format() == OutputFormat::kJson) {
    Print(ToJson(output));
  } else {
    Print(absl::StrCat("cluster in ", *directory, "\n", ProcessTable(output)));
    const bool is_default = arguments.directory.empty();
    const std::string dir = is_default ? "" : absl::StrCat(" --dir ", *directory);
    Print(absl::StrCat("\n", is_default ? "" : ExportLine(*cluster), "capstan job submit FILE\n",
                       arguments.foreground ? "Ctrl-C takes it down.\n"
                                            : absl::StrCat("capstan cluster down", dir, "\n")));
  }
  return arguments.foreground ? StayInForeground(*directory, *cluster) : kExitDone;
}

// Submits a job to the running cluster and follows it. A signal stops the job, because its cluster
// will end. Returns the exit code.
int RunJob(const Settings& settings, const ClusterFile& cluster, const v1::JobSpec& spec,
           const ClusterArguments& arguments) {
  const auto credentials = Credentials::Read(cluster.tls_dir());
  if (!credentials.ok()) return Fail(credentials.status());
  SchedulerClient scheduler({cluster.scheduler(), "the local cluster"}, credentials->get());
  v1::SubmitJobRequest request;
  *request.mutable_spec() = spec;
  request.set_replace_model(arguments.replace_model);
  const auto submitted = SubmitPatiently(scheduler, std::move(request), AfterSignal::kStopJob);
  if (!submitted.ok()) return FailSubmission(submitted.status());
  if (settings.format() != OutputFormat::kJson) {
    Print(absl::StrCat("submitted ", submitted->job_id(), "\n"));
  }
  return FollowToEnd(scheduler, submitted->job_id(), settings.format(), AfterSignal::kStopJob,
                     arguments.logs ? Show::kLogs : Show::kProgress);
}

int Run(const Settings& settings, const ClusterArguments& arguments) {
  auto directory = DirectoryOf(arguments);
  if (!directory.ok()) return Fail(directory.status());
  const auto spec = LoadCheckedJob(arguments.job, DataCheck::kDo);
  if (!spec.ok()) return FailJobFile(spec.status());
  const Interrupts interrupts;
  const auto cluster = StartForRun(arguments, &*directory);
  if (!cluster.ok()) return FailStart(cluster.status());
  const bool json = settings.format() == OutputFormat::kJson;
  if (!json) {
    Print(absl::StrCat("started a scheduler, ", arguments.servers, " servers and ",
                       arguments.workers, " workers in ", *directory, "\n", ExportLine(*cluster)));
  }
  const int exit_code = RunJob(settings, *cluster, *spec, arguments);
  if (!json) {
    Print(absl::StrCat("  logs       ", *directory, "/logs, and of tasks: ", *directory,
                       "/worker-*\n"));
  }
  const bool down = TakeDown(*directory);
  return exit_code == kExitDone && !down ? kExitFailed : exit_code;
}

int ShowStatus(const Settings& settings, const ClusterArguments& arguments) {
  const auto directory = DirectoryOf(arguments);
  if (!directory.ok()) return Fail(directory.status());
  const auto cluster = ReadClusterFile(*directory);
  if (absl::IsNotFound(cluster.status())) {
    std::fprintf(stderr, "capstan: no cluster runs in %s; start one: capstan cluster up\n",
                 directory->c_str());
    return kExitFailed;
  }
  if (!cluster.ok()) return Fail(cluster.status());
  ClusterOutput output = OutputOf(*directory, *cluster);
  const auto credentials = Credentials::Read(cluster->tls_dir());
  if (!credentials.ok()) return Fail(credentials.status());
  SchedulerClient scheduler({cluster->scheduler(), ClusterFilePath(*directory)},
                            credentials->get());
  const auto nodes = scheduler.ListNodes();
  if (nodes.ok()) *output.mutable_nodes() = nodes->nodes();
  Print(settings.format() == OutputFormat::kJson
            ? ToJson(output)
            : absl::StrCat("cluster in ", *directory, "\n", ProcessTable(output)));
  const std::vector<std::string> dead = DeadProcesses(*cluster);
  return dead.empty() && nodes.ok() ? kExitDone : kExitFailed;
}

int Down(const Settings& settings, const ClusterArguments& arguments) {
  const auto directory = DirectoryOf(arguments);
  if (!directory.ok()) return Fail(directory.status());
  const Interrupts interrupts;  // Ctrl-C must not leave a part of the cluster running.
  const auto cluster = ReadClusterFile(*directory);
  if (absl::IsNotFound(cluster.status())) {
    if (settings.format() == OutputFormat::kTable) {
      Print(absl::StrCat("no cluster runs in ", *directory, "\n"));
    }
    return kExitDone;
  }
  if (!cluster.ok()) return Fail(cluster.status());
  if (!TakeDown(*directory)) return kExitFailed;
  ClusterOutput output = OutputOf(*directory, *cluster);
  Print(settings.format() == OutputFormat::kJson
            ? ToJson(output)
            : absl::StrCat("the cluster in ", *directory, " is down\n"));
  return kExitDone;
}

using Arguments = std::shared_ptr<ClusterArguments>;

void AddDirectory(Command command, const Arguments& arguments) {
  command
      .AddOption("--dir", arguments->directory,
                 "Folder of the cluster; default $XDG_RUNTIME_DIR/capstan or ~/.capstan/local")
      .ValueName("FOLDER");
}

void AddSize(Command command, const Arguments& arguments) {
  command.AddOption("--servers", arguments->servers, "Servers")
      .Between(1, kNodesMax)
      .ValueName("N")
      .ShowDefault();
  command.AddOption("--workers", arguments->workers, "Workers")
      .Between(1, kNodesMax)
      .ValueName("N")
      .ShowDefault();
  command
      .AddOption("--allow-path", arguments->allow_path,
                 "Folder below which jobs may name files, beside the cluster's own, the working "
                 "and the home folder, that of a job file to run, /data, /usr/share/datasets "
                 "and that of temporary files; may be repeated")
      .ValueName("FOLDER")
      .FromEnvironment("CAPSTAN_ALLOW_PATH")
      .OneValueEach();
  command
      .AddOption("--rule-plugin", arguments->rule_plugins,
                 "Shared library with update rules for the servers (capstan_rule.h), which jobs "
                 "may then name; may be repeated")
      .ValueName("FILE")
      .OneValueEach();
}

using ClusterFunction = int (*)(const Settings& settings, const ClusterArguments& arguments);

Command AddClusterCommand(Command cluster, const std::string& name, const std::string& description,
                          const std::string& examples, CommandLine& line,
                          const Arguments& arguments, ClusterFunction function) {
  Command command = AddCommand(
      cluster, name, description, examples, line,
      [arguments, function](const Settings& settings) { return function(settings, *arguments); },
      Concerns::kThisMachine);
  AddDirectory(command, arguments);
  return command;
}

}  // namespace

void AddClusterCommands(Command cluster, CommandLine& line) {
  // All commands share these arguments, because only one command runs.
  const auto arguments = std::make_shared<ClusterArguments>();
  Command up = AddClusterCommand(
      cluster, "up", "Start a scheduler, servers and workers on this machine, on free ports",
      "  capstan cluster up\n  capstan cluster up --servers 2 --workers 4 --dir /tmp/run\n"
      "  capstan cluster up --foreground   # Ctrl-C takes it down",
      line, arguments, Up);
  AddSize(up, arguments);
  up.AddFlag("--foreground", arguments->foreground, "Stay, and take the cluster down at the end");

  Command run = AddClusterCommand(
      cluster, "run", "Start a cluster, run one job on it to its end, and take it down",
      "  capstan cluster run job.textproto --dir run --workers 2\n"
      "  capstan cluster run job.textproto --dir run --set training.epochs=3\n"
      "Without --dir the folder is the first of DEFAULT-run, DEFAULT-run-2, ... that no cluster\n"
      "has. Logs and models are there afterwards; it and the model's folder are printed.\n"
      "Exit code: the job's; 130 or 143 when interrupted.",
      line, arguments, Run);
  AddSize(run, arguments);
  AddJobSource(run, &arguments->job);
  run.AddFlag("--logs", arguments->logs, "Also print what the tasks write: \"[rank N] ...\"");
  run.AddFlag("--replace", arguments->replace_model,
              "Where the output folder holds a model already: replace it at the job's end");

  AddClusterCommand(
      cluster, "status", "The processes of a local cluster; exit code 1 if one is gone",
      "  capstan cluster status\n  capstan cluster status -o json", line, arguments, ShowStatus);
  AddClusterCommand(cluster, "down", "Take a local cluster down; nothing of it goes on running",
                    "  capstan cluster down\n  capstan cluster down --dir /tmp/run", line,
                    arguments, Down);
}

}  // namespace capstan::cli
