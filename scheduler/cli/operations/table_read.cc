#include "scheduler/cli/operations/table_read.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/snapshot/grpc_snapshot_source.h"
#include "common/snapshot/snapshot_reader.h"
#include "common/status/status_macros.h"
#include "common/time/clock.h"
#include "scheduler/cli/console.h"
#include "scheduler/cli/exit_code.h"
#include "scheduler/cli/view/format.h"
#include "scheduler/cli/view/node_view.h"
#include "scheduler/cli/view/output.pb.h"

namespace capstan::cli {
namespace {

struct ReadArguments {
  std::string job;
  std::string table;
  std::vector<uint64_t> keys;
};

absl::StatusOr<TableReadOutput> ReadTable(const Settings& settings,
                                          const ReadArguments& arguments) {
  const SteadyClock clock;
  GrpcSnapshotSource source({.scheduler = settings.scheduler.value});
  CAPSTAN_ASSIGN_OR_RETURN(const auto reader,
                           SnapshotReader::Open({.job_id = arguments.job}, clock, source));
  CAPSTAN_ASSIGN_OR_RETURN(const ReadRows rows, reader->Rows(arguments.table, arguments.keys));
  TableReadOutput output;
  output.set_job_id(arguments.job);
  output.set_snapshot_id(reader->id());
  output.set_iteration(reader->iteration());
  for (size_t i = 0; i < arguments.keys.size(); ++i) {
    TableRow& row = *output.add_rows();
    row.set_key(arguments.keys[i]);
    row.set_found(rows.has(i));
    if (rows.has(i)) row.mutable_values()->Add(rows.row(i).begin(), rows.row(i).end());
  }
  return output;
}

int Read(const Settings& settings, const ReadArguments& arguments) {
  const auto output = ReadTable(settings, arguments);
  if (!output.ok()) return Fail(output.status());
  Print(settings.format() == OutputFormat::kJson ? ToJson(*output) : RowsTable(*output));
  return kExitDone;
}

}  // namespace

void AddTableRead(CLI::App& table, CommandLine& line) {
  auto arguments = std::make_shared<ReadArguments>();
  CLI::App* command = AddCommand(
      table, "read", "Rows of a running job's sparse table, all of one moment",
      "  capstan table read ctr-1 features --keys 17,4711\n"
      "  capstan table read ctr-1 features --keys 17 -o json\n"
      "The job stands still for some milliseconds; then servers keep that moment for as long as it "
      "is read,\nwhile training goes on. A key that has no row is told so. Programs read in the "
      "same "
      "way by\ncommon/snapshot/snapshot_reader.h.",
      line, [arguments](const Settings& settings) { return Read(settings, *arguments); });
  command->add_option("JOB", arguments->job, "Id of the job")->required();
  command->add_option("TABLE", arguments->table, "Name of the table, as `table list` shows it")
      ->required();
  command->add_option("--keys", arguments->keys, "Keys of rows, with commas between them")
      ->required()
      ->delimiter(',')
      ->type_name("KEY,...");
}

}  // namespace capstan::cli
