#include "common/tensor/model_file.h"

#include <google/protobuf/util/json_util.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/tensor/safetensors.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan {
namespace {

using testing::ReadFile;
using testing::TestPath;

v1::TableSpec MakeTable(int table, const std::string& name, v1::UpdateRule rule) {
  v1::TableSpec spec;
  spec.set_table(table);
  spec.set_name(name);
  spec.set_rule(rule);
  for (const char* tensor : {"a", "b"}) {
    v1::TensorSpec& out = *spec.add_tensors();
    out.set_name(name + "." + tensor);
    out.add_shape(2);
    out.set_offset(spec.elements());
    out.set_momentum(rule == v1::MOVING_AVERAGE ? 0.1f : 0.0f);
    spec.set_elements(spec.elements() + 2);
  }
  return spec;
}

TEST_CASE("Model files: tensors of all tables, and a manifest that says where they are from",
          "[common][tensor]") {
  const v1::TableSpec parameters = MakeTable(0, "parameters", v1::OPTIMIZER);
  const v1::TableSpec statistics = MakeTable(1, "statistics", v1::MOVING_AVERAGE);
  const std::vector<float> p = {1, 2, 3, 4}, s = {5, 6, 7, 8};
  v1::JobSpec job;
  job.set_name("shirt");
  const std::string first = TestPath("first/deep"), second = TestPath("second");
  const std::vector<TableValues> tables = {{&parameters, 12, p}, {&statistics, 11, s}};
  REQUIRE_OK(WriteModelFiles(first, "shirt-1", job, tables));
  REQUIRE_OK(WriteModelFiles(second, "", v1::JobSpec(), tables));

  REQUIRE_OK_AND_ASSIGN(const auto tensors, ReadSafetensors(first + "/model.safetensors"));
  REQUIRE(tensors.size() == 4);
  CHECK(tensors[1].name == "parameters.b");
  CHECK(tensors[1].values == std::vector<float>{3, 4});
  CHECK(tensors[3].values == std::vector<float>{7, 8});

  v1::ModelManifest manifest;
  REQUIRE(
      google::protobuf::util::JsonStringToMessage(ReadFile(first + "/model.json"), &manifest).ok());
  CHECK(manifest.job_id() == "shirt-1");
  CHECK(manifest.spec().name() == "shirt");
  CHECK(manifest.tensors_file() == "model.safetensors");
  REQUIRE(manifest.tables_size() == 2);
  CHECK(manifest.tables(0).version() == 12);
  REQUIRE(manifest.tensors_size() == 4);
  CHECK(manifest.tensors(2).table() == "statistics");
  CHECK(manifest.tensors(2).shape(0) == 2);

  // Equal values, other job: equal bytes.
  CHECK(ReadFile(first + "/model.safetensors") == ReadFile(second + "/model.safetensors"));
}

TEST_CASE("Model files: values that do not fit their table are refused", "[common][tensor]") {
  const v1::TableSpec spec = MakeTable(0, "parameters", v1::OPTIMIZER);
  const std::vector<float> values = {1, 2, 3};
  CHECK_STATUS(WriteModelFiles(TestPath("never"), "", v1::JobSpec(), {{&spec, 0, values}}),
               absl::StatusCode::kInvalidArgument, "table \"parameters\" has 3 values, expected 4");
}

}  // namespace
}  // namespace capstan
