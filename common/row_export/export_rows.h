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
#include "common/types/progress.h"
#include "proto/checkpoint.pb.h"
#include "proto/parameter_server.pb.h"

namespace capstan {

// An earlier export of the same table, which a delta is applied to.
struct EarlierExport {
  std::string folder;
  v1::SavedRows rows;
};

// Finds the export of `table` in `folder`, whose manifest is `manifest`.
// Errors: kInvalidArgument  it is of another job or table, or cannot be the base of a delta; says
//         why.
absl::StatusOr<EarlierExport> FindEarlierExport(const std::string& folder,
                                                const v1::ModelManifest& manifest,
                                                const std::string& job_id,
                                                const v1::TableSpec& table);

// Writes rows-<table>.safetensors into `directory`, which is made if missing; on failure its files
// are as they were. Holds a few answers in memory. Returns the table's part of the manifest, which
// borrows `table`.
// With `earlier` it writes only rows that have changed since. Where rows may leave, it also writes
// the keys of those that have left, into removed-<table>.safetensors.
// `progress`: as RowFileWriter's.
// Errors: those of ScanTable, RowFileName, RowFileWriter and RemovedRows.
absl::StatusOr<TableRows> ExportRows(const TableScan::Options& options, const v1::TableSpec& table,
                                     const v1::RoutingTable& routing, const std::string& directory,
                                     const Clock& clock, RowSource& source,
                                     const EarlierExport* earlier = nullptr,
                                     const Progress& progress = nullptr);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_ROW_EXPORT_EXPORT_ROWS_H_
