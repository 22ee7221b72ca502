// MemoryRowDisks: RowDisks for tests: bodies in a map, and errors when asked for.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_SPARSE_TABLE_MEMORY_ROW_DISKS_H_
#define CAPSTAN_SERVER_SPARSE_TABLE_MEMORY_ROW_DISKS_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "server/sparse_table/row_disk.h"

namespace capstan::server {

class MemoryRowDisks final : public RowDisks {
 public:
  std::unique_ptr<RowDisk> Open(int64_t body_bytes) override {
    return std::make_unique<Disk>(this, static_cast<size_t>(body_bytes));
  }

  // The next calls fail with them.
  absl::Status write_error;
  absl::Status read_error;
  int64_t written = 0;  // Bodies.
  int64_t read = 0;

 private:
  class Disk final : public RowDisk {
   public:
    Disk(MemoryRowDisks* all, size_t body_bytes) : all_(all), body_bytes_(body_bytes) {}

    absl::Status Write(absl::Span<const RowNumber> rows,
                       absl::Span<const char* const> bodies) override {
      if (!all_->write_error.ok()) return all_->write_error;
      for (size_t i = 0; i < rows.size(); ++i) bodies_[rows[i]].assign(bodies[i], body_bytes_);
      all_->written += static_cast<int64_t>(rows.size());
      return absl::OkStatus();
    }

    absl::Status Read(absl::Span<const RowNumber> rows, absl::Span<char* const> bodies) override {
      if (!all_->read_error.ok()) return all_->read_error;
      for (size_t i = 0; i < rows.size(); ++i) {
        const auto it = bodies_.find(rows[i]);
        if (it == bodies_.end()) {
          return absl::DataLossError(absl::StrCat("row ", rows[i], " was never written"));
        }
        std::memcpy(bodies[i], it->second.data(), body_bytes_);
      }
      all_->read += static_cast<int64_t>(rows.size());
      return absl::OkStatus();
    }

   private:
    MemoryRowDisks* const all_;
    const size_t body_bytes_;
    absl::flat_hash_map<RowNumber, std::string> bodies_;
  };
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_SPARSE_TABLE_MEMORY_ROW_DISKS_H_
