#include "scheduler/store/sqlite/sqlite_store.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/storage/crc32c.h"
#include "scheduler/store/schema_version.h"

namespace capstan::scheduler {
namespace {

constexpr int kApplicationId = 0x43505354;  // "CPST": marks a SQLite file as a store.
// PRAGMA user_version: kSchemaVersion + kFieldsUnit * kFieldsVersion.
constexpr int64_t kFieldsUnit = 1000;
static_assert(kSchemaVersion < kFieldsUnit);
constexpr int64_t kVersion = kSchemaVersion + kFieldsUnit * kFieldsVersion;

// The checksum covers the key, too, because a value under a wrong key is also damage.
int64_t Checksum(const std::string& key, const std::string& value) {
  Crc32c crc;
  crc.Add(key);
  crc.Add(value);
  return int64_t{crc.value()};
}

std::string Column(sqlite3_stmt* statement, int column) {
  const void* bytes = sqlite3_column_blob(statement, column);
  const auto size = static_cast<size_t>(sqlite3_column_bytes(statement, column));
  return size == 0 ? std::string() : std::string(static_cast<const char*>(bytes), size);
}

// Makes the name of a new file durable, by syncing its folder.
absl::Status SyncFolderOf(const std::string& path) {
  const std::string folder = std::filesystem::absolute(path).parent_path().string();
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = descriptor >= 0 && fsync(descriptor) == 0;
  const absl::Status status =
      synced ? absl::OkStatus()
             : absl::UnavailableError(absl::StrCat(folder, ": fsync: ", std::strerror(errno)));
  if (descriptor >= 0) close(descriptor);
  return status;
}

}  // namespace

void SqliteStore::Finalize::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}

SqliteStore::SqliteStore(std::string path, sqlite3* database)
    : path_(std::move(path)), database_(database) {}

SqliteStore::~SqliteStore() {
  insert_.reset();
  remove_.reset();
  sqlite3_close(database_);
}

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(const std::string& path) {
  sqlite3* database = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  const int code = sqlite3_open_v2(path.c_str(), &database, flags, nullptr);
  if (database == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(path, ": no memory to open it"));
  }
  std::unique_ptr<SqliteStore> store(new SqliteStore(path, database));
  if (code != SQLITE_OK) return store->Error(code, "open");
  CAPSTAN_RETURN_IF_ERROR(store->Prepare());
  return store;
}

absl::Status SqliteStore::Prepare() {
  sqlite3_extended_result_codes(database_, 1);
  // The first transaction takes the exclusive lock, which lasts until the file is closed.
  CAPSTAN_RETURN_IF_ERROR(Run("PRAGMA locking_mode=EXCLUSIVE"));
  CAPSTAN_RETURN_IF_ERROR(Run("PRAGMA journal_mode=WAL"));
  CAPSTAN_RETURN_IF_ERROR(Run("PRAGMA synchronous=FULL"));
  CAPSTAN_RETURN_IF_ERROR(Run("BEGIN IMMEDIATE"));
  const absl::Status checked = CheckVersion();
  CAPSTAN_RETURN_IF_ERROR(Run(checked.ok() ? "COMMIT" : "ROLLBACK"));
  CAPSTAN_RETURN_IF_ERROR(checked);
  CAPSTAN_ASSIGN_OR_RETURN(insert_,
                           Compile("INSERT OR REPLACE INTO rows(key, value, crc) VALUES(?,?,?)"));
  CAPSTAN_ASSIGN_OR_RETURN(remove_, Compile("DELETE FROM rows WHERE key=?"));
  return SyncFolderOf(path_);
}

absl::Status SqliteStore::CheckVersion() {
  CAPSTAN_ASSIGN_OR_RETURN(const int64_t application, Number("PRAGMA application_id"));
  CAPSTAN_ASSIGN_OR_RETURN(const int64_t version, Number("PRAGMA user_version"));
  CAPSTAN_ASSIGN_OR_RETURN(const int64_t tables, Number("SELECT count(*) FROM sqlite_master"));
  if (application == 0 && version == 0 && tables == 0) {
    CAPSTAN_RETURN_IF_ERROR(
        Run("CREATE TABLE rows(key BLOB PRIMARY KEY, value BLOB NOT NULL, crc INTEGER NOT NULL)"));
    CAPSTAN_RETURN_IF_ERROR(Run(absl::StrCat("PRAGMA application_id=", kApplicationId).c_str()));
    return SetVersion();
  }
  if (application != kApplicationId) {
    return absl::DataLossError(
        absl::StrCat(path_, ": a SQLite file of another program, expected a scheduler's store"));
  }
  const absl::Status readable = CheckVersions(version % kFieldsUnit, version / kFieldsUnit);
  outdated_ = version != kVersion;
  if (readable.ok()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path_, ": a store of ", readable.message(), ", or move the store away"));
}

absl::Status SqliteStore::SetVersion() {
  return Run(absl::StrCat("PRAGMA user_version=", kVersion).c_str());
}

absl::StatusOr<StoreRows> SqliteStore::Load() {
  CAPSTAN_ASSIGN_OR_RETURN(const Statement select, Compile("SELECT key, value, crc FROM rows"));
  StoreRows rows;
  int code = SQLITE_ROW;
  while ((code = sqlite3_step(select.get())) == SQLITE_ROW) {
    std::string key = Column(select.get(), 0);
    std::string value = Column(select.get(), 1);
    if (Checksum(key, value) != sqlite3_column_int64(select.get(), 2)) {
      return absl::DataLossError(
          absl::StrCat(path_, ": the row \"", key, "\" is damaged: its checksum does not match"));
    }
    rows.emplace(std::move(key), std::move(value));
  }
  if (code != SQLITE_DONE) return Error(code, "read");
  return rows;
}

absl::Status SqliteStore::Write(absl::Span<const StoreWrite> writes) {
  CAPSTAN_RETURN_IF_ERROR(Run("BEGIN IMMEDIATE"));
  // An older Capstan could not read the rows of this version.
  absl::Status status = outdated_ ? SetVersion() : absl::OkStatus();
  for (const StoreWrite& write : writes) {
    if (!status.ok()) break;
    status = Put(write);
  }
  if (status.ok()) status = Run("COMMIT");
  if (status.ok()) outdated_ = false;
  // SQLite may have rolled back by itself; then this ROLLBACK fails without harm.
  if (!status.ok()) Run("ROLLBACK").IgnoreError();
  return status;
}

absl::Status SqliteStore::Put(const StoreWrite& write) {
  sqlite3_stmt* statement = write.value ? insert_.get() : remove_.get();
  int code = sqlite3_bind_blob64(statement, 1, write.key.data(), write.key.size(), SQLITE_STATIC);
  if (write.value) {
    // SQLite would store a null pointer as NULL, not as an empty value.
    const char* bytes = write.value->empty() ? "" : write.value->data();
    if (code == SQLITE_OK) {
      code = sqlite3_bind_blob64(statement, 2, bytes, write.value->size(), SQLITE_STATIC);
    }
    if (code == SQLITE_OK) {
      code = sqlite3_bind_int64(statement, 3, Checksum(write.key, *write.value));
    }
  }
  if (code == SQLITE_OK) code = sqlite3_step(statement);
  const absl::Status status = code == SQLITE_DONE
                                  ? absl::OkStatus()
                                  : Error(code, absl::StrCat("write \"", write.key, "\""));
  sqlite3_reset(statement);
  sqlite3_clear_bindings(statement);
  return status;
}

absl::Status SqliteStore::Run(const char* sql) {
  const int code = sqlite3_exec(database_, sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code, sql);
}

absl::StatusOr<SqliteStore::Statement> SqliteStore::Compile(const char* sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(database_, sql, -1, &statement, nullptr);
  if (code != SQLITE_OK) return Error(code, sql);
  return Statement(statement);
}

absl::StatusOr<int64_t> SqliteStore::Number(const char* sql) {
  CAPSTAN_ASSIGN_OR_RETURN(const Statement statement, Compile(sql));
  const int code = sqlite3_step(statement.get());
  if (code != SQLITE_ROW) return Error(code, sql);
  return sqlite3_column_int64(statement.get(), 0);
}

absl::Status SqliteStore::Error(int code, const std::string& doing) const {
  const std::string what =
      absl::StrCat(path_, ": ", doing, ": ", sqlite3_errmsg(database_), " (SQLite ", code, ")");
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::FailedPreconditionError(
          absl::StrCat(path_, ": another process has it open; one scheduler a data folder"));
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
    case SQLITE_SCHEMA:
      return absl::DataLossError(what);
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(what);
    default:
      return absl::UnavailableError(what);
  }
}

}  // namespace capstan::scheduler
