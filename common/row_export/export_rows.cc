#include "common/row_export/export_rows.h"

#include <filesystem>

#include "common/status/status_macros.h"
#include "common/tensor/durable_file.h"
#include "common/tensor/row_file.h"

namespace capstan {

absl::StatusOr<TableRows> ExportRows(const TableScan::Options& options, const v1::TableSpec& table,
                                     const v1::RoutingTable& routing, const std::string& directory,
                                     const Clock& clock, RowSource& source) {
  CAPSTAN_RETURN_IF_ERROR(TableScan::Make(options, table, routing).status());
  CAPSTAN_ASSIGN_OR_RETURN(const std::string name, RowFileName(table.name()));
  CAPSTAN_RETURN_IF_ERROR(MakeDirectories(directory));
  CAPSTAN_ASSIGN_OR_RETURN(
      RowFileWriter file,
      RowFileWriter::Create(std::filesystem::path(directory) / name, table.sparse().dim()));
  CAPSTAN_ASSIGN_OR_RETURN(
      const ScannedTable scanned,
      ScanTable(options, table, routing, clock, source,
                [&](const RowBatch& rows) { return file.Add(rows.keys, rows.values); }));
  CAPSTAN_RETURN_IF_ERROR(file.Finish());
  return TableRows{.spec = &table, .version = scanned.version, .count = scanned.rows};
}

}  // namespace capstan
