#include "common/tensor/safetensors/mapped_rows.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "common/sparse/key_hash.h"
#include "common/tensor/safetensors/row_file.h"
#include "common/tensor/safetensors/safetensors.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::mapped_rows_test {
namespace {

using testing::ReadFile;
using testing::TestPath;

// The keys 10, 20, ..., in the order of files.
std::vector<uint64_t> Keys(uint64_t count) {
  std::vector<uint64_t> keys;
  for (uint64_t i = 1; i <= count; ++i) keys.push_back(10 * i);
  std::sort(keys.begin(), keys.end(),
            [](uint64_t a, uint64_t b) { return KeyHash(a) < KeyHash(b); });
  return keys;
}

std::string Write(const std::string& name, const std::vector<uint64_t>& keys, int64_t dim) {
  const std::string path = TestPath(name);
  REQUIRE_OK_AND_ASSIGN(RowFileWriter file, RowFileWriter::Create(path, dim));
  for (const uint64_t key : keys) {
    std::vector<float> row;
    for (int64_t i = 0; i < dim; ++i) row.push_back(static_cast<float>(key) + 0.25f * float(i));
    REQUIRE_OK(file.Add({key}, row));
  }
  REQUIRE_OK(file.Finish());
  return path;
}

TEST_CASE("Mapped rows: every key has its row, and no other has one", "[tensor]") {
  for (const uint64_t count : {0, 1, 2, 1001}) {
    for (const int64_t dim : {1, 3}) {
      const std::string path = Write("rows-found.safetensors", Keys(count), dim);
      REQUIRE_OK_AND_ASSIGN(const MappedRows rows, MappedRows::Open(path));
      CHECK(rows.count() == static_cast<int64_t>(count));
      CHECK(rows.dim() == dim);
      for (uint64_t key = 0; key <= 10 * count + 10; key += 5) {
        const absl::Span<const float> row = rows.Find(key);
        const bool there = key % 10 == 0 && key > 0 && key <= 10 * count;
        REQUIRE(row.size() == (there ? static_cast<size_t>(dim) : 0));
        if (there) CHECK(row.front() == static_cast<float>(key));
        if (there) CHECK(row.back() == static_cast<float>(key) + 0.25f * float(dim - 1));
      }
    }
  }
}

TEST_CASE("Mapped rows: keys that cannot be searched are refused", "[tensor]") {
  std::vector<uint64_t> keys = Keys(5);
  std::swap(keys[1], keys[2]);
  CHECK_STATUS(MappedRows::Open(Write("rows-order.safetensors", keys, 2)),
               absl::StatusCode::kDataLoss, "expected ascending order of their hash");
  keys = {7, 7};
  CHECK_STATUS(MappedRows::Open(Write("rows-twice.safetensors", keys, 2)),
               absl::StatusCode::kDataLoss, "key 7 stands behind key 7");
}

TEST_CASE("Mapped rows: a file that is none of rows is named", "[tensor]") {
  CHECK_STATUS(MappedRows::Open(TestPath("none")), absl::StatusCode::kNotFound, "none");
  CHECK_STATUS(MappedRows::Open("/dev/zero"), absl::StatusCode::kPermissionDenied,
               "/dev/zero: cannot be read: a device");
  const std::string other = TestPath("other.safetensors");
  const std::vector<float> values = {1, 2};
  REQUIRE_OK(WriteSafetensors(other, {{"weight", {2}, values}}));
  CHECK_STATUS(MappedRows::Open(other), absl::StatusCode::kDataLoss, "expected a file of rows");
  const std::string whole = ReadFile(Write("rows-whole.safetensors", Keys(5), 2));
  for (const size_t bytes : {size_t{0}, size_t{7}, size_t{100}, whole.size() - 1}) {
    const std::string cut = TestPath("rows-cut.safetensors");
    std::ofstream(cut, std::ios::binary | std::ios::trunc) << whole.substr(0, bytes);
    CHECK_STATUS(MappedRows::Open(cut), absl::StatusCode::kDataLoss, cut);
  }
}

}  // namespace
}  // namespace capstan::mapped_rows_test
