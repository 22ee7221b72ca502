#include "server/log/kept_record.h"

#include <catch2/catch.hpp>
#include <memory>

#include "common/storage/testing/sim_disk.h"
#include "common/testing/status_matchers.h"

namespace capstan::server::kept_record_test {
namespace {

// Replaces the content of the record's file.
void Tamper(Disk& disk, const std::string& bytes) {
  REQUIRE_OK_AND_ASSIGN(const std::unique_ptr<WritableFile> file,
                        disk.Create(KeptRecordPath("log")));
  REQUIRE_OK(file->Append(bytes));
}

TEST_CASE("Kept record: what was kept last is read, whatever its size", "[server][storage]") {
  SimDisk disk(1);
  REQUIRE_OK(disk.MakeFolder("log"));
  CHECK_STATUS(ReadKeptRecord(disk, "log"), absl::StatusCode::kNotFound, "log/record");
  for (const std::string& record : {std::string("first"), std::string(), std::string(5000, 'x')}) {
    REQUIRE_OK(WriteKeptRecord(disk, "log", record));
    REQUIRE_OK_AND_ASSIGN(const std::string read, ReadKeptRecord(disk, "log"));
    CHECK(read == record);
  }
}

TEST_CASE("Kept record: a file that is torn or damaged is named", "[server][storage]") {
  SimDisk disk(1);
  REQUIRE_OK(disk.MakeFolder("log"));
  REQUIRE_OK(WriteKeptRecord(disk, "log", "where the job stands"));
  REQUIRE_OK_AND_ASSIGN(const std::string whole, disk.Read(KeptRecordPath("log"), 1000));
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    Tamper(disk, whole.substr(0, bytes));
    CHECK_STATUS(ReadKeptRecord(disk, "log"), absl::StatusCode::kDataLoss, "log/record");
    std::string flipped = whole;
    flipped[bytes] = static_cast<char>(flipped[bytes] ^ 4);
    Tamper(disk, flipped);
    CHECK_STATUS(ReadKeptRecord(disk, "log"), absl::StatusCode::kDataLoss, "log/record");
  }
}

}  // namespace
}  // namespace capstan::server::kept_record_test
