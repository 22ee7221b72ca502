// RocksRowDisks: rows that have no room in memory, in a RocksDB of this process.
//
// It is a place to put things, not a store: without a log or syncs of its own, emptied when it is
// opened. A body that was damaged on disk is noticed by RocksDB's checksums.
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_STORAGE_ROCKS_ROW_DISKS_H_
#define CAPSTAN_SERVER_STORAGE_ROCKS_ROW_DISKS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/sparse_table/row_disk.h"

namespace rocksdb {
class DB;
}

namespace capstan::server {

class RocksRowDisks final : public RowDisks {
 public:
  // Memory that it takes beside that of tables: for bodies on their way and blocks that were read.
  static constexpr int64_t kWriteBufferBytes = 64 << 20;
  static constexpr int64_t kBlockCacheBytes = 32 << 20;

  // Takes `folder` for itself: what is in it is deleted.
  // Errors: kUnavailable, kResourceExhausted  as of the disk; names the folder.
  static absl::StatusOr<std::unique_ptr<RocksRowDisks>> Create(const std::string& folder);
  ~RocksRowDisks() override;  // Deletes what is in the folder.

  std::unique_ptr<RowDisk> Open(int64_t body_bytes) override;

 private:
  class Disk;

  RocksRowDisks(std::string folder, std::unique_ptr<rocksdb::DB> db);

  const std::string folder_;
  std::unique_ptr<rocksdb::DB> db_;
  std::atomic<uint32_t> next_{0};  // The first part of the keys of the next RowDisk.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORAGE_ROCKS_ROW_DISKS_H_
