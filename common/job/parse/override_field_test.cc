#include "common/job/parse/override_field.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>

#include "absl/status/status.h"
#include "common/testing/status_matchers.h"

namespace capstan::override_field_test {
namespace {

v1::JobSpec Job() {
  v1::JobSpec spec;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(
      "name: 'a' model { layers { name: 'c' convolution { filters: 2 } } }"
      "data { train { files: 'x' files: 'y' } } consistency { bsp {} }",
      &spec));
  return spec;
}

TEST_CASE("OverrideField: sets values of every kind by path", "[job]") {
  v1::JobSpec spec = Job();
  REQUIRE_OK(OverrideField("training.epochs", "3", &spec));
  CHECK(spec.training().epochs() == 3);
  REQUIRE_OK(OverrideField("name", "plain", &spec));
  CHECK(spec.name() == "plain");
  REQUIRE_OK(OverrideField("name", "\"quoted\"", &spec));
  CHECK(spec.name() == "quoted");
  REQUIRE_OK(OverrideField("model.layers[0].convolution.filters", "32", &spec));
  CHECK(spec.model().layers(0).convolution().filters() == 32);
  REQUIRE_OK(OverrideField("data.format", "CIFAR10_BINARY", &spec));
  CHECK(spec.data().format() == v1::Data::CIFAR10_BINARY);
  REQUIRE_OK(OverrideField("optimizer.learning_rate", "0.5", &spec));
  CHECK(spec.optimizer().learning_rate() == 0.5f);
  REQUIRE_OK(OverrideField("data.augmentation.horizontal_flip", "true", &spec));
  CHECK(spec.data().augmentation().horizontal_flip());
}

TEST_CASE("OverrideField: a list becomes the one value, a oneof changes its case", "[job]") {
  v1::JobSpec spec = Job();
  REQUIRE_OK(OverrideField("data.train.files", "z", &spec));
  REQUIRE(spec.data().train().files_size() == 1);
  CHECK(spec.data().train().files(0) == "z");
  REQUIRE_OK(OverrideField("consistency.ssp.staleness_bound", "4", &spec));
  CHECK(spec.consistency().ssp().staleness_bound() == 4);
  CHECK_FALSE(spec.consistency().has_bsp());
  REQUIRE_OK(OverrideField("consistency.asp", "{}", &spec));
  CHECK(spec.consistency().has_asp());
}

TEST_CASE("OverrideField: what does not fit is named and changes nothing", "[job]") {
  struct Case {
    const char* path;
    const char* value;
    const char* error;
  };
  const Case cases[] = {
      {"training.epoch", "3",
       "training.epoch: no such field; did you mean \"epochs\"? training has epochs, batch_size, "
       "slots, seed, iterations_max, compute, initial_weights, "
       "initial_weights_partial, class_weights, "
       "positive_weights, metric, early_stopping, keep_best, reduce_on_plateau"},
      {"training.epochs", "x", "training.epochs: got \"x\", expected a 32-bit integer"},
      {"training.epochs", "", "training.epochs: got nothing, expected a 32-bit integer"},
      {"training.epochs", "3 4", "training.epochs: got \"3 4\", expected a 32-bit integer"},
      {"training.seed", "-1", "training.seed: got \"-1\", expected an integer of at least 0"},
      {"training.epochs.x", "3", "training.epochs: is a value and has no fields"},
      {"training[0].epochs", "3", "training[0]: is no list and takes no index"},
      {"model.layers[1].name", "b",
       "model.layers[1]: got index 1, expected 0 to 0, as the list has 1 items"},
      {"model.layers.name", "b",
       "model.layers: got no index, expected 0 to 0, as the list has 1 items"},
      {"model.layers[x].name", "b",
       "got \"layers[x]\", expected a field name, or one with an index: layers[0]"},
      {"data.train.files[0]", "b",
       "data.train.files[0]: single items cannot be set; set the whole list or a field of the "
       "item"},
      {"data.format", "IDY",
       "data.format: got \"IDY\", expected one of IDX, CIFAR10_BINARY, SVMLIGHT, CRITEO, COLUMNS, "
       "TEXT, CLICK_LOG, IMAGE_FOLDER, NUMPY; did you mean \"IDX\"?"},
      {"training", "3", "training: got \"3\", expected {fields of Training}"},
  };
  for (const Case& c : cases) {
    INFO(c.path << "=" << c.value);
    v1::JobSpec spec = Job();
    const absl::Status status = OverrideField(c.path, c.value, &spec);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(status.message()) == c.error);
    CHECK(spec.ShortDebugString() == Job().ShortDebugString());
  }
}

TEST_CASE("OverrideField: a map cannot be set, but labels have a flag of their own", "[job]") {
  v1::JobSpec spec;
  for (const char* path : {"labels", "labels.a", "labels[0].key"}) {
    CHECK_STATUS(OverrideField(path, "x", &spec), absl::StatusCode::kInvalidArgument,
                 "expected --label KEY=VALUE");
  }
  CHECK(spec.labels().empty());
  CHECK_STATUS(OverrideField("program.environment", "A=1", &spec),
               absl::StatusCode::kInvalidArgument,
               "program.environment: cannot be set like this, expected it in the job file");
}

}  // namespace
}  // namespace capstan::override_field_test
