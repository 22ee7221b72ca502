#include "server/store/sparse/rows/row_slab.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <set>
#include <utility>

#include "common/testing/status_matchers.h"

namespace capstan::server::row_slab_test {
namespace {

TEST_CASE("RowSlab: rows keep their key and their bytes while others are added",
          "[server][sparse]") {
  const int64_t row_bytes = GENERATE(8, 16, 136, 4104, 1 << 20);
  const uint64_t count = row_bytes > 4096 ? 20 : 200'000;
  RowSlab slab(row_bytes);
  for (uint64_t i = 0; i < count; ++i) {
    auto row = slab.Allocate(i * 3);
    REQUIRE_OK(row);
    std::memset(slab.At(*row) + 8, static_cast<int>(i % 251), static_cast<size_t>(row_bytes - 8));
  }
  int64_t wrong = 0;
  for (RowNumber row = 0; row < count; ++row) {
    wrong += slab.KeyAt(row) == row * uint64_t{3} ? 0 : 1;
    if (row_bytes == 8) continue;
    wrong += slab.At(row)[row_bytes - 1] == static_cast<char>(row % 251) ? 0 : 1;
  }
  CHECK(wrong == 0);
  CHECK(slab.rows() == static_cast<int64_t>(count));
  CHECK(slab.bytes() == static_cast<int64_t>(count) * row_bytes);
}

TEST_CASE("RowSlab: freed rows are used again before new ones", "[server][sparse]") {
  RowSlab slab(16);
  for (uint64_t i = 0; i < 100; ++i) REQUIRE_OK(slab.Allocate(i));
  for (RowNumber row = 10; row < 20; ++row) slab.Free(row);
  CHECK(slab.rows() == 90);
  std::set<RowNumber> rows;
  for (uint64_t i = 0; i < 10; ++i) {
    auto row = slab.Allocate(1000 + i);
    REQUIRE_OK(row);
    rows.insert(*row);
    CHECK(slab.KeyAt(*row) == 1000 + i);
  }
  CHECK(rows.size() == 10);
  CHECK(*rows.begin() == 10);
  CHECK(*rows.rbegin() == 19);
  CHECK(slab.bytes() == 100 * 16);
}

TEST_CASE("RowSlab: moves with its rows", "[server][sparse]") {
  RowSlab slab(24);
  REQUIRE_OK(slab.Allocate(77));
  RowSlab moved(std::move(slab));
  CHECK(moved.KeyAt(0) == 77);
  RowSlab other(8);
  REQUIRE_OK(other.Allocate(5));
  other = std::move(moved);
  CHECK(other.KeyAt(0) == 77);
  CHECK(other.rows() == 1);
}

}  // namespace
}  // namespace capstan::server::row_slab_test
