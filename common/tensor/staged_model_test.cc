#include "common/tensor/staged_model.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "common/tensor/model_file.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;
using testing::ReadFile;
using testing::TestPath;

// A model of one table; `value` tells it from others.
void Write(const std::string& folder, float value, Incarnation exporter,
           const std::string& job = "shirt-1") {
  v1::TableSpec spec;
  spec.set_name("parameters");
  spec.set_rule(v1::OPTIMIZER);
  spec.set_elements(1);
  v1::TensorSpec& tensor = *spec.add_tensors();
  tensor.set_name("fc.bias");
  tensor.add_shape(1);
  const std::vector<float> values = {value};
  REQUIRE_OK(WriteModelFiles(folder, job, {}, {{&spec, 1, values}}, {}, "", nullptr, exporter));
}

Incarnation ExporterIn(const std::string& folder) {
  return Incarnation(ReadModelManifest(folder).value().incarnation());
}

TEST_CASE("Staged models: published, they take the place of what was there", "[common][tensor]") {
  const std::string out = TestPath("out"), staged = out + "/.export-0-7";
  Write(out, 1, Incarnation(3));
  Write(staged, 2, Incarnation(7));
  const std::string tensors = ReadFile(staged + "/model.safetensors");
  CHECK(ExporterIn(out) == Incarnation(3));
  CHECK(StagedModelsIn(out) == std::vector<std::string>{staged});
  REQUIRE_OK(PublishModel(staged, out, "shirt-1", Incarnation(7)));
  CHECK(ExporterIn(out) == Incarnation(7));
  CHECK(ReadFile(out + "/model.safetensors") == tensors);
  CHECK(StagedModelsIn(out).empty());
}

TEST_CASE("Staged models: a publication that was interrupted anywhere is completed by the next",
          "[common][tensor]") {
  const std::string out = TestPath("half"), staged = out + "/.export-0-7";
  Write(out, 1, Incarnation(3));
  Write(staged, 2, Incarnation(7));
  const std::string tensors = ReadFile(staged + "/model.safetensors");
  fs::rename(staged + "/model.safetensors", out + "/model.safetensors");
  SECTION("between two files") {}
  SECTION("before its folder was removed") {
    fs::rename(staged + "/model.json", out + "/model.json");
  }
  SECTION("before it was told") {
    fs::rename(staged + "/model.json", out + "/model.json");
    fs::remove_all(staged);
  }
  REQUIRE_OK(PublishModel(staged, out, "shirt-1", Incarnation(7)));
  CHECK(ExporterIn(out) == Incarnation(7));
  CHECK(ReadFile(out + "/model.safetensors") == tensors);
}

TEST_CASE("Staged models: what is not there is not taken for what was there before",
          "[common][tensor]") {
  const std::string out = TestPath("missing");
  const auto publish = [&] {
    return PublishModel(out + "/.export-0-7", out, "shirt-1", Incarnation(7));
  };
  CHECK_STATUS(publish(), absl::StatusCode::kNotFound, "/.export-0-7/model.json: no such file");
  Write(out, 1, Incarnation(6));
  CHECK_STATUS(publish(), absl::StatusCode::kNotFound, "no such file");
  Write(out, 1, Incarnation(7), "shirt-2");
  CHECK_STATUS(publish(), absl::StatusCode::kNotFound, "no such file");
  CHECK(ReadModelManifest(out)->job_id() == "shirt-2");
}

TEST_CASE("Staged models: a file that cannot be moved is named, and the manifest stays",
          "[common][tensor]") {
  const std::string out = TestPath("taken"), staged = out + "/.export-0-7";
  Write(staged, 2, Incarnation(7));
  fs::create_directories(out + "/model.safetensors/inside");
  CHECK_STATUS(PublishModel(staged, out, "shirt-1", Incarnation(7)),
               absl::StatusCode::kFailedPrecondition, "cannot move " + staged);
  CHECK_FALSE(fs::exists(out + "/model.json"));
  CHECK(ExporterIn(staged) == Incarnation(7));
}

TEST_CASE("Staged models: only their folders are removed", "[common][tensor]") {
  const std::string out = TestPath("kept");
  Write(out + "/.export-1-2", 1, Incarnation(2));
  Write(out + "/model", 1, Incarnation(2));
  for (const char* name : {"/.export-1-2", "/model", "/absent"}) RemoveStagedModel(out + name);
  CHECK_FALSE(fs::exists(out + "/.export-1-2"));
  CHECK(fs::exists(out + "/model/model.json"));
  CHECK(StagedModelsIn(out + "/absent").empty());
}

}  // namespace
}  // namespace capstan
