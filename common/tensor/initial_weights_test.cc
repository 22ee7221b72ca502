#include "common/tensor/initial_weights.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "common/model/initial_values.h"
#include "common/tensor/model_file.h"
#include "common/tensor/safetensors/safetensors.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::initial_weights_test {
namespace {

using testing::TestPath;

void AddTensor(const std::string& name, const std::vector<int64_t>& shape, v1::TableSpec& table) {
  v1::TensorSpec& tensor = *table.add_tensors();
  tensor.set_name(name);
  int64_t count = 1;
  for (const int64_t d : shape) {
    tensor.add_shape(d);
    count *= d;
  }
  tensor.set_offset(table.elements());
  tensor.mutable_initializer()->set_uniform_bound(0.5f);
  table.set_elements(table.elements() + count);
}

// fc.weight [2, 3] and fc.bias [2]; bn.running_mean [2].
std::vector<v1::TableSpec> Tables() {
  std::vector<v1::TableSpec> tables(2);
  AddTensor("fc.weight", {2, 3}, tables[0]);
  AddTensor("fc.bias", {2}, tables[0]);
  tables[1].set_table(1);
  AddTensor("bn.running_mean", {2}, tables[1]);
  return tables;
}

const std::vector<float> kWeight = {1, 2, 3, 4, 5, 6};
const std::vector<float> kBias = {7, 8};
const std::vector<float> kMean = {9, 10};

std::string Write(const std::string& name, const std::vector<NamedTensorView>& tensors) {
  const std::string path = TestPath(name);
  REQUIRE_OK(WriteSafetensors(path, tensors));
  return path;
}

TEST_CASE("Initial weights: each tensor comes to its place, from a file or a model's folder",
          "[common][tensor]") {
  const std::string path = Write(
      "all",
      {{"bn.running_mean", {2}, kMean}, {"fc.bias", {2}, kBias}, {"fc.weight", {2, 3}, kWeight}});
  const std::string folder = TestPath("model");
  std::filesystem::create_directory(folder);
  std::filesystem::copy_file(path, folder + "/" + kModelTensorsFile);
  for (const std::string& from : {path, folder}) {
    REQUIRE_OK_AND_ASSIGN(const InitialWeights weights,
                          ReadInitialWeights(from, Tables(), 1, WeightsFit::kAll));
    REQUIRE(weights.tables.size() == 2);
    CHECK(weights.tables[0] == std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
    CHECK(weights.tables[1] == kMean);
    CHECK(weights.left.empty());
  }
}

TEST_CASE("Initial weights: missing, unknown and wrongly shaped tensors are named",
          "[common][tensor]") {
  const std::string path = Write("wrong", {{"fc.weight", {3, 2}, kWeight}, {"fc2", {2}, kBias}});
  const absl::Status refused = ReadInitialWeights(path, Tables(), 1, WeightsFit::kAll).status();
  for (const char* what : {"fc.weight: the file has [3, 2], expected [2, 3] of F32, F16 or BF16",
                           "fc.bias: the file has no such tensor, expected [2] of F32",
                           "bn.running_mean: the file has no such tensor, expected [2]",
                           "fc2: the model has no such tensor, the file has [2]"}) {
    CHECK_STATUS(refused, absl::StatusCode::kInvalidArgument, what);
  }
  CHECK_STATUS(ReadInitialWeights(TestPath("none"), Tables(), 1, WeightsFit::kAll),
               absl::StatusCode::kNotFound, "/none");
}

TEST_CASE("Initial weights: what does not fit may keep the values that the seed draws",
          "[common][tensor]") {
  const std::vector<float> one = {4};
  const std::string path = Write("part", {{"fc.weight", {2, 3}, kWeight}, {"fc.bias", {1}, one}});
  const std::vector<v1::TableSpec> tables = Tables();
  REQUIRE_OK_AND_ASSIGN(const InitialWeights weights,
                        ReadInitialWeights(path, tables, 5, WeightsFit::kWhatFits));
  std::vector<float> drawn(8);
  FillInitialValues(tables[0], 5, 0, absl::MakeSpan(drawn));
  CHECK(weights.tables[0] == std::vector<float>{1, 2, 3, 4, 5, 6, drawn[6], drawn[7]});
  CHECK(drawn[6] != 0);
  CHECK(weights.left ==
        std::vector<std::string>{
            "fc.bias: the file has [1], expected [2] of F32, F16 or BF16",
            "bn.running_mean: the file has no such tensor, expected [2] of F32, F16 or BF16"});
  const std::string other = Write("other", {{"x", {2}, kBias}});
  CHECK_STATUS(ReadInitialWeights(other, tables, 5, WeightsFit::kWhatFits),
               absl::StatusCode::kInvalidArgument, "has no tensor that fits the model");
}

}  // namespace
}  // namespace capstan::initial_weights_test
