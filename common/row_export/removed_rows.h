// RemovedRows: finds the keys of an earlier export that are no more there, while a scan goes by.
//
// Both stand in the order of buckets and places, so that one pass over the earlier file is enough.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_ROW_EXPORT_REMOVED_ROWS_H_
#define CAPSTAN_COMMON_ROW_EXPORT_REMOVED_ROWS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/tensor/safetensors/row_file.h"
#include "common/tensor/safetensors/row_key_reader.h"

namespace capstan {

class RemovedRows {
 public:
  // `earlier`: the file of the earlier export. `path`: the file for the keys that are no more
  // there, written as rows of no numbers; it is there once Finish has returned.
  // Errors: those of RowKeyReader::Open and RowFileWriter::Create.
  static absl::StatusOr<RemovedRows> Create(const std::string& earlier, const std::string& path);

  // Takes all keys of the scan behind those of the last call, up to the last one given here; each
  // list ascends by hash, and no key is in both. Errors: those of RowKeyReader and RowFileWriter.
  absl::Status Pass(absl::Span<const uint64_t> changed, absl::Span<const uint64_t> unchanged);
  // There are no more keys. Completes the file beside `path`, and returns how many keys are no more
  // there. Errors: as Pass.
  absl::StatusOr<int64_t> Complete();
  // Puts the file in its place. REQUIRES: Complete has returned. Errors: those of RowFileWriter.
  absl::Status Finish() { return file_.Finish(); }

 private:
  RemovedRows(RowKeyReader earlier, RowFileWriter file)
      : earlier_(std::move(earlier)), file_(std::move(file)) {}

  absl::Status PassKey(uint64_t key);
  absl::Status Remove();  // Notes the next earlier key as removed.
  absl::Status Flush();

  RowKeyReader earlier_;
  RowFileWriter file_;
  std::vector<uint64_t> gone_;  // Keys that are to be written.
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_ROW_EXPORT_REMOVED_ROWS_H_
