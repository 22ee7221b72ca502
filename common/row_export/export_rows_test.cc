#include "common/row_export/export_rows.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "common/row_export/fake_row_source.h"
#include "common/tensor/safetensors.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"
#include "common/time/clock.h"

namespace capstan {
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
}  // namespace capstan
