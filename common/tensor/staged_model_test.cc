#include "common/tensor/staged_model.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/tensor/held_folder.h"
#include "common/tensor/model_file.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::staged_model_test {
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
  REQUIRE(StagedModelsIn(out).size() == 1);
  CHECK(StagedModelsIn(out)[0].path == staged);
  CHECK(StagedModelsIn(out)[0].writer == Incarnation(7));
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

TEST_CASE(
    "Staged models: an earlier incarnation that moves its model late leaves the newer one there",
    "[common][tensor]") {
  const std::string out = TestPath("late");
  const std::string older = out + "/.export-1-5", newer = out + "/.export-0-7";
  Write(older, 1, Incarnation(5));
  Write(newer, 2, Incarnation(7));
  const std::string tensors = ReadFile(newer + "/model.safetensors");
  SECTION("it had not begun") {}
  SECTION("it was stopped between two files") {
    fs::rename(older + "/model.safetensors", out + "/model.safetensors");
  }
  REQUIRE_OK(PublishModel(newer, out, "shirt-1", Incarnation(7)));
  CHECK_STATUS(PublishModel(older, out, "shirt-1", Incarnation(5)), absl::StatusCode::kNotFound,
               ".export-1-5");
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
  const auto others = {".export-",      ".export-1",    ".export-1-",
                       ".export-1-2-3", ".export-a-2",  ".export-1-b",
                       ".export-1-2~",  ".export--1-2", ".export-+1-2",
                       ".export-01-2",  ".export-1-02", ".export-1- 2",
                       ".export-notes", "export-1-2",   ".export-1-99999999999999999999"};
  for (const char* name : others) {
    const std::string path = out + "/" + name;
    fs::create_directories(path);
    RemoveStagedModel(path);
    INFO(path);
    CHECK(fs::exists(path));
  }
  CHECK(StagedModelsIn(out).empty());
}

TEST_CASE("Staged models: those of incarnations up to one are removed, of whatever rank",
          "[common][tensor]") {
  const std::string out = TestPath("up-to");
  for (const char* name : {"/.export-0-7", "/.export-5-12", "/.export-0-13", "/.export-notes"}) {
    fs::create_directories(out + name);
  }
  RemoveStagedModelsUpTo(Incarnation(12), out);
  CHECK_FALSE(fs::exists(out + "/.export-0-7"));
  CHECK_FALSE(fs::exists(out + "/.export-5-12"));
  CHECK(fs::exists(out + "/.export-0-13"));
  CHECK(fs::exists(out + "/.export-notes"));
  RemoveStagedModelsUpTo(Incarnation(12), out + "/absent");
}

TEST_CASE("Staged models: a whole one stays until a newer one is in its place",
          "[common][tensor]") {
  const std::string out = TestPath("whole");
  const std::string older = out + "/.export-0-7";
  const std::string newer = out + "/.export-1-12";
  Write(older, 2, Incarnation(7));
  Write(newer, 2, Incarnation(12));
  fs::create_directories(out + "/.export-2-9");
  RemoveStagedModelsUpTo(Incarnation(12), out);
  CHECK(ExporterIn(older) == Incarnation(7));
  CHECK(ExporterIn(newer) == Incarnation(12));
  CHECK_FALSE(fs::exists(out + "/.export-2-9"));
  REQUIRE_OK(PublishModel(newer, out, "shirt-1", Incarnation(12)));
  RemoveStagedModelsUpTo(Incarnation(12), out);
  CHECK_FALSE(fs::exists(older));
}

// A folder of another file system than `folder`. Nothing if there is none.
std::optional<std::string> FolderElsewhere(const std::string& folder) {
  struct stat here, there;
  std::string elsewhere = "/dev/shm/staged-model-XXXXXX";
  if (stat(folder.c_str(), &here) != 0 || stat("/dev/shm", &there) != 0 ||
      here.st_dev == there.st_dev || mkdtemp(elsewhere.data()) == nullptr) {
    return std::nullopt;
  }
  return elsewhere;
}

TEST_CASE("Staged models: a folder of another file system is told in words", "[common][tensor]") {
  const std::string staged = TestPath("here") + "/.export-0-7";
  Write(staged, 2, Incarnation(7));
  const std::optional<std::string> elsewhere = FolderElsewhere(staged);
  if (!elsewhere) {
    WARN("skipped: /dev/shm is no other file system than that of the test");
    return;
  }
  const std::string& out = *elsewhere;
  const absl::Status status = PublishModel(staged, out, "shirt-1", Incarnation(7));
  fs::remove_all(out);
  CHECK_STATUS(status, absl::StatusCode::kFailedPrecondition, "they lie on different file systems");
  CHECK(ExporterIn(staged) == Incarnation(7));
}

TEST_CASE("Staged models: who writes on after the removal brings nothing back (issue 20)",
          "[common][tensor]") {
  const std::string out = TestPath("removed"), staged = out + "/.export-0-7";
  REQUIRE_OK_AND_ASSIGN(const HeldFolder held, HeldFolder::Make(staged));
  Write(held.path(), 1, Incarnation(7));
  CHECK(ExporterIn(staged) == Incarnation(7));
  RemoveStagedModel(staged);  // Its writer was taken for dead, and its job has ended.
  const auto write_on = [&] {
    return WriteModelFiles(held.path(), "shirt-1", {}, {}, {}, "", nullptr, Incarnation(7));
  };
  CHECK_STATUS(write_on(), absl::StatusCode::kNotFound, "cannot create");
  CHECK_FALSE(fs::exists(staged));
  fs::create_directory(staged);  // It is somebody else's by then.
  CHECK_STATUS(write_on(), absl::StatusCode::kNotFound, "cannot create");
  CHECK(fs::is_empty(staged));
}

}  // namespace
}  // namespace capstan::staged_model_test
