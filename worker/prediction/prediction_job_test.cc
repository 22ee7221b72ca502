#include "worker/prediction/prediction_job.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/data/testing/test_files.h"
#include "common/examples/testing/example_files.h"
#include "common/testing/status_matchers.h"

namespace capstan::worker::prediction_job_test {
namespace {

using testing::TemporaryFolder;
using testing::ToBytes;

v1::JobSpec Model(const std::string& data) {
  v1::JobSpec job;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(
      R"(model { sparse { logistic_regression {} } }
         training { epochs: 1 batch_size: 1 } optimizer { adagrad {} learning_rate: 0.1 }
         resources { workers: 1 } data { format: SVMLIGHT )" +
          data + "}",
      &job));
  return job;
}

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST_CASE("Prediction job: the split that is asked for stands as the test split",
          "[worker][prediction]") {
  const TemporaryFolder folder;
  const std::string train = folder.Write("train.svm", ToBytes("1 1:1\n"));
  const std::string test = folder.Write("test.svm", ToBytes("0 2:1\n"));
  const v1::JobSpec model =
      Model("train { files: '" + train + "' } test { files: '" + test + "' }");
  REQUIRE_OK_AND_ASSIGN(v1::JobSpec job, CheckedPredictionJob(model, "m", {}));
  CHECK(job.data().test().files(0) == test);
  // The scheduler writes these fields into the spec of an asynchronous job's tasks.
  v1::JobSpec written_out = model;
  written_out.mutable_consistency()->mutable_asp();
  written_out.mutable_training()->set_slots(2);
  REQUIRE_OK(CheckedPredictionJob(written_out, "m", {}));
  REQUIRE_OK_AND_ASSIGN(job, CheckedPredictionJob(model, "m", {.split = "train"}));
  CHECK(job.data().test().files(0) == train);
}

TEST_CASE("Prediction job: other data come from fields and from a job file, in this order",
          "[worker][prediction]") {
  const TemporaryFolder folder;
  folder.Write("new.svm", ToBytes("1 1:1\n"));
  folder.Write("newer.svm", ToBytes("1 1:1\n"));
  const std::string file = folder.Write(
      "data.textproto", ToBytes("data { format: SVMLIGHT test { files: 'new.svm' } }"));
  // The data that the model was trained with need not exist.
  const v1::JobSpec model = Model("train { files: '/none/train' }");
  REQUIRE_OK_AND_ASSIGN(v1::JobSpec job, CheckedPredictionJob(model, "m", {.job_file = file}));
  CHECK(job.data().test().files(0) == folder.Path("new.svm"));
  REQUIRE_OK_AND_ASSIGN(
      job, CheckedPredictionJob(
               model, "m",
               {.job_file = file, .overrides = {"data.test.files=" + folder.Path("newer.svm")}}));
  CHECK(job.data().test().files(0) == folder.Path("newer.svm"));
}

TEST_CASE("Prediction job: labels keep the numbers that the model's classes have",
          "[worker][prediction]") {
  v1::JobSpec model;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(
      R"(model { layers { name: "out" fully_connected { units: 3 } } }
         training { epochs: 1 batch_size: 1 } optimizer { sgd {} learning_rate: 0.1 }
         resources { workers: 1 }
         data {
           format: IMAGE_FOLDER
           train { images: "/none" }
           class_names: [ "cat", "dog", "fox" ]
         })",
      &model));
  const TemporaryFolder folder;
  const auto names = [&](const std::string& data) {
    const std::string file = folder.Write("data.textproto", ToBytes("data { " + data + " }"));
    REQUIRE_OK_AND_ASSIGN(const v1::JobSpec job,
                          CheckedPredictionJob(model, "m", {.job_file = file}));
    return std::vector<std::string>(job.data().class_names().begin(),
                                    job.data().class_names().end());
  };
  const std::string folders = "format: IMAGE_FOLDER test { images: 'new' }";
  CHECK(names(folders) == std::vector<std::string>{"cat", "dog", "fox"});
  CHECK(names(folders + "class_names: ['dog', 'cat']") == std::vector<std::string>{"dog", "cat"});
  CHECK(names("format: IDX test { images: 'images' labels: 'labels' }").empty());
}

TEST_CASE("Prediction job: large files are counted anew", "[worker][prediction]") {
  const TemporaryFolder folder;
  const std::string test = folder.Write("test.svm", ToBytes("0 2:1\n1 3:1\n"));
  v1::JobSpec model = Model("examples { memory_mib: 0 } train { files: '/none' } test { files: '" +
                            test + "' block_examples: [7, 8, 9] }");
  REQUIRE_OK_AND_ASSIGN(const v1::JobSpec job, CheckedPredictionJob(model, "m", {}));
  REQUIRE(job.data().test().block_examples_size() == 1);
  CHECK(job.data().test().block_examples(0) == 2);
}

TEST_CASE("Prediction job: what is wrong is named", "[worker][prediction]") {
  const v1::JobSpec model = Model("train { files: '/none' }");
  CHECK_STATUS(CheckedPredictionJob(model, "out/model.json", {}), kInvalid,
               "out/model.json: data.test is missing; name its files");
  CHECK_STATUS(
      CheckedPredictionJob(model, "m", {.overrides = {"data.test.files=x", "resources.threads=0"}}),
      kInvalid, "--set resources.threads=0: resources.threads: got 0");
  CHECK_STATUS(CheckedPredictionJob(model, "m", {.overrides = {"data.tst.files=x"}}), kInvalid,
               "--set data.tst.files=x");
  CHECK_STATUS(
      CheckedPredictionJob(model, "m", {.overrides = {"data.test.files=x", "data.format=TEXT"}}),
      kInvalid, "model.sparse: got a model of examples with labels");
  CHECK_STATUS(CheckedPredictionJob(model, "m", {.overrides = {"data.test.files=/none/x.svm"}}),
               absl::StatusCode::kNotFound, "/none/x.svm");
  CHECK_STATUS(CheckedPredictionJob(model, "m", {.job_file = "/none/job"}),
               absl::StatusCode::kNotFound, "/none/job");
}

}  // namespace
}  // namespace capstan::worker::prediction_job_test
