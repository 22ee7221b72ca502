#include "common/job/validate/validate.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <vector>

namespace capstan::validate_test {
namespace {

constexpr char kGood[] = R"(
  name: "lenet-1"
  model {
    layers { name: "conv1" convolution { filters: 20 kernel: 5 } }
    layers { name: "relu1" relu {} }
    layers { name: "sum" inputs: "conv1" inputs: "relu1" add {} }
    layers { name: "pool" max_pooling { kernel: 2 stride: 2 padding: 1 } }
    layers { name: "drop" dropout { rate: 0.5 } }
    layers { name: "out" fully_connected { units: 10 } }
  }
  data {
    format: IDX
    train { images: "/d/images" labels: "/d/labels" }
    test { images: "/d/test-images" labels: "/d/test-labels" }
    augmentation { mean: 0.5 std: 0.25 crop_padding: 2 }
  }
  training { epochs: 1 batch_size: 64 }
  optimizer { momentum { momentum: 0.9 } learning_rate: 0.01 }
  resources { workers: 2 }
)";

v1::JobSpec Parse(const std::string& text) {
  v1::JobSpec spec;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &spec));
  return spec;
}

std::vector<std::string> Errors(const v1::JobSpec& spec) {
  std::vector<std::string> lines;
  for (const Diagnostic& diagnostic : ValidateJob(spec)) lines.push_back(diagnostic.ToString());
  return lines;
}

// Lists the errors of the good job once the text `change` is merged into it.
std::vector<std::string> ErrorsAfter(const std::string& change) {
  v1::JobSpec spec = Parse(kGood);
  REQUIRE(google::protobuf::TextFormat::MergeFromString(change, &spec));
  return Errors(spec);
}

// The same with its layers replaced.
std::vector<std::string> ErrorsOfLayers(const std::string& layers) {
  v1::JobSpec spec = Parse(kGood);
  spec.mutable_model()->clear_layers();
  REQUIRE(google::protobuf::TextFormat::MergeFromString("model {" + layers + "}", &spec));
  return Errors(spec);
}
using Lines = std::vector<std::string>;

TEST_CASE("ValidateJob: initial weights are of layers alone, and not of ftrl", "[job]") {
  CHECK(ErrorsAfter("training { initial_weights: '/w' initial_weights_partial: true }") == Lines{});
  CHECK(ErrorsAfter("training { initial_weights_partial: true }") ==
        Lines{"training.initial_weights_partial: got true, expected nothing without "
              "initial_weights"});
  CHECK(ErrorsAfter("training { initial_weights: '/w' } optimizer { ftrl {} }") ==
        Lines{"training.initial_weights: got \"/w\", expected nothing with optimizer.ftrl, which "
              "makes each weight from its gradients alone"});
}

TEST_CASE("ValidateJob: labels and note are bounded, and each wrong one is named", "[job]") {
  v1::JobSpec spec = Parse(kGood);
  auto& labels = *spec.mutable_labels();
  labels["team"] = "ads";
  labels["a.b/c_d-1"] = "";
  spec.set_note(std::string(4096, 'n'));
  CHECK(Errors(spec).empty());
  labels["no blank"] = "x";
  labels[""] = "x";
  labels[std::string(64, 'k')] = "x";
  labels["long"] = std::string(256, 'v');
  spec.set_note(std::string(4097, 'n'));
  const std::vector<std::string> errors = Errors(spec);
  REQUIRE(errors.size() == 5);
  const std::string expected = ", expected 1 to 63 letters, digits, '-', '_', '.' or '/'";
  CHECK(errors[0] == "labels: got the key \"\"" + expected);
  CHECK_THAT(errors[1], Catch::StartsWith("labels: got the key \"kkk"));
  CHECK(errors[2] == "labels: got a value of 256 bytes for \"long\", expected at most 255");
  CHECK(errors[3] == "labels: got the key \"no blank\"" + expected);
  CHECK(errors[4] == "note: got 4097 bytes, expected at most 4096");
  labels.clear();
  for (int i = 0; i < 65; ++i) labels["k" + std::to_string(i)] = "";
  CHECK(Errors(spec)[0] == "labels: got 65 labels, expected at most 64");
}

TEST_CASE("ValidateJob: a job that keeps to the ranges has no diagnostics", "[job]") {
  CHECK(ErrorsAfter("") == Lines{});
  CHECK(ErrorsAfter("consistency { ssp { staleness_bound: 0 } }") == Lines{});
  CHECK(ErrorsAfter("consistency { bsp {} } training { slots: 1024 }") == Lines{});
  CHECK(ErrorsAfter("consistency { bsp { backups: 3 } } training { slots: 4 }") == Lines{});
  CHECK(ErrorsAfter("consistency { bsp { backups: 4 } } training { slots: 4 }") ==
        Lines{"consistency.bsp.backups: got 4, expected 0 to 3"});
  CHECK(ErrorsAfter("consistency { bsp { backups: -1 } } training { slots: 4 }") ==
        Lines{"consistency.bsp.backups: got -1, expected 0 to 3"});
  CHECK(ErrorsAfter("consistency { ssp { rate_by_staleness: true delay_compensation: 0.1 } }") ==
        Lines{});
  CHECK(ErrorsAfter("consistency { asp { delay_compensation: 0.1 } } optimizer { adam {} }") ==
        Lines{});
  CHECK(ErrorsAfter("optimizer { schedule { cosine { steps: 10 } warmup_steps: 5 } }") == Lines{});
  CHECK(ErrorsAfter("optimizer { ftrl { beta: 0 l1: 0.5 l2: 2 } clip_value: 1 }") == Lines{});
}

TEST_CASE("ValidateJob: only updates under bsp without backups can be recorded", "[job]") {
  CHECK(ErrorsAfter("output { record_updates: true }") == Lines{});
  const auto error = [](const std::string& consistency) {
    return Lines{
        "output.record_updates: got true, expected nothing: updates can be compared only "
        "under bsp without backups, and consistency is " +
        consistency};
  };
  const std::string record = "output { record_updates: true } consistency { ";
  CHECK(ErrorsAfter(record + "asp {} }") == error("asp"));
  CHECK(ErrorsAfter(record + "ssp { staleness_bound: 0 } }") == error("ssp"));
  CHECK(ErrorsAfter(record + "bsp { backups: 1 } }") == error("bsp with backups"));
}

TEST_CASE("ValidateJob: a rate by staleness is for rules that follow the gradient's size",
          "[job]") {
  for (const char* rule : {"adagrad {}", "rmsprop {}", "adam {}", "adamw {}", "ftrl {}"}) {
    CHECK(ErrorsAfter(std::string("consistency { asp { rate_by_staleness: true } } optimizer {") +
                      rule + "}") ==
          Lines{"consistency.asp.rate_by_staleness: got true, expected sgd, momentum or nesterov "
                "in optimizer: the others divide by the gradient's size"});
  }
  CHECK(ErrorsAfter("consistency { ssp { delay_compensation: -1 } }") ==
        Lines{"consistency.ssp.delay_compensation: got -1, expected a finite number of at least "
              "0"});
  for (const char* rule : {"sgd {}", "momentum {}", "nesterov {}"}) {
    CHECK(ErrorsAfter(std::string("consistency { asp { rate_by_staleness: true } } optimizer {") +
                      rule + "}") == Lines{});
  }
}

TEST_CASE("ValidateJob: replicas, a log and checkpoints are accepted in their ranges", "[job]") {
  CHECK(ErrorsAfter("resources { replicas: 3 server_wait_seconds: 0 }") == Lines{});
  CHECK(ErrorsAfter("resources { replicas: 1 servers: 2 } durability: LOG") == Lines{});
  CHECK(ErrorsAfter("checkpoints {}") == Lines{});
  CHECK(ErrorsAfter("checkpoints { every_iterations: 100 every_seconds: 60 keep: 1 "
                    "directory: '/d' }") == Lines{});
  v1::JobSpec spec = Parse(kGood);
  spec.set_durability(static_cast<v1::Durability>(7));
  spec.mutable_wire()->set_gradients(static_cast<v1::NumberFormat>(5));
  spec.mutable_wire()->set_shared_memory(static_cast<v1::TransportUse>(2));
  spec.mutable_wire()->set_data_connections(static_cast<v1::TransportUse>(3));
  CHECK(Errors(spec) == Lines{"durability: got 7, expected NONE or LOG",
                              "wire.gradients: got 5, expected FP32, BF16 or FP16",
                              "wire.shared_memory: got 2, expected AUTO or OFF",
                              "wire.data_connections: got 3, expected AUTO or OFF"});
}

TEST_CASE("ValidateJob: an empty job names every part that is missing", "[job]") {
  CHECK(Errors({}) ==
        Lines{
            "model: got nothing, expected layers, sparse, or zoo: one of lenet, mlp, resnet18, "
            "resnet20, resnet50, softmax_regression, vgg16",
            "data: got nothing, expected a format and the files to train on",
            "training: got nothing, expected epochs and batch_size",
            "optimizer: got nothing, expected a kind, such as sgd {}, and learning_rate",
            "resources: got nothing, expected workers",
        });
}

TEST_CASE("ValidateJob: a diagnostic carries field, value and what was expected", "[job]") {
  v1::JobSpec spec = Parse(kGood);
  spec.mutable_training()->set_batch_size(-4);
  const std::vector<Diagnostic> diagnostics = ValidateJob(spec);
  REQUIRE(diagnostics.size() == 1);
  CHECK(diagnostics[0].field == "training.batch_size");
  CHECK(diagnostics[0].value == "-4");
  CHECK(diagnostics[0].expected == "at least 1");
  CHECK(diagnostics[0].message == "got -4, expected at least 1");
}

struct Case {
  const char* change;
  const char* error;
};

void CheckErrors(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    INFO(c.change);
    CHECK(ErrorsAfter(c.change) == Lines{c.error});
  }
}

TEST_CASE("ValidateJob: a field of model or data out of its range is named with its value",
          "[job]") {
  CheckErrors({
      {"name: 'a b'", "name: got \"a b\", expected 1 to 64 letters, digits, '-' or '_'"},
      {"name: '../x'", "name: got \"../x\", expected 1 to 64 letters, digits, '-' or '_'"},
      {"model { classes: 1 }", "model.classes: got 1, expected 2 to 1000000"},
      {"model { zoo: 'lenet' }", "model: got both zoo and 6 layers, expected one of them"},
      {"data { augmentation { mean: 1 } }",
       "data.augmentation.mean: got 2 values, expected 1, one a channel of format IDX"},
      {"data { augmentation { std: 1 } }",
       "data.augmentation.std: got 2 values, expected 1, one a channel of format IDX"},
      {"data { augmentation { crop_padding: -1 } }",
       "data.augmentation.crop_padding: got -1, expected at least 0"},
      {"data { train { files: 'x' } }",
       "data.train.files: got 1 path, expected none: format IDX reads images and labels"},
  });
}

TEST_CASE(
    "ValidateJob: a field of training or consistency out of its range is named with its value",
    "[job]") {
  CheckErrors({
      {"training { epochs: 0 }", "training.epochs: got 0 or nothing, expected at least 1"},
      {"training { batch_size: -4 }", "training.batch_size: got -4, expected at least 1"},
      {"training { slots: 0 }", "training.slots: got 0, expected 1 to 1024"},
      {"training { slots: 1025 }", "training.slots: got 1025, expected 1 to 1024"},
      {"training { slots: 2 } consistency { ssp { staleness_bound: 2 } }",
       "training.slots: got 2, expected nothing: only bsp has slots, and consistency is ssp"},
      {"training { slots: 2 } consistency { asp {} }",
       "training.slots: got 2, expected nothing: only bsp has slots, and consistency is asp"},
      {"training { iterations_max: -1 }", "training.iterations_max: got -1, expected at least 0"},
      {"consistency { ssp { staleness_bound: -1 } }",
       "consistency.ssp.staleness_bound: got -1, expected at least 0"},
      {"training { compute: BF16 }",
       "training.compute: got BF16, expected FP32, since resources.device may be a CPU"},
      {"training { compute: FP16 } resources { device: 'cpu' }",
       "training.compute: got FP16, expected FP32, since resources.device may be a CPU"},
      {"training { compute: TF32 } resources { device: 'auto' }",
       "training.compute: got TF32, expected FP32, since resources.device may be a CPU"},
  });
}

TEST_CASE(
    "ValidateJob: a field of resources, output or checkpoints out of its range is named with its "
    "value",
    "[job]") {
  CheckErrors({
      {"resources { workers: 0 }", "resources.workers: got 0 or nothing, expected 1 to 4096"},
      {"resources { workers: 5000 }", "resources.workers: got 5000, expected 1 to 4096"},
      {"resources { workers: 1025 }",
       "resources.workers: got 1025, expected at most 1024 under bsp, since training.slots "
       "defaults to it"},
      {"resources { servers: -1 }", "resources.servers: got -1, expected at least 0"},
      {"resources { threads: 0 }", "resources.threads: got 0, expected at least 1"},
      {"resources { max_restarts: -1 }", "resources.max_restarts: got -1, expected at least 0"},
      {"resources { worker_wait_seconds: -1 }",
       "resources.worker_wait_seconds: got -1, expected at least 0"},
      {"resources { server_wait_seconds: -1 }",
       "resources.server_wait_seconds: got -1, expected at least 0"},
      {"resources { replicas: -1 }", "resources.replicas: got -1, expected 0 to 3"},
      {"resources { device: 'gpu' }",
       "resources.device: got \"gpu\", expected \"auto\", \"cpu\", \"cuda\" or "
       "\"cuda:<index>\", index 0 to 63"},
      {"output { trace_batches: 1001 }", "output.trace_batches: got 1001, expected 0 to 1000"},
      {"resources { gpus: -1 }", "resources.gpus: got -1, expected 0 to 16"},
      {"resources { gpus: 17 }", "resources.gpus: got 17, expected 0 to 16"},
      {"resources { device: 'cpu' gpus: 2 }",
       "resources.gpus: got 2, expected 0, since device is \"cpu\""},
      {"resources { device: 'cuda:1' gpus: 2 }",
       "resources.gpus: got 2, expected 1, since device is \"cuda:1\""},
      {"resources { replicas: 4 servers: 2 }", "resources.replicas: got 4, expected 0 to 3"},
      {"resources { replicas: 2 servers: 2 }",
       "resources.replicas: got 2, expected at most 1, as each copy is on a server of its own and "
       "resources.servers is 2"},
      {"checkpoints { every_iterations: -1 }",
       "checkpoints.every_iterations: got -1, expected at least 0"},
      {"checkpoints { every_seconds: -5 }",
       "checkpoints.every_seconds: got -5, expected at least 0"},
      {"checkpoints { keep: 0 }", "checkpoints.keep: got 0, expected at least 1"},
  });
}

TEST_CASE("ValidateJob: no more GPUs share a batch than it has samples", "[job]") {
  CHECK(ErrorsAfter("training { batch_size: 3 } resources { gpus: 3 }").empty());
  CHECK(
      ErrorsAfter("training { batch_size: 3 } resources { gpus: 4 }") ==
      Lines{"resources.gpus: got 4, expected at most 3, training.batch_size: each computes a part "
            "of it"});
}

TEST_CASE("ValidateJob: each optimizer setting out of its range is named", "[job]") {
  const Case cases[] = {
      {"learning_rate: -0.5",
       "optimizer.learning_rate: got -0.5, expected a finite number above 0"},
      {"learning_rate: nan", "optimizer.learning_rate: got nan, expected a finite number above 0"},
      {"learning_rate: inf", "optimizer.learning_rate: got inf, expected a finite number above 0"},
      {"learning_rate: 0",
       "optimizer.learning_rate: got 0 or nothing, expected a finite number above 0"},
      {"weight_decay: -1",
       "optimizer.weight_decay: got -1, expected a finite number of at least 0"},
      {"clip_value: 0", "optimizer.clip_value: got 0, expected a finite number above 0"},
      {"clip_norm: 0", "optimizer.clip_norm: got 0, expected a finite number above 0"},
      {"momentum { momentum: 1 }",
       "optimizer.momentum.momentum: got 1, expected a number in [0, 1)"},
      {"nesterov { momentum: 0 }",
       "optimizer.nesterov.momentum: got 0, expected a number in (0, 1)"},
      {"adagrad { epsilon: 0 }",
       "optimizer.adagrad.epsilon: got 0, expected a finite number above 0"},
      {"adagrad { initial_accumulator: -1 }",
       "optimizer.adagrad.initial_accumulator: got -1, expected a finite number of at least 0"},
      {"rmsprop { alpha: 1 }", "optimizer.rmsprop.alpha: got 1, expected a number in [0, 1)"},
      {"rmsprop { epsilon: 0 }",
       "optimizer.rmsprop.epsilon: got 0, expected a finite number above 0"},
      {"rmsprop { momentum: -1 }",
       "optimizer.rmsprop.momentum: got -1, expected a number in [0, 1)"},
      {"adam { beta1: 1 }", "optimizer.adam.beta1: got 1, expected a number in [0, 1)"},
      {"adamw { beta2: 2 }", "optimizer.adamw.beta2: got 2, expected a number in [0, 1)"},
      {"adamw { epsilon: 0 }", "optimizer.adamw.epsilon: got 0, expected a finite number above 0"},
      {"ftrl { beta: -1 }", "optimizer.ftrl.beta: got -1, expected a finite number of at least 0"},
      {"ftrl { l1: -0.5 }", "optimizer.ftrl.l1: got -0.5, expected a finite number of at least 0"},
      {"ftrl { l2: inf }", "optimizer.ftrl.l2: got inf, expected a finite number of at least 0"},
      {"ftrl {} weight_decay: 0.25",
       "optimizer.weight_decay: got 0.25, expected 0 with ftrl, whose L2 is optimizer.ftrl.l2"},
      {"ftrl {} weight_decay: -1",
       "optimizer.weight_decay: got -1, expected a finite number of at least 0"},
      {"adadelta { rho: 1 }", "optimizer.adadelta.rho: got 1, expected a number in [0, 1)"},
      {"amsgrad { beta1: -1 }", "optimizer.amsgrad.beta1: got -1, expected a number in [0, 1)"},
      {"lion { beta2: 1 }", "optimizer.lion.beta2: got 1, expected a number in [0, 1)"},
      {"lamb { epsilon: 0 }", "optimizer.lamb.epsilon: got 0, expected a finite number above 0"},
      {"lars { momentum: 1 }", "optimizer.lars.momentum: got 1, expected a number in [0, 1)"},
      {"schedule { step { factor: 0.5 } }",
       "optimizer.schedule.step.every: got 0 or nothing, expected at least 1"},
      {"schedule { step { every: 5 factor: 1.5 } }",
       "optimizer.schedule.step.factor: got 1.5, expected a number in (0, 1]"},
      {"schedule { cosine { minimum: 0.1 } }",
       "optimizer.schedule.cosine.steps: got 0 or nothing, expected at least 1"},
      {"schedule { cosine { steps: 5 minimum: -1 } }",
       "optimizer.schedule.cosine.minimum: got -1, expected a finite number of at least 0"},
      {"schedule { warmup_steps: -1 }",
       "optimizer.schedule.warmup_steps: got -1, expected at least 0"},
  };
  for (const Case& c : cases) {
    INFO(c.change);
    CHECK(ErrorsAfter(std::string("optimizer {") + c.change + "}") == Lines{c.error});
  }
  v1::JobSpec spec = Parse(kGood);
  spec.mutable_optimizer()->clear_kind();
  CHECK(Errors(spec) == Lines{"optimizer: got nothing, expected one of sgd, momentum, nesterov, "
                              "adagrad, rmsprop, adam, adamw, ftrl, lion, amsgrad, adadelta, "
                              "lars, lamb, plugin"});
}

TEST_CASE("ValidateJob: each setting of a rule of a plugin is named", "[job]") {
  const Case cases[] = {
      {"plugin { rule: 'Sign' }",
       "optimizer.plugin.rule: got \"Sign\", expected the name of a rule that servers have by "
       "--rule-plugin: 1 to 64 letters a-z, digits and '_', a letter first"},
      {"plugin { rule: 'sign' numbers: [1, nan] }",
       "optimizer.plugin.numbers[1]: got nan, expected a finite number"},
      {"plugin { rule: 'sign' numbers: [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17] }",
       "optimizer.plugin.numbers: got 17 numbers, expected at most 16"},
      {"plugin { rule: 'sign' digest: 'AB' }",
       "optimizer.plugin.digest: got \"AB\", expected 64 digits 0-9 and a-f, as sha256sum prints "
       "them"},
  };
  for (const Case& c : cases) {
    INFO(c.change);
    CHECK(ErrorsAfter(std::string("optimizer {") + c.change + "}") == Lines{c.error});
  }
}

TEST_CASE("ValidateJob: each layer setting out of its range is named by layer and field", "[job]") {
  const Case cases[] = {
      {"layers { relu {} }",
       "model.layers[0].name: got nothing, expected a name that no other layer "
       "has"},
      {"layers { name: 'a/b' relu {} }",
       "model.layers[0].name: got \"a/b\", expected 1 to 128 letters, digits, '_', '.' or '-'"},
      {"layers { name: 'input' relu {} }",
       "model.layers[0].name: got \"input\", expected another name: \"input\" is the image"},
      {"layers { name: 'a' relu {} } layers { name: 'a' relu {} }",
       "model.layers[1].name: got \"a\", expected a name that no other layer has"},
      {"layers { name: 'a' }",
       "model.layers[0]: got nothing, expected one of convolution, max_pooling, average_pooling, "
       "fully_connected, relu, batch_normalization, add, flatten, dropout, "
       "global_average_pooling, embedding, gelu, layer_normalization, silu, tanh, "
       "sigmoid, rms_normalization"},
      {"layers { name: 'a' inputs: 'b' relu {} }",
       "model.layers[0].inputs[0]: got \"b\", expected \"input\" or the name of a layer above"},
      {"layers { name: 'a' inputs: 'a' relu {} }",
       "model.layers[0].inputs[0]: got \"a\", expected \"input\" or the name of a layer above"},
      {"layers { name: 'a' inputs: 'input' inputs: 'input' relu {} }",
       "model.layers[0].inputs: got 2 names, expected at most 1, since only add reads two"},
      {"layers { name: 'a' inputs: 'input' add {} }",
       "model.layers[0].inputs: got 1 name, expected 2, since add reads two"},
      {"layers { name: 'a' convolution { kernel: 5 } }",
       "model.layers[0].convolution.filters: got 0 or nothing, expected at least 1"},
      {"layers { name: 'a' convolution { filters: 2 kernel: -5 } }",
       "model.layers[0].convolution.kernel: got -5, expected at least 1"},
      {"layers { name: 'a' convolution { filters: 2 kernel: 5 stride: 0 } }",
       "model.layers[0].convolution.stride: got 0, expected at least 1"},
      {"layers { name: 'a' convolution { filters: 2 kernel: 5 padding: -1 } }",
       "model.layers[0].convolution.padding: got -1, expected at least 0"},
      {"layers { name: 'a' convolution { filters: 2 kernel: 5 initial { normal_std: -1 } } }",
       "model.layers[0].convolution.initial.normal_std: got -1, expected a finite number of at "
       "least 0"},
      {"layers { name: 'a' fully_connected { units: 2 initial { normal_std: nan } } }",
       "model.layers[0].fully_connected.initial.normal_std: got nan, expected a finite number of "
       "at least 0"},
      {"layers { name: 'a' max_pooling { kernel: 0 } }",
       "model.layers[0].max_pooling.kernel: got 0 or nothing, expected at least 1"},
      {"layers { name: 'a' average_pooling { kernel: 2 padding: 2 } }",
       "model.layers[0].average_pooling.padding: got 2, expected less than the kernel, 2"},
      {"layers { name: 'a' average_pooling { kernel: 2 stride: -1 } }",
       "model.layers[0].average_pooling.stride: got -1, expected at least 1"},
      {"layers { name: 'a' fully_connected {} }",
       "model.layers[0].fully_connected.units: got 0 or nothing, expected at least 1"},
      {"layers { name: 'a' batch_normalization { momentum: 0 } }",
       "model.layers[0].batch_normalization.momentum: got 0, expected a number in (0, 1]"},
      {"layers { name: 'a' batch_normalization { epsilon: 0 } }",
       "model.layers[0].batch_normalization.epsilon: got 0, expected a finite number above 0"},
      {"layers { name: 'a' dropout { rate: 1 } }",
       "model.layers[0].dropout.rate: got 1, expected a number in [0, 1)"},
      {"layers { name: 'a' embedding { dim: 4 } }",
       "model.layers[0].embedding.rows: got 0 or nothing, expected at least 1"},
      {"zoo: 'lenett'",
       "model.zoo: got \"lenett\", expected one of lenet, mlp, resnet18, resnet20, resnet50, "
       "softmax_regression, vgg16"},
  };
  for (const Case& c : cases) {
    INFO(c.change);
    CHECK(ErrorsOfLayers(c.change) == Lines{c.error});
  }
}

TEST_CASE("ValidateJob: the split must name the files that its format reads", "[job]") {
  v1::JobSpec spec = Parse(kGood);
  spec.mutable_data()->set_format(v1::Data::CIFAR10_BINARY);
  spec.mutable_data()->clear_test();
  CHECK(Errors(spec) ==
        Lines{
            "data.train.images: got \"/d/images\", expected nothing: format CIFAR10_BINARY reads "
            "files",
            "data.train.labels: got \"/d/labels\", expected nothing: format CIFAR10_BINARY reads "
            "files",
            "data.train.files: got nothing, expected the paths of one or more CIFAR-10 files",
            "data.augmentation.mean: got 1 value, expected 3, one a channel of format "
            "CIFAR10_BINARY",
            "data.augmentation.std: got 1 value, expected 3, one a channel of format "
            "CIFAR10_BINARY",
        });
  spec = Parse(kGood);
  spec.mutable_data()->clear_format();
  spec.mutable_data()->clear_train();
  CHECK(Errors(spec) ==
        Lines{"data.format: got nothing, expected one of IDX, CIFAR10_BINARY, SVMLIGHT, "
              "CRITEO, COLUMNS, TEXT, CLICK_LOG, IMAGE_FOLDER, NUMPY",
              "data.train: got nothing, expected the files to train on"});
}

TEST_CASE("ValidateJob: folders of images and arrays have fields of their own", "[job]") {
  const auto errors = [](v1::Data::Format format, const std::string& data) {
    v1::JobSpec spec = Parse(kGood);
    spec.clear_data();
    REQUIRE(google::protobuf::TextFormat::ParseFromString(data, spec.mutable_data()));
    spec.mutable_data()->set_format(format);
    return Errors(spec);
  };
  const std::string folder = "train { images: '/d' } ";
  CHECK(errors(v1::Data::IMAGE_FOLDER, folder) == Lines{});
  CHECK(errors(v1::Data::IMAGE_FOLDER,
               folder + "image_folder { height: 28 width: 1 channels: 1 } class_names: ['a', 'b'] "
                        "augmentation { mean: [0, 0, 0] }") == Lines{});
  CHECK(
      errors(v1::Data::IMAGE_FOLDER, "train { labels: 'x' files: 'y' }") ==
      Lines{"data.train.images: got nothing, expected the folder that has one for each class",
            "data.train.labels: got \"x\", expected nothing: format IMAGE_FOLDER reads a folder of "
            "images",
            "data.train.files: got 1 path, expected nothing: format IMAGE_FOLDER reads a folder of "
            "images"});
  CHECK(errors(v1::Data::IMAGE_FOLDER,
               folder + "image_folder { height: 0 width: 4097 channels: 4 } class_names: 'a'") ==
        Lines{"data.image_folder.height: got 0, expected 1 to 4096",
              "data.image_folder.width: got 4097, expected 1 to 4096",
              "data.image_folder.channels: got 4, expected 1 (grey) or 3 (RGB)",
              "data.class_names: got 1 name, expected 2 to 256"});
  CHECK(errors(v1::Data::IMAGE_FOLDER, folder + "class_names: ['a', 'b', 'a']") ==
        Lines{"data.class_names: got a name that stands twice, expected each once"});
  CHECK(
      errors(v1::Data::NUMPY, "train { files: 'x' } image_folder {}") ==
      Lines{"model.classes: got nothing, expected the number of classes, which format NUMPY does "
            "not tell",
            "data.train.images: got nothing, expected an array: FILE.npy, or FILE.npz:NAME",
            "data.train.labels: got nothing, expected an array: FILE.npy, or FILE.npz:NAME",
            "data.train.files: got 1 path, expected none: format NUMPY reads images and labels",
            "data.image_folder: got a value, expected nothing: it is for IMAGE_FOLDER, and format "
            "is NUMPY"});
}

TEST_CASE("ValidateJob: augmentation values must be finite and std positive", "[job]") {
  v1::JobSpec spec = Parse(kGood);
  spec.mutable_data()->mutable_augmentation()->set_std(0, 0.0f);
  CHECK(Errors(spec) == Lines{"data.augmentation.std[0]: got 0, expected a finite number above 0"});
  spec = Parse(kGood);
  spec.mutable_data()->mutable_augmentation()->set_mean(0, -2.0f);
  CHECK(Errors(spec) == Lines{});
  spec.mutable_data()->mutable_augmentation()->set_mean(0, std::numeric_limits<float>::quiet_NaN());
  CHECK(Errors(spec) == Lines{"data.augmentation.mean[0]: got nan, expected a finite number"});
}

TEST_CASE("ValidateJob: a job with thousands of errors reports a hundred lines", "[job]") {
  v1::JobSpec spec = Parse(kGood);
  spec.mutable_model()->clear_layers();
  for (int i = 0; i < 5000; ++i) spec.mutable_model()->add_layers()->mutable_relu();
  const Lines lines = Errors(spec);
  REQUIRE(lines.size() == 100);
  CHECK(lines.back() == "and 4901 more errors");
}

}  // namespace
}  // namespace capstan::validate_test
