#include "common/tensor/model_file.h"

#include <google/protobuf/util/json_util.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/tensor/safetensors/durable_file.h"
#include "common/tensor/safetensors/safetensors.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::model_file_test {
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

TEST_CASE("Model files: one dense table as a file has the bytes that its model has",
          "[common][tensor]") {
  const v1::TableSpec parameters = MakeTable(0, "parameters", v1::OPTIMIZER);
  const std::vector<float> values = {1, 2, 3, 4};
  const std::string model = TestPath("of-one"), file = model + "/now.safetensors";
  REQUIRE_OK(WriteModelFiles(model, "shirt-1", {}, {{&parameters, 12, values}}));
  REQUIRE_OK(WriteTableFile(file, {.spec = &parameters, .values = values}));
  CHECK(ReadFile(file) == ReadFile(model + "/model.safetensors"));
  const auto few = absl::MakeConstSpan(values).first(3);
  CHECK_STATUS(WriteTableFile(file, {.spec = &parameters, .values = few}),
               absl::StatusCode::kInvalidArgument, "has 3 values, expected 4");
}

v1::TableSpec MakeSparseTable(const std::string& name) {
  v1::TableSpec spec;
  spec.set_table(2);
  spec.set_name(name);
  spec.set_rule(v1::OPTIMIZER);
  spec.set_elements(8);
  spec.mutable_sparse()->set_dim(5);
  spec.mutable_sparse()->set_buckets(8);
  return spec;
}

TEST_CASE("Model files: the manifest names the rows of sparse tables", "[common][tensor]") {
  const v1::TableSpec parameters = MakeTable(0, "parameters", v1::OPTIMIZER);
  const v1::TableSpec rows = MakeSparseTable("features");
  const std::vector<float> p = {1, 2, 3, 4};
  const std::string folder = TestPath("sparse");
  CHECK_STATUS(ModelFilesIn(folder), absl::StatusCode::kNotFound, "model.json: no such file");
  REQUIRE_OK(MakeDirectories(folder));
  REQUIRE(mkfifo((folder + "/model.json").c_str(), 0600) == 0);
  CHECK_STATUS(ModelFilesIn(folder), absl::StatusCode::kPermissionDenied,
               folder + "/model.json: cannot be read: a pipe, expected a regular file");
  REQUIRE(unlink((folder + "/model.json").c_str()) == 0);
  REQUIRE_OK(WriteModelFiles(folder, "ctr-1", v1::JobSpec(), {{&parameters, 12, p}},
                             {{.spec = &rows, .version = 9, .count = 1234}}));
  v1::ModelManifest manifest;
  REQUIRE(google::protobuf::util::JsonStringToMessage(ReadFile(folder + "/model.json"), &manifest)
              .ok());
  CHECK(manifest.format() == 2);
  REQUIRE(manifest.tables_size() == 2);
  CHECK_FALSE(manifest.tables(0).has_rows());
  const v1::SavedTable& saved = manifest.tables(1);
  CHECK(saved.name() == "features");
  CHECK(saved.version() == 9);
  CHECK(saved.elements() == 8);
  CHECK(saved.rows().file() == "rows-features.safetensors");
  CHECK(saved.rows().count() == 1234);
  CHECK(saved.rows().dim() == 5);
  REQUIRE_OK_AND_ASSIGN(const auto files, ModelFilesIn(folder));
  CHECK(files ==
        std::vector<std::string>{"model.safetensors", "rows-features.safetensors", "model.json"});

  const v1::TableSpec bad = MakeSparseTable("a/b");
  CHECK_STATUS(WriteModelFiles(folder, "", v1::JobSpec(), {}, {{.spec = &bad}}),
               absl::StatusCode::kInvalidArgument, "table \"a/b\"");
}

TEST_CASE("Model files: a manifest that leads elsewhere is refused", "[common][tensor]") {
  const std::string folder = TestPath("elsewhere");
  REQUIRE_OK(MakeDirectories(folder));
  const auto files = [&](const std::string& json) {
    REQUIRE_OK(WriteFileDurably(folder + "/model.json", {json}));
    return ModelFilesIn(folder).status();
  };
  REQUIRE_OK(files("{}"));
  CHECK_STATUS(files("{"), absl::StatusCode::kDataLoss, "model.json is no manifest");
  for (const char* name : {"", ".", "..", "../x", "/etc/x", "a/", "a\\u0000"}) {
    CHECK_STATUS(
        files(std::string("{\"tables\":[{\"name\":\"t\",\"rows\":{\"file\":\"") + name + "\"}}]}"),
        absl::StatusCode::kDataLoss, "expected a file of the same folder");
  }
}

TEST_CASE("Model files: values that do not fit their table are refused", "[common][tensor]") {
  const v1::TableSpec spec = MakeTable(0, "parameters", v1::OPTIMIZER);
  const std::vector<float> values = {1, 2, 3};
  CHECK_STATUS(WriteModelFiles(TestPath("never"), "", v1::JobSpec(), {{&spec, 0, values}}),
               absl::StatusCode::kInvalidArgument, "table \"parameters\" has 3 values, expected 4");
}

}  // namespace
}  // namespace capstan::model_file_test
