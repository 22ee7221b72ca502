#include "common/model/initial_rows.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/random/normal.h"
#include "common/random/philox.h"

namespace capstan::initial_rows_test {
namespace {

v1::Initializer Uniform(float bound) {
  v1::Initializer initializer;
  initializer.set_uniform_bound(bound);
  return initializer;
}

v1::Initializer Normal(float std) {
  v1::Initializer initializer;
  initializer.set_normal_std(std);
  return initializer;
}

std::vector<float> Row(const v1::Initializer& initializer, uint64_t seed, int32_t table,
                       int64_t dim, uint64_t key) {
  std::vector<float> row(static_cast<size_t>(dim), NAN);
  RowInitializer(initializer, seed, TableId(table), dim).Fill({key}, {row.data()});
  return row;
}

TEST_CASE("Initial rows: follow from seed, table, key and column alone", "[common][model]") {
  for (const v1::Initializer& initializer : {Uniform(0.5f), Normal(2.0f)}) {
    const std::vector<float> row = Row(initializer, 1, 2, 9, 77);
    CHECK(row == Row(initializer, 1, 2, 9, 77));
    CHECK(row != Row(initializer, 2, 2, 9, 77));
    CHECK(row != Row(initializer, 1, 3, 9, 77));
    CHECK(row != Row(initializer, 1, 2, 9, 78));
    // A shorter row is the beginning of a longer one.
    const std::vector<float> longer = Row(initializer, 1, 2, 30, 77);
    CHECK(std::equal(row.begin(), row.end(), longer.begin()));
  }
}

TEST_CASE("Initial rows: many at a time are those one by one", "[common][model]") {
  const int64_t dim = GENERATE(int64_t{1}, int64_t{2}, int64_t{7}, int64_t{64}, int64_t{501});
  for (const v1::Initializer& initializer : {Uniform(0.5f), Normal(2.0f)}) {
    constexpr size_t kRows = 64;
    std::vector<float> table(kRows * static_cast<size_t>(dim), NAN);
    std::vector<uint64_t> keys;
    std::vector<float*> rows;
    for (size_t i = 0; i < kRows; ++i) {
      keys.push_back(~uint64_t{0} / (i + 1));
      rows.push_back(table.data() + (kRows - 1 - i) * static_cast<size_t>(dim));
    }
    const RowInitializer initial(initializer, 1, TableId(2), dim);
    initial.Fill(keys, rows);
    initial.Fill({}, {});
    for (size_t i = 0; i < kRows; ++i) {
      CHECK(Row(initializer, 1, 2, dim, keys[i]) == std::vector<float>(rows[i], rows[i] + dim));
    }
  }
}

TEST_CASE("Initial rows: a normal one has the numbers of its key's blocks", "[common][model]") {
  const std::vector<float> row = Row(Normal(0.25f), 1, 2, 5, 77);
  const uint64_t stream = MixKey(MixKey(1, 0), 2);
  for (size_t c = 0; c < row.size(); ++c) {
    const auto words = Philox4x32(stream, 77, 2 + c / 2);
    const double number = NormalOf(words[2 * (c % 2)], words[2 * (c % 2) + 1]);
    CHECK(row[c] == static_cast<float>(number * 0.25));
  }
}

TEST_CASE("Initial rows: constants, and 0 where nothing is said", "[common][model]") {
  v1::Initializer constant;
  constant.set_constant(1.5f);
  CHECK(Row(constant, 1, 0, 3, 9) == std::vector<float>(3, 1.5f));
  CHECK(Row(v1::Initializer(), 1, 0, 3, 9) == std::vector<float>(3, 0.0f));
}

TEST_CASE("Initial rows: the first columns may start at 0", "[common][model]") {
  for (const v1::Initializer& initializer : {Uniform(0.5f), Normal(2.0f)}) {
    std::vector<float> expected = Row(initializer, 1, 2, 6, 77);
    std::vector<float> row(6, NAN);
    RowInitializer(initializer, 1, TableId(2), 6, 2).Fill({77}, {row.data()});
    expected[0] = expected[1] = 0.0f;
    CHECK(row == expected);
  }
}

TEST_CASE("Initial rows: have the mean and the spread that are asked for", "[common][model]") {
  constexpr int64_t kDim = 7;
  constexpr uint64_t kKeys = 20'000;
  const auto moments = [](const v1::Initializer& initializer) {
    const RowInitializer rows(initializer, 5, TableId(1), kDim);
    std::vector<float> row(kDim);
    double sum = 0;
    double squares = 0;
    for (uint64_t key = 0; key < kKeys; ++key) {
      rows.Fill({key}, {row.data()});
      for (const float value : row) {
        sum += value;
        squares += double{value} * value;
      }
    }
    const double n = static_cast<double>(kKeys) * kDim;
    return std::pair(sum / n, std::sqrt(squares / n));
  };
  const auto [uniform_mean, uniform_spread] = moments(Uniform(0.25f));
  CHECK(std::abs(uniform_mean) < 0.002);
  CHECK(uniform_spread == Approx(0.25 / std::sqrt(3.0)).epsilon(0.01));
  const auto [normal_mean, normal_spread] = moments(Normal(3.0f));
  CHECK(std::abs(normal_mean) < 0.05);
  CHECK(normal_spread == Approx(3.0).epsilon(0.01));
}

}  // namespace
}  // namespace capstan::initial_rows_test
