// RowFileWriter: writes the rows of a sparse table into a safetensors file as they come.
//
//   rows-<table>.safetensors   "keys" U64 [n], "rows" F32 [n, dim]: row i is that of keys[i]
//   removed-<table>.safetensors  of a delta: keys whose rows have left; dim is 0
//
// The header is padded with spaces to the same length for any n, and written last. Rows wait in a
// temporary file beside it until all keys are written (keys are in front, so that both tensors are
// aligned): memory is that of one call, but the disk needs room for the rows twice. The bytes
// depend on keys and rows alone.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_TENSOR_SAFETENSORS_ROW_FILE_H_
#define CAPSTAN_COMMON_TENSOR_SAFETENSORS_ROW_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/tensor/safetensors/durable_file.h"
#include "common/types/progress.h"

namespace capstan {

// The name of a table's file in its folder.
// Errors: kInvalidArgument  the table's name has other characters than letters, digits, "_", "-"
//                           and ".", which file names need not take.
absl::StatusOr<std::string> RowFileName(const std::string& table);
// Returns the name of the file of removed keys.
absl::StatusOr<std::string> RemovedFileName(const std::string& table);

class RowFileWriter {
 public:
  // `dim`: floats a row; 0: none. Until Finish, or if it is never called, `path` is as it was;
  // on failure nothing is left beside it. `progress`: as DurableFile's, also of the temporary file.
  // Errors of all: those of WriteFileDurably; then the writer can only be destroyed.
  static absl::StatusOr<RowFileWriter> Create(const std::string& path, int64_t dim,
                                              const Progress& progress = nullptr);

  // Any number of rows; `rows` [keys, dim]. Errors: also kInvalidArgument  they do not fit.
  absl::Status Add(absl::Span<const uint64_t> keys, absl::Span<const float> rows);
  // Writes what the file still lacks; `path` stays as it was. Its owner calls it before Finish if
  // other files are to be complete before this one is in its place. REQUIRES: no Add follows.
  absl::Status Complete();
  // Puts the file, completed if it was not, in its place. REQUIRES: called once, last of all.
  absl::Status Finish();

  int64_t rows() const { return rows_; }

 private:
  RowFileWriter(int64_t dim, std::unique_ptr<DurableFile> file,
                std::unique_ptr<DurableFile> row_bytes)
      : dim_(dim), file_(std::move(file)), row_bytes_(std::move(row_bytes)) {}

  int64_t dim_;
  int64_t rows_ = 0;
  std::unique_ptr<DurableFile> file_;       // Header and keys, in the end the rows.
  std::unique_ptr<DurableFile> row_bytes_;  // Never committed. Null: the file is complete.
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TENSOR_SAFETENSORS_ROW_FILE_H_
