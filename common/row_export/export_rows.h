// ExportRows: a sparse table's rows, read from its servers and written as a file of the model.
//
//   GrpcRowSource source({.newest_routing = ...});
//   for each sparse table: ExportRows(options, spec, routing, folder, clock, source) -> TableRows
//   WriteModelFiles(folder, job_id, job, dense tables, those)
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_ROW_EXPORT_EXPORT_ROWS_H_
#define CAPSTAN_COMMON_ROW_EXPORT_EXPORT_ROWS_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/row_export/table_scan.h"
#include "common/tensor/model_file.h"
#include "common/time/clock.h"
#include "proto/parameter_server.pb.h"

namespace capstan {

// Writes rows-<table>.safetensors into `directory`, which is made if missing; on failure it is as
// it was. Memory: some answers. Returns what the manifest says; it borrows `table`.
// Errors: those of ScanTable, RowFileName and RowFileWriter.
absl::StatusOr<TableRows> ExportRows(const TableScan::Options& options, const v1::TableSpec& table,
                                     const v1::RoutingTable& routing, const std::string& directory,
                                     const Clock& clock, RowSource& source);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_ROW_EXPORT_EXPORT_ROWS_H_
