#include "scheduler/cli/operations/table_read.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/model/tables.h"
#include "common/snapshot/grpc_snapshot_source.h"
#include "common/snapshot/snapshot_reader.h"
#include "common/status/status_macros.h"
#include "common/tensor/model_file.h"
#include "common/time/clock.h"
#include "scheduler/cli/console/console.h"
#include "scheduler/cli/console/exit_code.h"
#include "scheduler/cli/view/node_view.h"
#include "scheduler/cli/view/output.pb.h"
#include "scheduler/cli/view/text/format.h"

namespace capstan::cli {
namespace {

constexpr int64_t kPrintedMax = 1 << 20;  // Limit for the values of a dense table.

struct ReadArguments {
  std::string job;
  std::string table;
  std::vector<uint64_t> keys;
  std::string file;  // Empty: print the values.
};

absl::Status ReadRowsOf(const ReadArguments& arguments, SnapshotReader& reader,
                        TableReadOutput* output) {
  if (!arguments.file.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", arguments.table,
                     " is sparse: --file is for dense tables; `capstan table export` "
                     "writes all rows"));
  }
  if (arguments.keys.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", arguments.table, " is sparse: expected --keys"));
  }
  CAPSTAN_ASSIGN_OR_RETURN(const ReadRows rows, reader.Rows(arguments.table, arguments.keys));
  for (size_t i = 0; i < arguments.keys.size(); ++i) {
    TableRow& row = *output->add_rows();
    row.set_key(arguments.keys[i]);
    row.set_found(rows.has(i));
    if (rows.has(i)) row.mutable_values()->Add(rows.row(i).begin(), rows.row(i).end());
  }
  return absl::OkStatus();
}

absl::Status ReadDense(const ReadArguments& arguments, const v1::TableSpec& spec,
                       SnapshotReader& reader, TableReadOutput* output) {
  if (!arguments.keys.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", spec.name(), " is dense: it has no keys, and is read whole"));
  }
  if (arguments.file.empty() && spec.elements() > kPrintedMax) {
    return absl::InvalidArgumentError(absl::StrCat("table ", spec.name(), " has ", spec.elements(),
                                                   " values, expected at most ", kPrintedMax,
                                                   " to be printed: name a --file"));
  }
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<float> values, reader.Values(spec.name()));
  if (!arguments.file.empty()) {
    std::error_code error;
    const auto path = std::filesystem::absolute(arguments.file, error);
    output->set_file(error ? arguments.file : path.string());
    CAPSTAN_RETURN_IF_ERROR(WriteTableFile(output->file(), {.spec = &spec, .values = values}));
  }
  for (const v1::TensorSpec& tensor : spec.tensors()) {
    TableTensor& out = *output->add_tensors();
    out.set_name(tensor.name());
    *out.mutable_shape() = tensor.shape();
    if (!output->file().empty()) continue;
    const auto its = absl::MakeConstSpan(values).subspan(static_cast<size_t>(tensor.offset()),
                                                         static_cast<size_t>(ElementCount(tensor)));
    out.mutable_values()->Add(its.begin(), its.end());
  }
  return absl::OkStatus();
}

absl::StatusOr<TableReadOutput> ReadTable(const Settings& settings,
                                          const ReadArguments& arguments) {
  const SteadyClock clock;
  GrpcSnapshotSource source(
      {.scheduler = settings.scheduler.value, .credentials = settings.credentials.get()});
  CAPSTAN_ASSIGN_OR_RETURN(const auto reader,
                           SnapshotReader::Open({.job_id = arguments.job}, clock, source));
  TableReadOutput output;
  output.set_job_id(arguments.job);
  output.set_snapshot_id(reader->id());
  output.set_iteration(reader->iteration());
  CAPSTAN_ASSIGN_OR_RETURN(const v1::TableSpec* const spec, reader->SpecOf(arguments.table));
  CAPSTAN_RETURN_IF_ERROR(spec->has_sparse() ? ReadRowsOf(arguments, *reader, &output)
                                             : ReadDense(arguments, *spec, *reader, &output));
  return output;
}

int Read(const Settings& settings, const ReadArguments& arguments) {
  const auto output = ReadTable(settings, arguments);
  if (!output.ok()) return Fail(output.status());
  Print(settings.format() == OutputFormat::kJson ? ToJson(*output)
        : output->tensors().empty()              ? RowsTable(*output)
                                                 : TensorsTable(*output));
  return kExitDone;
}

}  // namespace

void AddTableRead(Command table, CommandLine& line) {
  auto arguments = std::make_shared<ReadArguments>();
  Command command = AddCommand(
      table, "read", "A table of a running job as it is at one moment: rows by key, or all values",
      "  capstan table read ctr-1 features --keys 17,4711\n"
      "  capstan table read ctr-1 features --keys 17 -o json\n"
      "  capstan table read lenet-1 parameters                  # a dense table's first values\n"
      "  capstan table read lenet-1 parameters --file now.safetensors\n"
      "The job stands still for some milliseconds; then servers keep that moment for as long as it "
      "is read,\nwhile training goes on. A key that has no row is told so. Of a dense table JSON "
      "has all values, or the\nfile has, which is written whole or not at all. Programs read in "
      "the same way by\ncommon/snapshot/snapshot_reader.h.",
      line, [arguments](const Settings& settings) { return Read(settings, *arguments); });
  command.AddOption("JOB", arguments->job, "Id of the job").Required();
  command.AddOption("TABLE", arguments->table, "Name of the table, as `table list` shows it")
      .Required();
  command
      .AddOption("--keys", arguments->keys, "Sparse tables: keys of rows, with commas between them")
      .SeparatedBy(',')
      .ValueName("KEY,...");
  command.AddOption("--file", arguments->file, "Dense tables: safetensors file for all values")
      .ValueName("FILE");
}

}  // namespace capstan::cli
