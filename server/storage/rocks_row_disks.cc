#include "server/storage/rocks_row_disks.h"

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/perf_level.h>
#include <rocksdb/slice.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace capstan::server {
namespace {

constexpr size_t kReadMax = 512;  // Bodies of one MultiGet.
constexpr int kBackgroundThreads = 2;

// Number of the disk, then of the row, so that a disk's rows stand together in ascending order.
class Key {
 public:
  Key() = default;
  Key(uint32_t disk, RowNumber row) {
    const uint32_t parts[] = {__builtin_bswap32(disk), __builtin_bswap32(row)};
    std::memcpy(bytes_.data(), parts, sizeof(parts));
  }
  rocksdb::Slice slice() const { return {bytes_.data(), bytes_.size()}; }

 private:
  std::array<char, 8> bytes_ = {};
};

absl::Status StatusOf(const rocksdb::Status& status, absl::string_view what) {
  if (status.ok()) return absl::OkStatus();
  const std::string message = absl::StrCat(what, ": ", status.ToString());
  if (status.IsCorruption() || status.IsNotFound()) return absl::DataLossError(message);
  if (status.IsNoSpace()) return absl::ResourceExhaustedError(message);
  return absl::UnavailableError(message);
}

// Bodies are floats that look random and are read one by one: no compression, small blocks, a
// filter so that a read looks into one file.
rocksdb::Options MakeOptions() {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.error_if_exists = true;
  options.compression = rocksdb::kNoCompression;
  options.write_buffer_size = RocksRowDisks::kWriteBufferBytes / 4;
  options.db_write_buffer_size = RocksRowDisks::kWriteBufferBytes;
  options.max_write_buffer_number = 3;
  options.memtable_prefix_bloom_size_ratio = 0.1;  // Most rows that are read are not there.
  options.memtable_whole_key_filtering = true;
  options.target_file_size_base = 64 << 20;
  options.level_compaction_dynamic_level_bytes = true;
  options.max_background_jobs = kBackgroundThreads;
  options.keep_log_file_num = 1;
  options.max_open_files = 256;
  rocksdb::BlockBasedTableOptions table;
  table.block_size = 4096;
  table.block_cache = rocksdb::NewLRUCache(RocksRowDisks::kBlockCacheBytes);
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  table.data_block_index_type = rocksdb::BlockBasedTableOptions::kDataBlockBinaryAndHash;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

rocksdb::WriteOptions Unlogged() {
  rocksdb::WriteOptions options;
  options.disableWAL = true;
  return options;
}

}  // namespace

class RocksRowDisks::Disk final : public RowDisk {
 public:
  Disk(rocksdb::DB* db, uint32_t number, int64_t body_bytes)
      : db_(db), number_(number), body_bytes_(static_cast<size_t>(body_bytes)) {}

  ~Disk() override {
    db_->DeleteRange(Unlogged(), db_->DefaultColumnFamily(), Key(number_, 0).slice(),
                     Key(number_ + 1, 0).slice());
  }

  absl::Status Write(absl::Span<const RowNumber> rows,
                     absl::Span<const char* const> bodies) override {
    rocksdb::WriteBatch batch(rows.size() * (body_bytes_ + 16));
    for (size_t i = 0; i < rows.size(); ++i) {
      batch.Put(Key(number_, rows[i]).slice(), {bodies[i], body_bytes_});
    }
    return StatusOf(db_->Write(Unlogged(), &batch), "rows cannot be written to disk");
  }

  absl::Status Read(absl::Span<const RowNumber> rows, absl::Span<char* const> bodies) override {
    absl::Status status;
    for (size_t begin = 0; begin < rows.size() && status.ok(); begin += kReadMax) {
      status = ReadSome(rows.subspan(begin, kReadMax), bodies.subspan(begin, kReadMax));
    }
    return status;
  }

 private:
  absl::Status ReadSome(absl::Span<const RowNumber> rows, absl::Span<char* const> bodies) {
    std::array<Key, kReadMax> keys;
    std::array<rocksdb::Slice, kReadMax> slices;
    std::array<rocksdb::PinnableSlice, kReadMax> values;
    std::array<rocksdb::Status, kReadMax> statuses;
    for (size_t i = 0; i < rows.size(); ++i) {
      keys[i] = Key(number_, rows[i]);
      slices[i] = keys[i].slice();
    }
    rocksdb::SetPerfLevel(rocksdb::PerfLevel::kDisable);  // Of this thread: a tenth of the time.
    db_->MultiGet(rocksdb::ReadOptions(), db_->DefaultColumnFamily(), rows.size(), slices.data(),
                  values.data(), statuses.data(), /*sorted_input=*/true);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!statuses[i].ok()) {
        return StatusOf(statuses[i], absl::StrCat("row ", rows[i], " cannot be read from disk"));
      }
      if (values[i].size() != body_bytes_) {
        return absl::DataLossError(absl::StrCat("row ", rows[i], " on disk has ", values[i].size(),
                                                " bytes: expected ", body_bytes_));
      }
      std::memcpy(bodies[i], values[i].data(), body_bytes_);
    }
    return absl::OkStatus();
  }

  rocksdb::DB* const db_;
  const uint32_t number_;
  const size_t body_bytes_;
};

absl::StatusOr<std::unique_ptr<RocksRowDisks>> RocksRowDisks::Create(const std::string& folder) {
  const std::string what = absl::StrCat("folder for rows ", folder);
  const rocksdb::Options options = MakeOptions();
  const absl::Status emptied = StatusOf(rocksdb::DestroyDB(folder, options), what);
  if (!emptied.ok()) return emptied;
  rocksdb::DB* db = nullptr;
  const absl::Status opened = StatusOf(rocksdb::DB::Open(options, folder, &db), what);
  if (!opened.ok()) return opened;
  return std::unique_ptr<RocksRowDisks>(
      new RocksRowDisks(folder, std::unique_ptr<rocksdb::DB>(db)));
}

RocksRowDisks::RocksRowDisks(std::string folder, std::unique_ptr<rocksdb::DB> db)
    : folder_(std::move(folder)), db_(std::move(db)) {}

RocksRowDisks::~RocksRowDisks() {
  db_.reset();
  rocksdb::DestroyDB(folder_, MakeOptions());
}

std::unique_ptr<RowDisk> RocksRowDisks::Open(int64_t body_bytes) {
  return std::make_unique<Disk>(db_.get(), next_++, body_bytes);
}

}  // namespace capstan::server
