#include "common/row_export/removed_rows.h"

#include "common/sparse/key_hash.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr size_t kWrittenAtOnce = 1 << 13;

}  // namespace

absl::StatusOr<RemovedRows> RemovedRows::Create(const std::string& earlier,
                                                const std::string& path) {
  CAPSTAN_ASSIGN_OR_RETURN(RowKeyReader reader, RowKeyReader::Open(earlier));
  CAPSTAN_ASSIGN_OR_RETURN(RowFileWriter file, RowFileWriter::Create(path, 0));
  return RemovedRows(std::move(reader), std::move(file));
}

absl::Status RemovedRows::Pass(absl::Span<const uint64_t> changed,
                               absl::Span<const uint64_t> unchanged) {
  while (!changed.empty() || !unchanged.empty()) {
    const bool first =
        unchanged.empty() || (!changed.empty() && KeyHash(changed[0]) < KeyHash(unchanged[0]));
    absl::Span<const uint64_t>& next = first ? changed : unchanged;
    CAPSTAN_RETURN_IF_ERROR(PassKey(next[0]));
    next.remove_prefix(1);
  }
  return absl::OkStatus();
}

// Notes as removed the rows that precede `key` in the earlier file.
absl::Status RemovedRows::PassKey(uint64_t key) {
  while (earlier_.key().has_value() && KeyHash(*earlier_.key()) < KeyHash(key)) {
    CAPSTAN_RETURN_IF_ERROR(Remove());
  }
  return earlier_.key() == key ? earlier_.Next() : absl::OkStatus();
}

absl::Status RemovedRows::Remove() {
  gone_.push_back(*earlier_.key());
  if (gone_.size() == kWrittenAtOnce) CAPSTAN_RETURN_IF_ERROR(Flush());
  return earlier_.Next();
}

absl::Status RemovedRows::Flush() {
  CAPSTAN_RETURN_IF_ERROR(file_.Add(gone_, {}));
  gone_.clear();
  return absl::OkStatus();
}

absl::StatusOr<int64_t> RemovedRows::Complete() {
  while (earlier_.key().has_value()) CAPSTAN_RETURN_IF_ERROR(Remove());
  CAPSTAN_RETURN_IF_ERROR(Flush());
  CAPSTAN_RETURN_IF_ERROR(file_.Complete());
  return file_.rows();
}

}  // namespace capstan
