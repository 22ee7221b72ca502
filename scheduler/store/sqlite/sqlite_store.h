// SqliteStore: a Store in one SQLite file. Only one scheduler at a time can use it.
//
// One table of (key, value, CRC-32C), write-ahead log, synchronous=FULL: a transaction is one
// append and one fsync. The file is locked for as long as the store is open.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_STORE_SQLITE_SQLITE_STORE_H_
#define CAPSTAN_SCHEDULER_STORE_SQLITE_SQLITE_STORE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "scheduler/store/store.h"

struct sqlite3;
struct sqlite3_stmt;

namespace capstan::scheduler {

class SqliteStore final : public Store {
 public:
  // Opens or creates the file `path`, which then has the versions of schema_version.h. Its folder
  // must exist.
  // Errors: kFailedPrecondition  another process has it open, or CheckVersions() refuses it.
  //         kDataLoss            it is not a store, or it is damaged.
  //         kUnavailable, kResourceExhausted  it cannot be created or read.   All name the path.
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(const std::string& path);
  ~SqliteStore() override;
  SqliteStore(const SqliteStore&) = delete;
  SqliteStore& operator=(const SqliteStore&) = delete;

  absl::StatusOr<StoreRows> Load() override;
  absl::Status Write(absl::Span<const StoreWrite> writes) override;

 private:
  // Finalizes a prepared SQLite statement.
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

  SqliteStore(std::string path, sqlite3* database);
  absl::Status Prepare();  // Locks the file, creates or checks the table.
  absl::Status CheckVersion();
  absl::Status SetVersion();
  absl::Status Run(const char* sql);
  absl::StatusOr<Statement> Compile(const char* sql);
  absl::StatusOr<int64_t> Number(const char* sql);  // Returns the number that `sql` selects.
  absl::Status Put(const StoreWrite& write);
  // Converts SQLite's `code` to a status, with `doing` and the path in its message.
  absl::Status Error(int code, const std::string& doing) const;

  const std::string path_;
  sqlite3* const database_;
  Statement insert_;
  Statement remove_;
  bool outdated_ = false;  // The file has an older version, which the next write raises.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_STORE_SQLITE_SQLITE_STORE_H_
