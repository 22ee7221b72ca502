#include "common/job/check/check_job.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/data/testing/test_files.h"
#include "common/data/testing/test_images.h"
#include "common/job/parse/job_file.h"
#include "common/tensor/safetensors/safetensors.h"
#include "common/testing/status_matchers.h"

namespace capstan::check_job_test {
namespace {

using testing::IdxImagesFile;
using testing::IdxLabelsFile;

constexpr char kJob[] = R"(model {
  layers { name: "conv" convolution { filters: 4 kernel: 3 } }
  layers { name: "out" fully_connected { units: 10 } }
}
data {
  format: IDX
  train { images: "train-images" labels: "train-labels" }
  test { images: "test-images" labels: "test-labels" }
}
training { epochs: 1 batch_size: 2 }
optimizer { sgd {} learning_rate: 0.1 }
resources { workers: 1 }
)";

// A folder with six training images and two test images of 5 x 5.
class Folder {
 public:
  Folder() {
    folder_.Write("train-images", IdxImagesFile(6, 5, 5));
    folder_.Write("train-labels", IdxLabelsFile({0, 1, 2, 3, 4, 9}));
    folder_.Write("test-images", IdxImagesFile(2, 5, 5));
    folder_.Write("test-labels", IdxLabelsFile({0, 1}));
    folder_.Write("wide-images", IdxImagesFile(2, 5, 6));
    folder_.Write("bad-labels", IdxLabelsFile({0, 10}));
  }

  // Renders the diagnostics of CheckJob for kJob with `from` replaced by `to`; FOLDER stands for
  // the folder.
  std::string Errors(const std::string& from, const std::string& to) const {
    const std::string text = absl::StrReplaceAll(kJob, {{from, to}});
    REQUIRE_OK_AND_ASSIGN(const JobFile file, JobFile::Parse("j", text, folder_.Path("")));
    std::vector<std::string> lines;
    for (const Diagnostic& diagnostic : CheckJob(file.spec()).diagnostics) {
      lines.push_back(file.Render(diagnostic));
    }
    return absl::StrReplaceAll(absl::StrJoin(lines, "\n"), {{folder_.Path(""), "FOLDER/"}});
  }

  v1::JobSpec Spec() const {
    REQUIRE_OK_AND_ASSIGN(const JobFile file, JobFile::Parse("j", kJob, folder_.Path("")));
    return file.spec();
  }

 private:
  testing::TemporaryFolder folder_;
};

TEST_CASE("CheckJob: images of one class alone are told", "[job]") {
  const Folder folder;
  CHECK(CheckJob(folder.Spec()).warnings.empty());
  v1::JobSpec spec = folder.Spec();
  testing::TemporaryFolder other;
  spec.mutable_data()->mutable_test()->set_labels(other.Write("labels", IdxLabelsFile({4, 4})));
  CHECK(CheckJob(spec).warnings ==
        std::vector<std::string>{"data.test: all 2 images have the label 4"});
}

TEST_CASE("CheckJob: initial weights are read, and what does not fit is an error of their field",
          "[job]") {
  const Folder folder;
  CHECK(
      folder.Errors("epochs: 1", "epochs: 1 initial_weights: 'none'") ==
      "j:10:22: training.initial_weights: FOLDER/none: cannot be read: No such file or directory");
  v1::JobSpec spec = folder.Spec();
  CHECK(CheckJob(spec).initial_values.empty());
  testing::TemporaryFolder other;
  const std::string path = other.Path("weights");
  const std::vector<float> bias(10, 0.25f);
  REQUIRE_OK(WriteSafetensors(path, {{"out.bias", {10}, bias}}));
  spec.mutable_training()->set_initial_weights(path);
  const JobCheck refused = CheckJob(spec);
  REQUIRE(refused.diagnostics.size() == 1);
  CHECK(refused.diagnostics[0].field == "training.initial_weights");
  CHECK_THAT(refused.diagnostics[0].message,
             Catch::Contains("conv.weight: the file has no such tensor, expected [4, 3, 3, 1]"));
  spec.mutable_training()->set_initial_weights_partial(true);
  const JobCheck taken = CheckJob(spec);
  CHECK(taken.diagnostics.empty());
  REQUIRE(taken.initial_values.size() == 1);
  CHECK(taken.initial_values[0].back() == 0.25f);
  CHECK(taken.warnings.size() == 3);
}

TEST_CASE("CheckJob: a momentum that does not fit the asynchronous workers is told", "[job]") {
  const Folder folder;
  v1::JobSpec spec = folder.Spec();
  spec.mutable_optimizer()->mutable_momentum();
  spec.mutable_resources()->set_workers(2);
  CHECK(CheckJob(spec).warnings.empty());
  spec.mutable_consistency()->mutable_asp();
  const JobCheck check = CheckJob(spec);
  CHECK(check.diagnostics.empty());
  REQUIRE(check.warnings.size() == 1);
  CHECK(check.warnings[0].find("optimizer.momentum.momentum: 0.9 is too high for 2 workers") == 0);
}

TEST_CASE("CheckJob: a folder of images names its classes, and channels are counted", "[job]") {
  const testing::TemporaryFolder folder;
  for (const char* const name : {"owl", "cat"}) {
    std::filesystem::create_directory(folder.Path(name));
    folder.Write(std::string(name) + "/1.png", testing::PngFile(5, 5, 1, testing::Bytes(25, 9)));
  }
  v1::JobSpec spec = Folder().Spec();
  spec.mutable_model()->mutable_layers(1)->mutable_fully_connected()->set_units(2);
  v1::Data& data = *spec.mutable_data();
  data.Clear();
  data.set_format(v1::Data::IMAGE_FOLDER);
  data.mutable_train()->set_images(folder.Path("."));
  data.mutable_augmentation()->add_mean(0.5f);
  JobCheck check = CheckJob(spec);
  REQUIRE(check.diagnostics.size() == 1);
  CHECK(check.diagnostics[0].ToString() ==
        "data.augmentation.mean: got 1 values, expected 3, one a channel of images of 5x5x3");
  data.mutable_image_folder()->set_channels(1);
  check = CheckJob(spec);
  REQUIRE(check.diagnostics.empty());
  CHECK(check.class_names == std::vector<std::string>{"cat", "owl"});
  CHECK(check.plan.classes == 2);
}

TEST_CASE("CheckJob: a good job comes with its plan and its sample counts", "[job]") {
  const Folder folder;
  const JobCheck check = CheckJob(folder.Spec());
  CHECK(check.diagnostics.empty());
  CHECK(check.train_count == 6);
  CHECK(check.test_count == 2);
  CHECK(check.plan.input == SampleShape{5, 5, 1});
  CHECK(check.plan.classes == 10);
  CHECK(check.plan.parameter_count == 4 * 9 + 4 + 36 * 10 + 10);
}

TEST_CASE("CheckJob: ranges are checked before files are read", "[job]") {
  const Folder folder;
  v1::JobSpec spec = folder.Spec();
  spec.mutable_data()->mutable_train()->set_images("/none");
  spec.mutable_training()->set_batch_size(0);
  const JobCheck check = CheckJob(spec);
  REQUIRE(check.diagnostics.size() == 1);
  CHECK(check.diagnostics[0].field == "training.batch_size");
}

TEST_CASE("CheckJob: a data file that cannot be used is located where the job names it", "[job]") {
  const Folder folder;
  CHECK_THAT(folder.Errors("train-images", "none"),
             Catch::StartsWith("j:7:11: data.train.images: FOLDER/none: "));
  CHECK_THAT(folder.Errors("test-labels", "none"),
             Catch::StartsWith("j:8:32: data.test.labels: FOLDER/none: "));
  CHECK_THAT(
      folder.Errors("test-labels", "bad-labels"),
      Catch::StartsWith("j:8:32: data.test.labels: FOLDER/bad-labels: label number 1 is out"));
  CHECK_THAT(folder.Errors("train-images", "train-labels"),
             Catch::StartsWith("j:7:11: data.train.images: FOLDER/train-labels: "));
}

TEST_CASE("CheckJob: data, classes, batch and augmentation must fit together", "[job]") {
  const Folder folder;
  CHECK(folder.Errors("test-images", "wide-images") ==
        "j:8:3: data.test: got images of 5x6x1, expected 5x5x1, as in data.train");
  CHECK(folder.Errors("units: 10 } }", "units: 9 } }\n  classes: 9") ==
        "j:4:3: model.classes: got 9, expected at least 10, as the data has label 9");
  CHECK(folder.Errors("batch_size: 2", "batch_size: 7") ==
        "j:10:22: training.batch_size: got 7, expected at most 6, the number of training images");
  CHECK(folder.Errors("format: IDX", "format: IDX augmentation { crop_padding: 6 }") ==
        "j:6:30: data.augmentation.crop_padding: got 6, expected at most 5, as images are 5x5x1");
}

TEST_CASE("CheckJob: the samples of all epochs together are limited", "[job]") {
  v1::JobSpec spec;
  spec.mutable_program()->add_command("train");
  spec.mutable_program()->set_samples(4'294'967'295);
  spec.mutable_program()->add_parameters()->set_name("w");
  spec.mutable_training()->set_epochs(1'073'741'824);
  spec.mutable_training()->set_batch_size(1);
  spec.mutable_optimizer()->mutable_sgd();
  spec.mutable_optimizer()->set_learning_rate(1);
  spec.mutable_resources()->set_workers(1);
  CHECK(CheckJob(spec).diagnostics.empty());
  spec.mutable_training()->set_epochs(1'073'741'825);
  const JobCheck check = CheckJob(spec);
  REQUIRE(check.diagnostics.size() == 1);
  CHECK(check.diagnostics[0].ToString() ==
        "training.epochs: got 1073741825, expected 1 to 1073741824, as an epoch has 4294967295 "
        "samples");
}

TEST_CASE("CheckJob: a tensor whose norm is taken fits on one server", "[job]") {
  const Folder folder;
  v1::JobSpec spec = folder.Spec();
  for (const bool layer_wise : {false, true}) {
    if (layer_wise) spec.mutable_optimizer()->mutable_lamb();
    *spec.mutable_model() = folder.Spec().model();
    CHECK(CheckJob(spec).diagnostics.empty());
    v1::Layer& large = *spec.mutable_model()->mutable_layers(0);
    large.mutable_fully_connected()->set_units(400'000);
    const JobCheck check = CheckJob(spec);
    REQUIRE(check.diagnostics.size() == (layer_wise ? 1 : 0));
    if (!layer_wise) continue;
    CHECK(check.diagnostics[0].ToString() ==
          "optimizer.lamb: got conv.weight of 10000000 elements, expected tensors of at most "
          "8388608 elements, since their norms are taken on one server");
  }
}

TEST_CASE("CheckJob: with backups an epoch needs a whole iteration", "[job]") {
  const Folder folder;
  v1::JobSpec spec = folder.Spec();
  spec.mutable_training()->set_slots(3);
  spec.mutable_consistency()->mutable_bsp()->set_backups(1);
  spec.mutable_resources()->set_workers(3);
  JobCheck enough = CheckJob(spec);
  CHECK(enough.diagnostics.empty());
  CHECK(enough.warnings.empty());
  spec.mutable_resources()->set_workers(2);
  enough = CheckJob(spec);
  CHECK(enough.diagnostics.empty());
  REQUIRE(enough.warnings.size() == 1);
  CHECK(enough.warnings[0] ==
        "consistency.bsp.backups: 1 is less than the 2 slots of a worker, so that each iteration "
        "waits for every worker; as many workers as slots would make each a slot");
  spec.mutable_training()->set_slots(4);
  const JobCheck check = CheckJob(spec);
  REQUIRE(check.diagnostics.size() == 1);
  CHECK(check.diagnostics[0].ToString() ==
        "consistency.bsp.backups: got 1, expected 0, since an epoch of 6 samples has no whole "
        "iteration of 4 slots of 2");
}

TEST_CASE("CheckJob: a shape that does not fit names the layer and is located", "[job]") {
  const Folder folder;
  CHECK(folder.Errors("kernel: 3", "kernel: 6") ==
        "j:2:50: model.layers[0].convolution.kernel: layer \"conv\": convolution.kernel is 6, "
        "expected at most 5: its input is 5x5x1 with padding 0");
  CHECK(
      folder.Errors("units: 10", "units: 11") ==
      "j:3:3: model.layers[1]: layer \"out\" is the last: its output is 11, expected 10, one value "
      "a class");
}

}  // namespace
}  // namespace capstan::check_job_test
