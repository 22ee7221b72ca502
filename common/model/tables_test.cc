#include "common/model/tables.h"

#include <catch2/catch.hpp>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/model/plan_model.h"
#include "common/testing/status_matchers.h"

namespace capstan::tables_test {
namespace {

std::vector<v1::TableSpec> ZooTables(const char* zoo) {
  v1::Model model;
  model.set_zoo(zoo);
  REQUIRE_OK_AND_ASSIGN(const ModelPlan plan, PlanModel(model, {32, 32, 3}, 10));
  return MakeTables(plan);
}

TEST_CASE("Tables: a model without batch normalisation has parameters only", "[common][model]") {
  const auto tables = ZooTables("lenet");
  REQUIRE(tables.size() == 1);
  CHECK(tables[0].name() == "parameters");
  CHECK(tables[0].table() == 0);
  CHECK(tables[0].rule() == v1::OPTIMIZER);
  REQUIRE(tables[0].tensors_size() == 8);
  CHECK(tables[0].tensors(2).name() == "conv2.weight");
  CHECK(tables[0].tensors(2).offset() == 75 * 20 + 20);
  CHECK(tables[0].tensors(2).initializer().uniform_bound() > 0);
  REQUIRE_OK(ValidateTable(tables[0]));
}

TEST_CASE("Tables: batch normalisation adds moving averages with their momentum",
          "[common][model]") {
  const auto tables = ZooTables("resnet20");
  REQUIRE(tables.size() == 2);
  CHECK(tables[1].name() == "statistics");
  CHECK(tables[1].table() == 1);
  CHECK(tables[1].rule() == v1::MOVING_AVERAGE);
  CHECK(tables[1].tensors(0).name() == "bn1.running_mean");
  CHECK(tables[1].tensors(0).momentum() == 0.1f);
  CHECK(tables[1].tensors(1).initializer().constant() == 1.0f);
  for (const v1::TableSpec& table : tables) REQUIRE_OK(ValidateTable(table));
}

TEST_CASE("Tables: a table from the network is checked before it is believed", "[common][model]") {
  v1::TableSpec table = ZooTables("resnet20")[1];
  const auto check = [&table](const char* message) {
    CHECK_STATUS(ValidateTable(table), absl::StatusCode::kInvalidArgument, message);
  };
  SECTION("offset") {
    table.mutable_tensors(1)->set_offset(17);
    check("table 1, tensor \"bn1.running_variance\": offset is 17, expected 16");
  }
  SECTION("negative dimension") {
    table.mutable_tensors(0)->set_shape(0, -16);
    check("shape has a dimension of -16, expected at least 1");
  }
  SECTION("overflowing product") {
    table.mutable_tensors(0)->add_shape(std::numeric_limits<int64_t>::max());
    check("a product of at most");
  }
  SECTION("elements") {
    table.set_elements(1);
    check("table 1: elements is 1, expected");
  }
  SECTION("rule") {
    table.set_rule(v1::UPDATE_RULE_UNSPECIFIED);
    check("table 1: rule is 0");
  }
  SECTION("momentum") {
    table.mutable_tensors(0)->set_momentum(0);
    check("momentum is 0, expected more than 0");
  }
  SECTION("initializer") {
    table.mutable_tensors(0)->mutable_initializer()->set_normal_std(
        std::numeric_limits<float>::infinity());
    check("initializer is inf");
  }
  SECTION("index") {
    table.set_table(-1);
    check("table is -1");
  }
}

TEST_CASE("Tables: memory has room for some rows of each bucket", "[common][model]") {
  v1::TableSpec table;
  table.set_rule(v1::OPTIMIZER);
  table.set_elements(16);
  table.mutable_sparse()->set_dim(8);
  table.mutable_sparse()->set_buckets(16);
  const int64_t least = SparseMemoryMin(table.sparse());
  table.mutable_sparse()->set_memory_bytes(least - 1);
  const std::string expected =
      absl::StrCat("sparse.memory_bytes is ", least - 1, ", expected ", least, " to ");
  CHECK_STATUS(ValidateTable(table), absl::StatusCode::kInvalidArgument, expected.c_str());
  table.mutable_sparse()->set_memory_bytes(least);
  REQUIRE_OK(ValidateTable(table));
}

TEST_CASE("Tables: a sparse table has a dim, buckets and no tensors", "[common][model]") {
  v1::TableSpec table;
  table.set_table(2);
  table.set_rule(v1::OPTIMIZER);
  table.set_elements(16);
  table.mutable_sparse()->set_dim(8);
  table.mutable_sparse()->set_buckets(16);
  REQUIRE_OK(ValidateTable(table));
  const auto check = [&table](const char* text) {
    CHECK_STATUS(ValidateTable(table), absl::StatusCode::kInvalidArgument, text);
  };
  SECTION("dim") {
    table.mutable_sparse()->set_dim(4097);
    check("table 2: sparse.dim is 4097, expected 1 to 4096");
  }
  SECTION("buckets") {
    table.mutable_sparse()->set_buckets(0);
    check("sparse.buckets is 0, expected 1 to 4096");
  }
  SECTION("columns that start at 0") {
    table.mutable_sparse()->set_zero_columns(9);
    check("sparse.zero_columns is 9, expected 0 to 8");
  }
  SECTION("admission") {
    v1::SparseSpec& sparse = *table.mutable_sparse();
    sparse.set_admit_after(256);
    check("sparse.admit_after is 256, expected 0 to 255");
    sparse.set_admit_after(-1);
    check("sparse.admit_after is -1, expected 0 to 255");
    sparse.set_admit_after(255);
    sparse.set_admission_keys((16 << 21) + 1);
    check("sparse.admission_keys is 33554433, expected 0 to 33554432");
    sparse.set_admission_keys(16 << 21);
    for (const float probability : {0.0f, 1.5f, std::numeric_limits<float>::quiet_NaN()}) {
      sparse.set_admit_probability(probability);
      check("expected more than 0 and at most 1");
    }
    sparse.set_admit_probability(1.0f);
    REQUIRE_OK(ValidateTable(table));
  }
  SECTION("eviction") {
    table.mutable_sparse()->set_evict_after_updates(-2);
    check("sparse.evict_after_updates is -2, expected 0 to 2147483647");
    table.mutable_sparse()->set_evict_after_updates(1);
    table.mutable_sparse()->set_ttl_seconds(315'360'001);
    check("sparse.ttl_seconds is 315360001, expected 0 to 315360000");
    table.mutable_sparse()->set_ttl_seconds(60);
    table.mutable_sparse()->set_rows_max(-1);
    check("sparse.rows_max is -1, expected 0 to 1099511627776");
    table.mutable_sparse()->set_rows_max(1);
    REQUIRE_OK(ValidateTable(table));
  }
  SECTION("elements") {
    table.set_elements(15);
    check("has 15 elements, 0 tensors and the rule OPTIMIZER, expected 16, its buckets");
  }
  SECTION("rule") {
    table.set_rule(v1::MOVING_AVERAGE);
    check("the rule MOVING_AVERAGE");
  }
  SECTION("initializer") {
    table.mutable_sparse()->mutable_initializer()->set_constant(
        std::numeric_limits<float>::quiet_NaN());
    check("initializer is nan");
  }
}

}  // namespace
}  // namespace capstan::tables_test
