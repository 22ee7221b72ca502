#include "scheduler/store/sqlite/sqlite_store.h"

#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "scheduler/store/schema_version.h"
#include "scheduler/testing/temporary_folder.h"

namespace capstan::scheduler::sqlite_store_test {
namespace {

struct Folder {
  std::string path() const { return folder.path() + "/store.db"; }
  std::unique_ptr<SqliteStore> Open() const {
    auto store = SqliteStore::Open(path());
    REQUIRE_OK(store.status());
    return *std::move(store);
  }
  // Changes the file as the sqlite3 tool does.
  void Tamper(const std::string& sql) const {
    sqlite3* database = nullptr;
    REQUIRE(sqlite3_open(path().c_str(), &database) == SQLITE_OK);
    CHECK(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK);
    REQUIRE(sqlite3_close(database) == SQLITE_OK);
  }
  int64_t Version() const {
    sqlite3* database = nullptr;
    sqlite3_stmt* statement = nullptr;
    REQUIRE(sqlite3_open(path().c_str(), &database) == SQLITE_OK);
    sqlite3_prepare_v2(database, "PRAGMA user_version", -1, &statement, nullptr);
    REQUIRE(sqlite3_step(statement) == SQLITE_ROW);
    const int64_t version = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    REQUIRE(sqlite3_close(database) == SQLITE_OK);
    return version;
  }
  testing::TemporaryFolder folder;
};

TEST_CASE("SQLite store: what was written is there after closing, the newest of each key",
          "[scheduler][store]") {
  const Folder folder;
  const std::string binary("\0\xff\n'\"", 5);
  {
    const auto store = folder.Open();
    CHECK(store->Load()->empty());
    REQUIRE_OK(store->Write({{"a", "1"}, {"b", binary}, {"c", ""}, {"d", "gone"}}));
    REQUIRE_OK(store->Write({{"a", "2"}, {"d", std::nullopt}, {"never", std::nullopt}}));
    CHECK(*store->Load() == StoreRows{{"a", "2"}, {"b", binary}, {"c", ""}});
  }
  CHECK(*folder.Open()->Load() == StoreRows{{"a", "2"}, {"b", binary}, {"c", ""}});
}

TEST_CASE("SQLite store: what a killed process had written is there", "[scheduler][store]") {
  const Folder folder;
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const auto store = SqliteStore::Open(folder.path());
    const bool written = store.ok() && (*store)->Write({{"a", "1"}}).ok();
    kill(getpid(), written ? SIGKILL : SIGTERM);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WTERMSIG(status) == SIGKILL);
  CHECK(*folder.Open()->Load() == StoreRows{{"a", "1"}});
}

TEST_CASE("SQLite store: a second scheduler on the same folder is refused", "[scheduler][store]") {
  const Folder folder;
  auto store = folder.Open();
  CHECK_STATUS(SqliteStore::Open(folder.path()), absl::StatusCode::kFailedPrecondition,
               "another process has it open");
  REQUIRE_OK(store->Write({{"a", "1"}}));
  store.reset();
  REQUIRE_OK(SqliteStore::Open(folder.path()));
}

TEST_CASE("SQLite store: a store of another version, a foreign file and a bad folder are refused",
          "[scheduler][store]") {
  const Folder folder;
  SECTION("another version") {
    folder.Open().reset();
    const int64_t version = kSchemaVersion + GENERATE(-1, 1);
    folder.Tamper(absl::StrCat("PRAGMA user_version=", version));
    CHECK_STATUS(SqliteStore::Open(folder.path()), absl::StatusCode::kFailedPrecondition,
                 absl::StrCat("schema version ", version));
    CHECK(folder.Version() == version);
  }
  SECTION("an older one of that version is read, and is a new one from the first write on") {
    REQUIRE_OK(folder.Open()->Write({{"key", "1"}}));
    static_assert(kFieldsVersion > 0);
    folder.Tamper(absl::StrCat("PRAGMA user_version=", kSchemaVersion));
    CHECK(folder.Open()->Load()->size() == 1);
    CHECK(folder.Version() == kSchemaVersion);
    REQUIRE_OK(folder.Open()->Write({{"key", "2"}}));
    CHECK(folder.Version() == kSchemaVersion + 1000 * kFieldsVersion);
  }
  SECTION("a newer one of that version") {
    folder.Open().reset();
    folder.Tamper(
        absl::StrCat("PRAGMA user_version=", kSchemaVersion + 1000 * (kFieldsVersion + 1)));
    CHECK_STATUS(SqliteStore::Open(folder.path()), absl::StatusCode::kFailedPrecondition,
                 absl::StrCat("a store of fields version ", kFieldsVersion + 1));
  }
  SECTION("another program's database") {
    folder.Tamper("CREATE TABLE other(x)");
    CHECK_STATUS(SqliteStore::Open(folder.path()), absl::StatusCode::kDataLoss, "another program");
  }
  SECTION("no database") {
    std::ofstream(folder.path()) << std::string(5000, 'x');
    CHECK_STATUS(SqliteStore::Open(folder.path()), absl::StatusCode::kDataLoss, folder.path());
  }
  SECTION("no such folder") {
    CHECK_STATUS(SqliteStore::Open(folder.path() + "/none/store.db"),
                 absl::StatusCode::kUnavailable, "/none/store.db");
  }
}

TEST_CASE("SQLite store: a row whose bytes changed is named and refused", "[scheduler][store]") {
  const Folder folder;
  REQUIRE_OK(folder.Open()->Write({{"good", "1"}, {"bad", "1"}}));
  folder.Tamper("UPDATE rows SET value=x'32' WHERE key=CAST('bad' AS BLOB)");
  CHECK_STATUS(folder.Open()->Load(), absl::StatusCode::kDataLoss, "\"bad\"");
}

TEST_CASE("SQLite store: a write that fails leaves all as it was and says why",
          "[scheduler][store]") {
  const Folder folder;
  REQUIRE_OK(folder.Open()->Write({{"a", "1"}}));
  // The database refuses the second of the two rows.
  folder.Tamper(
      "CREATE TRIGGER full BEFORE INSERT ON rows WHEN NEW.key=CAST('b' AS BLOB) "
      "BEGIN SELECT RAISE(ABORT, 'no room'); END");
  const auto store = folder.Open();
  CHECK_STATUS(store->Write({{"a", "2"}, {"b", "1"}}), absl::StatusCode::kUnavailable, "no room");
  CHECK(*store->Load() == StoreRows{{"a", "1"}});
}

}  // namespace
}  // namespace capstan::scheduler::sqlite_store_test
