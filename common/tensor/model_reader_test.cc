#include "common/tensor/model_reader.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "common/tensor/model_file.h"
#include "common/tensor/safetensors/durable_file.h"
#include "common/tensor/safetensors/row_file.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::model_reader_test {
namespace {

using testing::TestPath;

v1::TableSpec Table(const std::string& text) {
  v1::TableSpec table;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &table));
  return table;
}

const char kDense[] = R"pb(
  name: "parameters"
  rule: OPTIMIZER
  elements: 7
  tensors {
    name: "a.weight"
    shape: [ 2, 3 ]
    initializer { constant: 0 }
  }
  tensors {
    name: "a.bias"
    shape: [ 1 ]
    offset: 6
    initializer { constant: 0 }
  }
)pb";
const char kSparse[] = R"pb(
  table: 1
  name: "rows"
  rule: OPTIMIZER
  elements: 4
  sparse {
    dim: 2
    buckets: 4
    initializer { constant: 0 }
  }
)pb";
const std::vector<float> kValues = {1, 2, 3, 4, 5, 6, 7};

std::string Write(const std::string& name, const std::string& since = "") {
  const std::string folder = TestPath(name);
  REQUIRE_OK(MakeDirectories(folder));
  const v1::TableSpec dense = Table(kDense), sparse = Table(kSparse);
  REQUIRE_OK_AND_ASSIGN(RowFileWriter rows,
                        RowFileWriter::Create(folder + "/rows-rows.safetensors", 2));
  REQUIRE_OK(rows.Add({9}, {0.5f, 1.5f}));
  REQUIRE_OK(rows.Finish());
  REQUIRE_OK(WriteModelFiles(folder, "job-1", {}, {{&dense, 3, kValues}},
                             {{.spec = &sparse, .version = 3, .count = 1}}, since));
  return folder;
}

TEST_CASE("Model reader: tables are those that were written", "[tensor]") {
  REQUIRE_OK_AND_ASSIGN(const ModelReader model, ModelReader::Open(Write("model")));
  CHECK(model.manifest().job_id() == "job-1");
  REQUIRE_OK_AND_ASSIGN(const std::vector<float> values, model.ReadTable(Table(kDense)));
  CHECK(values == kValues);
  REQUIRE_OK_AND_ASSIGN(const MappedRows rows, model.OpenRows(Table(kSparse)));
  REQUIRE(rows.Find(9).size() == 2);
  CHECK(rows.Find(9)[1] == 1.5f);
}

TEST_CASE("Model reader: a model of other tables is refused, with what was expected", "[tensor]") {
  REQUIRE_OK_AND_ASSIGN(const ModelReader model, ModelReader::Open(Write("model-other")));
  const auto code = absl::StatusCode::kInvalidArgument;
  v1::TableSpec table = Table(kDense);
  table.mutable_tensors(0)->set_shape(1, 2);
  CHECK_STATUS(model.ReadTable(table), code, "a.weight: found [2, 3], expected [2, 2]");
  table.mutable_tensors(0)->set_name("b.weight");
  CHECK_STATUS(model.ReadTable(table), code, "b.weight: found no such tensor, expected [2, 2]");
  table = Table(kSparse);
  table.mutable_sparse()->set_dim(3);
  CHECK_STATUS(model.OpenRows(table), code, "rows of 2 floats, expected 3");
  table.set_name("other");
  CHECK_STATUS(model.OpenRows(table), code, "table other has no rows there");
}

TEST_CASE("Model reader: what is no whole model is refused", "[tensor]") {
  CHECK_STATUS(ModelReader::Open(TestPath("none")), absl::StatusCode::kNotFound, "model.json");
  CHECK_STATUS(ModelReader::Open(Write("model-delta", "/exports/1")),
               absl::StatusCode::kInvalidArgument,
               "only what changed since the export in /exports/1");
  const std::string folder = Write("model-without-tensors");
  std::filesystem::remove(folder + "/model.safetensors");
  CHECK_STATUS(ModelReader::Open(folder), absl::StatusCode::kNotFound, "model.safetensors");
}

}  // namespace
}  // namespace capstan::model_reader_test
