#include "common/row_export/export_rows.h"

#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "common/row_export/testing/fake_row_source.h"
#include "common/tensor/model_file.h"
#include "common/tensor/safetensors/safetensors.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"
#include "common/time/clock.h"

namespace capstan::export_rows_test {
namespace {

using testing::TestPath;

TableScan::Options Reader() {
  TableScan::Options options{.bytes_max = 200, .patience = absl::Seconds(1)};
  options.caller.set_rank(-1);
  return options;
}

absl::StatusOr<TableRows> Export(FakeRowSource& source, const std::string& folder) {
  return ExportRows(Reader(), source.table(), source.routing, folder, source.clock, source);
}

TEST_CASE("Export of rows: a file with every key's row, and what the manifest says of it",
          "[common]") {
  const int32_t dim = GENERATE(1, 4);
  const uint64_t count = GENERATE(0, 100);
  FakeRowSource source(3, dim);
  for (uint64_t key = 0; key < count; ++key) source.Put(key);
  source.before = [&](int call) {  // A failover on the way.
    if (call == 2) source.Route({"server-2"});
    return absl::OkStatus();
  };
  const std::string folder = TestPath("rows_" + std::to_string(dim) + "_" + std::to_string(count));
  REQUIRE_OK_AND_ASSIGN(const TableRows rows, Export(source, folder));
  CHECK(rows.spec == &source.table());
  CHECK(rows.count == static_cast<int64_t>(count));
  CHECK(rows.version == 10);
  REQUIRE_OK_AND_ASSIGN(const auto tensors, ReadSafetensors(folder + "/rows-features.safetensors"));
  REQUIRE(tensors.size() == 2);
  REQUIRE(tensors[0].keys.size() == count);
  CHECK(tensors[1].shape == std::vector<int64_t>{static_cast<int64_t>(count), dim});
  for (size_t i = 0; i < count; ++i) {
    const auto begin = tensors[1].values.begin() + static_cast<int64_t>(i) * dim;
    REQUIRE(std::vector<float>(begin, begin + dim) == source.Row(tensors[0].keys[i]));
  }
}

TEST_CASE("Export of rows: progress is told with every answer, and while rows are copied",
          "[common]") {
  FakeRowSource source(3, 4);
  for (uint64_t key = 0; key < 100; ++key) source.Put(key);
  int64_t bytes = 0;
  std::vector<int64_t> at_answers;
  source.before = [&](int) {
    at_answers.push_back(bytes);
    return absl::OkStatus();
  };
  const auto listen = [&](const std::string& what, int64_t more) {
    if (what == "bytes written") bytes += more;
  };
  REQUIRE_OK(ExportRows(Reader(), source.table(), source.routing, TestPath("told"), source.clock,
                        source, /*earlier=*/nullptr, listen));
  REQUIRE(at_answers.size() >= 10);
  CHECK(std::is_sorted(at_answers.begin(), at_answers.end()));
  CHECK(at_answers.back() > at_answers[5]);
  // Keys once, rows also into the temporary file; and a header.
  CHECK(bytes > 100 * (8 + 2 * 4 * 4));
}

std::vector<uint64_t> KeysIn(const std::string& path) {
  REQUIRE_OK_AND_ASSIGN(const auto tensors, ReadSafetensors(path));
  std::vector<uint64_t> keys = tensors.at(0).keys;
  std::sort(keys.begin(), keys.end());
  return keys;
}

absl::StatusOr<EarlierExport> Earlier(FakeRowSource& source, const std::string& folder,
                                      const TableRows& rows, const std::string& since = "") {
  REQUIRE_OK(WriteModelFiles(folder, "ctr-1", {}, {}, {rows}, since));
  REQUIRE_OK_AND_ASSIGN(const v1::ModelManifest manifest, ReadModelManifest(folder));
  return FindEarlierExport(folder, manifest, "ctr-1", source.table());
}

TEST_CASE("Export of rows: a delta has what changed since, and who has left", "[common]") {
  const bool leave = GENERATE(false, true);
  FakeRowSource source(3, 2);
  if (leave) source.mutable_table().mutable_sparse()->set_rows_max(1000);
  for (uint64_t key = 0; key < 100; ++key) source.Put(key);
  const std::string whole = TestPath("whole"), delta = TestPath("delta");
  REQUIRE_OK_AND_ASSIGN(const TableRows rows, Export(source, whole));
  CHECK(rows.bucket_versions == std::vector<int64_t>{10, 11, 12});
  REQUIRE_OK_AND_ASSIGN(const EarlierExport earlier, Earlier(source, whole, rows));
  source.Advance();
  for (const uint64_t key : {7, 8, 200}) source.Put(key);
  if (leave) {
    for (const uint64_t key : {0, 50, 99}) source.Erase(key);
  }
  REQUIRE_OK_AND_ASSIGN(
      const TableRows changed,
      ExportRows(Reader(), source.table(), source.routing, delta, source.clock, source, &earlier));
  CHECK(changed.count == 3);
  CHECK(changed.bucket_versions == std::vector<int64_t>{11, 12, 13});
  CHECK(KeysIn(delta + "/rows-features.safetensors") == std::vector<uint64_t>{7, 8, 200});
  CHECK(changed.removed.has_value() == leave);
  if (leave) {
    CHECK(*changed.removed == 3);
    CHECK(KeysIn(delta + "/removed-features.safetensors") == std::vector<uint64_t>{0, 50, 99});
  }
  const auto next = Earlier(source, delta, changed, whole);
  if (leave) {
    CHECK_STATUS(next, absl::StatusCode::kInvalidArgument, "is a delta, and rows of table");
  } else {
    REQUIRE_OK(next);
  }
  REQUIRE_OK_AND_ASSIGN(const std::vector<std::string> files, ModelFilesIn(delta));
  CHECK(files.size() == (leave ? 4 : 3));
}

TEST_CASE("Export of rows: a delta that does not fit leaves neither of its files", "[common]") {
  FakeRowSource source(2, 4);
  source.mutable_table().mutable_sparse()->set_rows_max(1000);
  source.Put(5000);
  const std::string whole = TestPath("small"), delta = TestPath("full");
  REQUIRE_OK_AND_ASSIGN(const TableRows rows, Export(source, whole));
  REQUIRE_OK_AND_ASSIGN(const EarlierExport earlier, Earlier(source, whole, rows));
  source.Advance();
  source.Erase(5000);
  for (uint64_t key = 0; key < 1000; ++key) source.Put(key);
  rlimit before;
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  // The removed key fits, and the rows and their keys do, but not in one file.
  const rlimit small = {.rlim_cur = 20'000, .rlim_max = before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const absl::Status status =
      ExportRows(Reader(), source.table(), source.routing, delta, source.clock, source, &earlier)
          .status();
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, old_handler);
  CHECK_FALSE(status.ok());
  CHECK(std::distance(std::filesystem::directory_iterator(delta), {}) == 0);
}

TEST_CASE("Export of rows: everything may have left, or nothing changed", "[common]") {
  FakeRowSource source(2, 1);
  source.mutable_table().mutable_sparse()->set_rows_max(1000);
  for (uint64_t key = 0; key < 40; ++key) source.Put(key);
  const std::string whole = TestPath("before"), delta = TestPath("after");
  REQUIRE_OK_AND_ASSIGN(const TableRows rows, Export(source, whole));
  REQUIRE_OK_AND_ASSIGN(const EarlierExport earlier, Earlier(source, whole, rows));
  source.Advance();
  const bool all_left = GENERATE(false, true);
  for (uint64_t key = 0; key < 40 && all_left; ++key) source.Erase(key);
  REQUIRE_OK_AND_ASSIGN(
      const TableRows changed,
      ExportRows(Reader(), source.table(), source.routing, delta, source.clock, source, &earlier));
  CHECK(changed.count == 0);
  CHECK(*changed.removed == (all_left ? 40 : 0));
}

TEST_CASE("Export of rows: what is no base of a delta is refused, with the reason", "[common]") {
  FakeRowSource source(2, 1);
  source.Put(1);
  const std::string whole = TestPath("base");
  REQUIRE_OK_AND_ASSIGN(const TableRows rows, Export(source, whole));
  REQUIRE_OK_AND_ASSIGN(const EarlierExport earlier, Earlier(source, whole, rows));
  REQUIRE_OK_AND_ASSIGN(v1::ModelManifest manifest, ReadModelManifest(whole));
  const auto find = [&] { return FindEarlierExport(whole, manifest, "ctr-1", source.table()); };
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  CHECK_STATUS(FindEarlierExport(whole, manifest, "ctr-2", source.table()), kInvalid,
               "is of job ctr-1, expected ctr-2");
  manifest.mutable_tables(0)->mutable_rows()->mutable_bucket_versions()->RemoveLast();
  CHECK_STATUS(find(), kInvalid, "rows of 1 numbers in 1 buckets, expected 1 in 2");
  manifest.mutable_tables(0)->clear_rows();
  CHECK_STATUS(find(), kInvalid, "has no rows of table features");
  source.timeline = 3;  // It has gone back to a checkpoint.
  CHECK_STATUS(ExportRows(Reader(), source.table(), source.routing, TestPath("later"), source.clock,
                          source, &earlier),
               absl::StatusCode::kOutOfRange, "bucket 0");
}

TEST_CASE("Export of rows: a scan that fails leaves nothing", "[common]") {
  FakeRowSource source(2, 1);
  for (uint64_t key = 0; key < 100; ++key) source.Put(key);
  source.before = [](int call) {
    return call < 3 ? absl::OkStatus() : absl::UnavailableError("no answer");
  };
  const std::string folder = TestPath("failed");
  CHECK_STATUS(Export(source, folder), absl::StatusCode::kUnavailable, "server-1");
  CHECK(std::distance(std::filesystem::directory_iterator(folder), {}) == 0);
}

}  // namespace
}  // namespace capstan::export_rows_test
