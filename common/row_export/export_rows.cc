#include "common/row_export/export_rows.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/row_export/removed_rows.h"
#include "common/status/status_macros.h"
#include "common/tensor/safetensors/durable_file.h"
#include "common/tensor/safetensors/row_file.h"

namespace capstan {
namespace {

bool RowsMayLeave(const v1::TableSpec& table) {
  const v1::SparseSpec& rows = table.sparse();
  return rows.evict_after_updates() > 0 || rows.ttl_seconds() > 0 || rows.rows_max() > 0;
}

TableScan::Options WithSince(TableScan::Options options, const v1::TableSpec& table,
                             const EarlierExport* earlier) {
  if (earlier == nullptr) return options;
  const v1::SavedRows& rows = earlier->rows;
  options.since = {.versions = {rows.bucket_versions().begin(), rows.bucket_versions().end()},
                   .timelines = {rows.bucket_timelines().begin(), rows.bucket_timelines().end()},
                   .unchanged_keys = RowsMayLeave(table)};
  return options;
}

// Returns none if there is no earlier export, or if no row can have left.
absl::StatusOr<std::optional<RemovedRows>> MakeRemoved(const EarlierExport* earlier,
                                                       const v1::TableSpec& table,
                                                       const std::filesystem::path& folder) {
  if (earlier == nullptr || !RowsMayLeave(table)) return std::nullopt;
  CAPSTAN_ASSIGN_OR_RETURN(const std::string name, RemovedFileName(table.name()));
  return RemovedRows::Create(std::filesystem::path(earlier->folder) / earlier->rows.file(),
                             folder / name);
}

}  // namespace

absl::StatusOr<EarlierExport> FindEarlierExport(const std::string& folder,
                                                const v1::ModelManifest& manifest,
                                                const std::string& job_id,
                                                const v1::TableSpec& table) {
  const auto refuse = [&](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat(folder, ": ", why));
  };
  if (manifest.job_id() != job_id) {
    return refuse(absl::StrCat("is of job ", manifest.job_id(), ", expected ", job_id));
  }
  for (const v1::SavedTable& saved : manifest.tables()) {
    const v1::SavedRows& rows = saved.rows();
    if (saved.name() != table.name() || !saved.has_rows()) continue;
    const int buckets = table.sparse().buckets();
    if (rows.dim() != table.sparse().dim() || rows.bucket_versions_size() != buckets ||
        rows.bucket_timelines_size() != buckets) {
      return refuse(absl::StrCat("rows of ", rows.dim(), " numbers in ",
                                 rows.bucket_versions_size(), " buckets, expected ",
                                 table.sparse().dim(), " in ", buckets));
    }
    if (!manifest.since_folder().empty() && RowsMayLeave(table)) {
      return refuse(absl::StrCat("is a delta, and rows of table ", table.name(),
                                 " may leave: expected an export of all rows"));
    }
    return EarlierExport{.folder = folder, .rows = rows};
  }
  return refuse(absl::StrCat("has no rows of table ", table.name()));
}

absl::StatusOr<TableRows> ExportRows(const TableScan::Options& options, const v1::TableSpec& table,
                                     const v1::RoutingTable& routing, const std::string& directory,
                                     const Clock& clock, RowSource& source,
                                     const EarlierExport* earlier, const Progress& progress) {
  const TableScan::Options asked = WithSince(options, table, earlier);
  CAPSTAN_RETURN_IF_ERROR(TableScan::Make(asked, table, routing).status());
  CAPSTAN_ASSIGN_OR_RETURN(const std::string name, RowFileName(table.name()));
  CAPSTAN_RETURN_IF_ERROR(MakeDirectories(directory));
  const std::filesystem::path folder(directory);
  CAPSTAN_ASSIGN_OR_RETURN(RowFileWriter file,
                           RowFileWriter::Create(folder / name, table.sparse().dim(), progress));
  CAPSTAN_ASSIGN_OR_RETURN(std::optional<RemovedRows> removed, MakeRemoved(earlier, table, folder));
  const auto take = [&](const RowBatch& rows) {
    if (removed.has_value()) {
      CAPSTAN_RETURN_IF_ERROR(removed->Pass(rows.keys, rows.unchanged));
    }
    return file.Add(rows.keys, rows.values);
  };
  CAPSTAN_ASSIGN_OR_RETURN(ScannedTable scanned,
                           ScanTable(asked, table, routing, clock, source, take));
  TableRows exported{.spec = &table,
                     .version = scanned.version,
                     .count = scanned.rows,
                     .bucket_versions = std::move(scanned.versions),
                     .bucket_timelines = std::move(scanned.timelines)};
  // Both files are complete before one is in its place: a full disk leaves none of them.
  if (removed.has_value()) {
    CAPSTAN_ASSIGN_OR_RETURN(exported.removed, removed->Complete());
  }
  CAPSTAN_RETURN_IF_ERROR(file.Complete());
  if (removed.has_value()) CAPSTAN_RETURN_IF_ERROR(removed->Finish());
  CAPSTAN_RETURN_IF_ERROR(file.Finish());
  return exported;
}

}  // namespace capstan
