#include "common/model/initial_values.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/model/plan_model.h"
#include "common/model/tables.h"
#include "common/random/philox.h"
#include "common/testing/status_matchers.h"

namespace capstan::initial_values_test {
namespace {

v1::TableSpec MixedTable() {
  v1::TableSpec table;
  table.set_table(3);
  const auto add = [&table](int64_t count) -> v1::Initializer& {
    v1::TensorSpec& tensor = *table.add_tensors();
    tensor.add_shape(count);
    tensor.set_offset(table.elements());
    table.set_elements(table.elements() + count);
    return *tensor.mutable_initializer();
  };
  add(1001).set_uniform_bound(0.25f);
  add(7).set_constant(2.0f);
  add(20000).set_normal_std(3.0f);
  table.set_rule(v1::OPTIMIZER);
  return table;
}

std::vector<float> Fill(const v1::TableSpec& table, uint64_t seed, int64_t begin, int64_t end) {
  std::vector<float> values(static_cast<size_t>(end - begin), NAN);
  FillInitialValues(table, seed, begin, absl::MakeSpan(values));
  return values;
}

TEST_CASE("Initial values: the same bits whatever the table is cut into", "[common][model]") {
  const v1::TableSpec table = MixedTable();
  REQUIRE_OK(ValidateTable(table));
  const std::vector<float> whole = Fill(table, 1, 0, table.elements());
  for (const int64_t cut : {1, 3, 4, 1000, 1001, 1005, 1008, 5001}) {
    for (const int64_t width : {0, 1, 2, 5, 333}) {
      const std::vector<float> part = Fill(table, 1, cut, cut + width);
      for (int64_t i = 0; i < width; ++i) CHECK(part[i] == whole[cut + i]);
    }
  }
}

TEST_CASE("Initial values: uniform stays in its bounds and follows the documented word",
          "[common][model]") {
  const std::vector<float> values = Fill(MixedTable(), 9, 0, 1001);
  double sum = 0;
  for (size_t e = 0; e < values.size(); ++e) {
    const uint32_t word = PhiloxWord(MixKey(MixKey(9, 0), 3), e);
    CHECK(values[e] == (2 * ToUnitFloat(word) - 1) * 0.25f);
    CHECK(values[e] >= -0.25f);
    CHECK(values[e] < 0.25f);
    sum += values[e];
  }
  CHECK(std::abs(sum / 1001) < 0.02);  // Standard error 0.0046.
}

TEST_CASE("Initial values: normal has the mean and spread asked for", "[common][model]") {
  const std::vector<float> values = Fill(MixedTable(), 1, 1008, 21008);
  double sum = 0, squares = 0;
  for (const float v : values) {
    REQUIRE(std::isfinite(v));
    sum += v;
    squares += static_cast<double>(v) * v;
  }
  CHECK(std::abs(sum / 20000) < 0.1);                           // Standard error 0.021.
  CHECK(std::sqrt(squares / 20000) == Approx(3).margin(0.07));  // Standard error 0.015.
}

TEST_CASE("Initial values: constants, and a seed and a table of their own", "[common][model]") {
  v1::TableSpec table = MixedTable();
  CHECK(Fill(table, 1, 1001, 1008) == std::vector<float>(7, 2.0f));
  const std::vector<float> first = Fill(table, 1, 0, 100);
  CHECK(first != Fill(table, 2, 0, 100));
  table.set_table(4);
  CHECK(first != Fill(table, 1, 0, 100));
}

}  // namespace
}  // namespace capstan::initial_values_test
