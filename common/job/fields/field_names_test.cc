#include "common/job/fields/field_names.h"

#include <catch2/catch.hpp>

#include "proto/job.pb.h"

namespace capstan::field_names_test {
namespace {

TEST_CASE("EditDistance: counts insertions, deletions, substitutions and swaps", "[job]") {
  CHECK(EditDistance("", "") == 0);
  CHECK(EditDistance("", "abc") == 3);
  CHECK(EditDistance("epochs", "epoch") == 1);
  CHECK(EditDistance("epohcs", "epochs") == 1);
  CHECK(EditDistance("batchsize", "batch_size") == 1);
  CHECK(EditDistance("kitten", "sitting") == 3);
}

TEST_CASE("Nearest: suggests a slip, not a different word", "[job]") {
  const std::vector<std::string> names = {"epochs", "batch_size", "slots", "seed"};
  CHECK(Nearest("batchsize", names) == "batch_size");
  CHECK(Nearest("sead", names) == "seed");
  CHECK(Nearest("learning_rate", names).empty());
  CHECK(Nearest("x", {}).empty());
}

TEST_CASE("UnknownField: names the path, the nearest name and all that is known", "[job]") {
  const Diagnostic unknown = UnknownField(*v1::Training::descriptor(), "training", "epoch");
  CHECK(unknown.ToString() ==
        "training.epoch: no such field; did you mean \"epochs\"? training has epochs, batch_size, "
        "slots, seed, iterations_max, compute, initial_weights, "
        "initial_weights_partial, class_weights, "
        "positive_weights, metric, early_stopping, keep_best, reduce_on_plateau");
  CHECK(UnknownField(*v1::Relu::descriptor(), "model.layers[0].relu", "x").ToString() ==
        "model.layers[0].relu.x: no such field; model.layers[0].relu has no fields");
}

TEST_CASE("UnknownEnumValue: lists the values that mean something", "[job]") {
  CHECK(UnknownEnumValue(*v1::Data::Format_descriptor(), "data.format", "IDXX").ToString() ==
        "data.format: got \"IDXX\", expected one of IDX, CIFAR10_BINARY, SVMLIGHT, CRITEO, "
        "COLUMNS, TEXT, CLICK_LOG, IMAGE_FOLDER, NUMPY; did you mean \"IDX\"?");
}

}  // namespace
}  // namespace capstan::field_names_test
