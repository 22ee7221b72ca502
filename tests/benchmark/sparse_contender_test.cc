#include "tests/benchmark/sparse_contender.h"

#include <catch2/catch.hpp>
#include <vector>

#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::benchmark::sparse_contender_test {
namespace {

constexpr char kServer[] = "server/capstan-server";

TEST_CASE("SparseContender: rows go on when another task takes over", "[benchmark]") {
  REQUIRE_OK_AND_ASSIGN(
      const auto contender,
      SparseContender::Start(
          {.server = kServer, .folder = testing::TestPath("contender"), .dim = 2}));
  const std::vector<uint64_t> keys = {7, 9, 7};
  const std::vector<float> gradients = {1, 2, 3, 4, 5, 6};
  REQUIRE_OK(contender->PushPull(keys, gradients));
  CHECK(contender->Sum(0, 0) == 6);  // Both rows of key 7.
  CHECK(contender->Sum(1, 1) == 4);
  REQUIRE_OK(contender->ExpectKeys(1000));
  REQUIRE_OK(contender->PushPull(keys, gradients));
  CHECK(contender->Sum(0, 0) == 12);
  CHECK(contender->Sum(1, 1) == 8);
}

}  // namespace
}  // namespace capstan::benchmark::sparse_contender_test
