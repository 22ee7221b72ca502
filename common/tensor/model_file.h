// Model files: a trained model as it is handed to the user.
//
//   model.safetensors  every tensor of every dense table, in table order. No job id and no time:
//                      the bytes depend on names, shapes and values alone, so equal models have
//                      equal hashes.
//   rows-<table>.safetensors  keys and rows of a sparse table (row_file.h).
//   model.json         v1::ModelManifest as JSON: job, tables' versions, tensors' shapes, files of
//                      rows.
// Weights are laid out as kernels/op.h says (convolution OHWI, fully connected [units, inputs]).
// Thread safety: pure but for the files.
#ifndef CAPSTAN_COMMON_TENSOR_MODEL_FILE_H_
#define CAPSTAN_COMMON_TENSOR_MODEL_FILE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/types/ids.h"
#include "common/types/progress.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/parameter_server.pb.h"

namespace capstan {

inline constexpr char kModelTensorsFile[] = "model.safetensors";
inline constexpr char kModelManifestFile[] = "model.json";

// A table with its values. Borrowed for the call.
struct TableValues {
  const v1::TableSpec* spec = nullptr;  // ValidateTable accepts it.
  int64_t version = 0;                  // Updates applied; the lowest over its shards.
  absl::Span<const float> values;       // [spec->elements()]
};

// A sparse table whose file of rows, under the name of RowFileName, is in the folder already.
struct TableRows {
  const v1::TableSpec* spec = nullptr;  // ValidateTable accepts it.
  int64_t version = 0;                  // The lowest over its buckets.
  int64_t count = 0;                    // Rows.
  // Lowest version and timeline of each bucket; a later delta begins there.
  std::vector<int64_t> bucket_versions = {};
  std::vector<uint64_t> bucket_timelines = {};
  // In a delta: the number of keys whose rows have left, which are in the file of RemovedFileName.
  // None: there is no such file.
  std::optional<int64_t> removed = {};
};

// Writes model.safetensors and model.json into `directory`, which is made if missing; the manifest
// last, so that a manifest's tensors are always there. It names dense tables first, then sparse.
//   job_id        empty for a model made without a cluster
//   since_folder  of the export since which the rows are a delta; empty: all rows are there
//   progress      as WriteFileDurably's, of the tensors
//   exporter      the incarnation of the task that writes it; 0: no task does
// Errors: kInvalidArgument  a table's values do not fit its spec; RowFileName's.
//         else              those of WriteFileDurably and MakeDirectories.
absl::Status WriteModelFiles(const std::string& directory, const std::string& job_id,
                             const v1::JobSpec& job, absl::Span<const TableValues> tables,
                             absl::Span<const TableRows> sparse_tables = {},
                             const std::string& since_folder = "",
                             const Progress& progress = nullptr, Incarnation exporter = {});

// Writes the tensors of one dense table into the safetensors file `path`, whose folder must exist.
// For a model with one dense table, the bytes are those of its model.safetensors. The file does not
// have the table's version. Errors: as WriteModelFiles.
absl::Status WriteTableFile(const std::string& path, const TableValues& table);

// Errors: kNotFound  no manifest there; kDataLoss  it is none. Those of OpenRegularFile.
absl::StatusOr<v1::ModelManifest> ReadModelManifest(const std::string& directory);

// The files of a model that its manifest, the last of them, names. Their names have no folder.
// Errors: kNotFound  no manifest there; kDataLoss  it is none, or names a file elsewhere.
absl::StatusOr<std::vector<std::string>> ModelFilesIn(const std::string& directory);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TENSOR_MODEL_FILE_H_
