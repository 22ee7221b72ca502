#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/command_line/command.h"
#include "common/row_export/export_rows.h"
#include "common/row_export/grpc_row_source.h"
#include "common/security/renewed_capability.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/storage/posix_disk.h"
#include "common/tensor/model_file.h"
#include "common/time/clock.h"
#include "scheduler/cli/client/client.h"
#include "scheduler/cli/commands.h"
#include "scheduler/cli/console/console.h"
#include "scheduler/cli/console/exit_code.h"
#include "scheduler/cli/job/table_export.h"
#include "scheduler/cli/operations/checkpoint_export.h"
#include "scheduler/cli/operations/checkpoint_save.h"
#include "scheduler/cli/operations/table_read.h"
#include "scheduler/cli/view/node_view.h"
#include "scheduler/cli/view/output.pb.h"
#include "scheduler/cli/view/text/format.h"

namespace capstan::cli {
namespace {

// The (node id, address) of each server to ask: the servers of the job, or all live servers.
using Servers = std::vector<std::pair<std::string, std::string>>;

absl::StatusOr<Servers> FindServers(SchedulerClient& scheduler, const std::string& job_id) {
  Servers servers;
  if (!job_id.empty()) {
    CAPSTAN_ASSIGN_OR_RETURN(const auto tables, scheduler.GetTables(job_id));
    for (const v1::ServerAddress& server : tables.routing().servers()) {
      servers.emplace_back(server.node_id(), server.address());
    }
    return servers;
  }
  CAPSTAN_ASSIGN_OR_RETURN(const auto nodes, scheduler.ListNodes());
  for (const v1::NodeStatus& node : nodes.nodes()) {
    if (node.role() == v1::SERVER && node.alive()) {
      servers.emplace_back(node.node_id(), node.address());
    }
  }
  return servers;
}

// Prints the servers' answers: ask(client, name, output) adds the answer of one server. Returns the
// exit code.
template <typename Output, typename Ask>
int ShowServers(const Settings& settings, const std::string& job_id,
                std::string (*table)(const Output&), const Ask& ask) {
  SchedulerClient scheduler(settings.scheduler, settings.credentials.get());
  const auto servers = FindServers(scheduler, job_id);
  if (!servers.ok()) return Fail(servers.status());
  Output output;
  int exit_code = kExitDone;
  for (const auto& [name, address] : *servers) {
    ServerClient server(name, address, scheduler.credentials());
    // After an error the other servers' answers are still shown.
    const absl::Status status = ask(server, name, output);
    if (!status.ok()) exit_code = Fail(status);
  }
  Print(settings.format() == OutputFormat::kJson ? ToJson(output) : table(output));
  return exit_code;
}

int List(const Settings& settings, const std::string& job_id) {
  const auto ask = [&job_id](ServerClient& server, const std::string& name,
                             TableListOutput& output) -> absl::Status {
    CAPSTAN_ASSIGN_OR_RETURN(const auto held, server.DescribeTables(job_id));
    ServerTables& tables = *output.add_servers();
    tables.set_server(name);
    *tables.mutable_tables() = held.tables();
    return absl::OkStatus();
  };
  return ShowServers(settings, job_id, &HeldTableTable, ask);
}

int Traffic(const Settings& settings, const std::string& job_id) {
  const auto ask = [](ServerClient& server, const std::string& name,
                      TrafficOutput& output) -> absl::Status {
    CAPSTAN_ASSIGN_OR_RETURN(auto described, server.DescribeTraffic());
    ServerTraffic& traffic = *output.add_servers();
    traffic.set_server(name);
    *traffic.mutable_path() = std::move(described);
    return absl::OkStatus();
  };
  return ShowServers(settings, job_id, &TrafficTable, ask);
}

absl::StatusOr<v1::RoutingTable> RoutingOfRunning(SchedulerClient& scheduler,
                                                  const std::string& job_id) {
  CAPSTAN_ASSIGN_OR_RETURN(const v1::JobStatus job, scheduler.GetJob(job_id));
  if (HasEnded(job.state())) {
    return absl::FailedPreconditionError(absl::StrCat(
        job_id, " has ended while its rows were read: export it again for what it has left"));
  }
  CAPSTAN_ASSIGN_OR_RETURN(const v1::GetTablesResponse tables, scheduler.GetTables(job_id));
  return tables.routing();
}

struct ExportArguments {
  std::string job;
  std::string directory;
  std::string since;  // Folder of an earlier export. Empty: export all rows.
  bool consistent = false;
};

// Returns the earlier export of each sparse table in arguments.since, in the tables' order. Empty:
// export all rows.
absl::StatusOr<std::vector<EarlierExport>> FindEarlier(const ExportArguments& arguments,
                                                       const v1::GetTablesResponse& response) {
  std::vector<EarlierExport> earlier;
  if (arguments.since.empty()) return earlier;
  CAPSTAN_ASSIGN_OR_RETURN(const v1::ModelManifest manifest, ReadModelManifest(arguments.since));
  for (const v1::TableSpec& table : response.tables()) {
    if (!table.has_sparse()) continue;
    CAPSTAN_ASSIGN_OR_RETURN(EarlierExport found,
                             FindEarlierExport(arguments.since, manifest, arguments.job, table));
    earlier.push_back(std::move(found));
  }
  return earlier;
}

// Reads the rows of all sparse tables of `response`, and writes their files.
absl::StatusOr<std::vector<TableRows>> ExportSparseTables(SchedulerClient& scheduler,
                                                          const ExportArguments& arguments,
                                                          const v1::GetTablesResponse& response) {
  const std::string& job_id = arguments.job;
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<EarlierExport> earlier,
                           FindEarlier(arguments, response));
  const SteadyClock clock;
  RenewedCapability capability(response.capability(), [&]() -> absl::StatusOr<std::string> {
    CAPSTAN_ASSIGN_OR_RETURN(const auto newest, scheduler.GetTables(job_id));
    return newest.capability();
  });
  GrpcRowSource source({.newest_routing = [&] { return RoutingOfRunning(scheduler, job_id); },
                        .credentials = scheduler.credentials(),
                        .capability = [&] { return capability.Get(absl::Now()); }});
  TableScan::Options options;
  options.caller.set_job_id(job_id);
  options.caller.set_rank(-1);
  std::vector<TableRows> exported;
  for (const v1::TableSpec& table : response.tables()) {
    if (!table.has_sparse()) continue;
    const EarlierExport* since = earlier.empty() ? nullptr : &earlier[exported.size()];
    CAPSTAN_ASSIGN_OR_RETURN(TableRows rows, ExportRows(options, table, response.routing(),
                                                        arguments.directory, clock, source, since));
    exported.push_back(std::move(rows));
  }
  return exported;
}

absl::StatusOr<std::vector<std::string>> ExportRunning(SchedulerClient& scheduler,
                                                       const v1::JobStatus& job,
                                                       const ExportArguments& arguments) {
  CAPSTAN_ASSIGN_OR_RETURN(const auto found, scheduler.GetTables(job.job_id()));
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<TableRows> rows,
                           ExportSparseTables(scheduler, arguments, found));
  // The reading of rows takes time, so the routing table may have changed.
  CAPSTAN_ASSIGN_OR_RETURN(const auto response, scheduler.GetTables(job.job_id()));
  std::vector<std::unique_ptr<ServerClient>> servers;
  for (const v1::ServerAddress& server : response.routing().servers()) {
    servers.push_back(std::make_unique<ServerClient>(server.node_id(), server.address(),
                                                     scheduler.credentials()));
  }
  const auto pull = [&](int server, const v1::PullRequest& request) {
    return servers[static_cast<size_t>(server)]->Pull(request, response.capability());
  };
  CAPSTAN_ASSIGN_OR_RETURN(const auto tables, PullTables(job.job_id(), response, pull));
  std::vector<TableValues> values;
  for (const PulledTable& table : tables) {
    values.push_back({&table.spec, table.version, table.values});
  }
  const std::string since =
      arguments.since.empty() ? "" : std::filesystem::absolute(arguments.since).string();
  CAPSTAN_RETURN_IF_ERROR(WriteModelFiles(arguments.directory, job.job_id(), job.effective_spec(),
                                          values, rows, since));
  return ModelFilesIn(arguments.directory);
}

int Placement(const Settings& settings, const std::string& job_id) {
  SchedulerClient scheduler(settings.scheduler, settings.credentials.get());
  auto tables = scheduler.GetTables(job_id);
  if (!tables.ok()) return Fail(tables.status());
  tables->clear_capability();  // A secret.
  Print(settings.format() == OutputFormat::kJson ? ToJson(*tables) : PlacementTable(*tables));
  return kExitDone;
}

// Exports from a new checkpoint, which all servers capture while the job is paused.
absl::StatusOr<std::vector<std::string>> ExportConsistent(SchedulerClient& scheduler,
                                                          const ExportArguments& arguments) {
  CAPSTAN_ASSIGN_OR_RETURN(const v1::SaveCheckpointResponse saved,
                           SaveCheckpoint(scheduler, arguments.job));
  PosixDisk disk;
  return ExportCheckpoint(disk, saved.folder(), arguments.directory);
}

// Errors: kInvalidArgument, kFailedPrecondition  an export since arguments.since is not possible.
absl::Status CheckSince(const ExportArguments& arguments, const v1::JobStatus& job) {
  if (arguments.since.empty()) return absl::OkStatus();
  std::error_code missing;
  if (std::filesystem::equivalent(arguments.since, arguments.directory, missing)) {
    return absl::InvalidArgumentError(absl::StrCat("--since and --directory are both ",
                                                   arguments.since, ": expected two folders"));
  }
  if (!HasEnded(job.state())) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(arguments.job, " has ended, and no server knows any more what changed since ",
                   arguments.since, ": export it without --since"));
}

absl::StatusOr<std::vector<std::string>> CopyModel(const v1::JobStatus& job,
                                                   const std::string& directory) {
  const std::string& folder =
      job.model_directory().empty() ? job.output_directory() : job.model_directory();
  auto files = CopyModelFiles(folder, directory);
  if (files.ok() || !absl::IsNotFound(files.status())) return files;
  return Annotate(files.status(), absl::StrCat("the model of ", job.job_id(), " is written to ",
                                               PathOn(job.output_host(), folder)));
}

int ExportTable(const Settings& settings, const ExportArguments& arguments) {
  SchedulerClient scheduler(settings.scheduler, settings.credentials.get());
  const auto job = scheduler.GetJob(arguments.job);
  if (!job.ok()) return Fail(job.status());
  const absl::Status possible = CheckSince(arguments, *job);
  if (!possible.ok()) return Fail(possible);
  const auto files = HasEnded(job->state()) ? CopyModel(*job, arguments.directory)
                     : arguments.consistent ? ExportConsistent(scheduler, arguments)
                                            : ExportRunning(scheduler, *job, arguments);
  if (!files.ok()) return Fail(files.status());
  const std::filesystem::path directory = std::filesystem::absolute(arguments.directory);
  TableExportOutput output;
  std::string lines;
  for (const std::string& file : *files) {
    const std::string path = (directory / file).string();
    absl::StrAppend(&lines, path, "\n");
    if (file == kModelTensorsFile) {
      output.set_tensors(path);
    } else if (file == kModelManifestFile) {
      output.set_manifest(path);
    } else if (absl::StartsWith(file, "removed-")) {
      output.add_removed(path);
    } else {
      output.add_rows(path);
    }
  }
  Print(settings.format() == OutputFormat::kJson ? ToJson(output) : lines);
  return kExitDone;
}

}  // namespace

void AddTableCommands(Command table, CommandLine& line) {
  auto job_id = std::make_shared<std::string>();
  AddCommand(
      table, "list", "The tables that servers hold: shards, memory, versions, pushes",
      "  capstan table list\n  capstan table list lenet-1 -o json\n"
      "Of sparse tables also: ROWS that are there, ADMITTED ones in all, REFUSED pushes of keys "
      "without a row,\nrows that left because they were TOO OLD, or because there were TOO MANY, "
      "rows "
      "that lie ON DISK.",
      line, [job_id](const Settings& settings) { return List(settings, *job_id); })
      .AddOption("JOB", *job_id, "Only this job's");

  auto busy = std::make_shared<std::string>();
  AddCommand(table, "traffic",
             "What servers were asked since they started: calls, bytes, how long they took",
             "  capstan table traffic\n  capstan table traffic lenet-1 -o json\n"
             "WORK is a call's own time with its wait for the job's lock, ANSWER the time until "
             "its answer\nwas sent: a pull may wait for other workers.\n"
             "Of jobs with sparse tables also: KEY LISTS that are kept now, lists that were NAMED "
             "by pulls, USED again\nwithout their keys, or UNKNOWN (dropped; then keys travel "
             "once more).",
             line, [busy](const Settings& settings) { return Traffic(settings, *busy); })
      .AddOption("JOB", *busy, "Only servers that hold this job");

  AddTableRead(table, line);

  auto placed = std::make_shared<std::string>();
  AddCommand(table, "placement",
             "Which server is the primary of each shard, and where replicas are",
             "  capstan table placement lenet-1\n  capstan table placement lenet-1 -o json", line,
             [placed](const Settings& settings) { return Placement(settings, *placed); })
      .AddOption("JOB", *placed, "Id of the job")
      .Required();

  auto arguments = std::make_shared<ExportArguments>();
  Command command = AddCommand(
      table, "export", "Write a job's model as safetensors, also while it trains",
      "  capstan table export lenet-1 --directory model\n"
      "  capstan table export ctr-1 -O delta-1 --since model    # rows that changed since then\n"
      "A running job's shards are read one after the other: they may differ by a few updates.\n"
      "Each sparse table becomes a file of its own, rows-NAME.safetensors, with \"keys\" and "
      "\"rows\";\nmodel.json names it. While it is written the folder needs room for the rows "
      "twice.\nWith --since only rows that changed since the export in that folder, and in "
      "removed-NAME.safetensors the\nkeys whose rows have left; common/tensor/README.md says how "
      "to apply them.\nWith --consistent a checkpoint is taken, which all servers copy while the "
      "job is quiet, and exported:\nunder BSP all is of one iteration. This machine must see its "
      "folder; it stays as others do.",
      line, [arguments](const Settings& settings) { return ExportTable(settings, *arguments); });
  command.AddOption("JOB", arguments->job, "Id of the job").Required();
  command
      .AddOption("-O,--directory", arguments->directory,
                 "Folder for model.safetensors, rows-*.safetensors and model.json; made if missing")
      .Required()
      .ValueName("FOLDER");
  command
      .AddOption("--since", arguments->since,
                 "Folder of an earlier export of the job: only what changed of its rows")
      .ValueName("FOLDER")
      .Excludes(command.AddFlag("--consistent", arguments->consistent,
                                "All tables at one moment: by way of a new checkpoint"));
}

}  // namespace capstan::cli
