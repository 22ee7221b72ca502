#include "worker/prediction/predictor.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "common/data/testing/test_files.h"
#include "common/model/initial_rows.h"
#include "common/model/initial_values.h"
#include "common/model/tables.h"
#include "common/sparse_models/model_of_job.h"
#include "common/tensor/model_file.h"
#include "common/tensor/safetensors/durable_file.h"
#include "common/tensor/safetensors/row_file.h"
#include "common/testing/status_matchers.h"
#include "worker/training/trainer/sparse_trainer.h"
#include "worker/training/trainer/trainer.h"

namespace capstan::worker::predictor_test {
namespace {

using testing::Bytes;
using testing::TemporaryFolder;

constexpr int64_t kImages = 600;  // More than two batches.

v1::JobSpec Parse(const std::string& text) {
  v1::JobSpec job;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &job));
  return job;
}

v1::Split ImageSplit(const TemporaryFolder& folder, const std::string& name, int64_t count) {
  Bytes labels;
  for (int64_t i = 0; i < count; ++i) labels.push_back(static_cast<uint8_t>(i * 7 % 10));
  v1::Split split;
  split.set_images(
      folder.Write(name + "-images", testing::IdxImagesFile(static_cast<uint32_t>(count), 8, 8)));
  split.set_labels(folder.Write(name + "-labels", testing::IdxLabelsFile(labels)));
  return split;
}

TEST_CASE("Predictor: a model of layers has the numbers of its trainer's evaluation",
          "[worker][prediction]") {
  const TemporaryFolder folder;
  v1::JobSpec job = Parse(R"pb(
    model {
      layers {
        name: "c"
        convolution { filters: 4 kernel: 3 }
      }
      layers {
        name: "n"
        batch_normalization {}
      }
      layers {
        name: "f"
        fully_connected { units: 10 }
      }
    }
    training { epochs: 1 batch_size: 8 seed: 3 }
    data {
      format: IDX
      augmentation { mean: 0.3 std: 0.5 crop_padding: 1 }
    }
  )pb");
  *job.mutable_data()->mutable_train() = ImageSplit(folder, "train", 8);
  *job.mutable_data()->mutable_test() = ImageSplit(folder, "test", kImages);
  REQUIRE_OK_AND_ASSIGN(const auto trainer, Trainer::Create(job));
  const std::vector<v1::TableSpec> specs = MakeTables(trainer->plan());
  Trainer::Tables tables = MakeTrainerTables(trainer->plan());
  std::vector<TableValues> values;
  for (size_t t = 0; t < specs.size(); ++t) {
    FillInitialValues(specs[t], 3, 0, absl::MakeSpan(tables[t]));
    values.push_back({&specs[t], 1, tables[t]});
  }
  REQUIRE_OK(WriteModelFiles(folder.Path("model"), "job-1", job, values));
  REQUIRE_OK_AND_ASSIGN(const BatchResult expected, trainer->Evaluate({0, kImages}, tables));

  REQUIRE_OK_AND_ASSIGN(const ModelReader model, ModelReader::Open(folder.Path("model")));
  job.mutable_data()->mutable_train()->set_images("/none");  // The train split is not needed.
  REQUIRE_OK_AND_ASSIGN(const auto predictor, Predictor::Create(job, model));
  REQUIRE(predictor->kind() == OutputKind::kLogits);
  REQUIRE(predictor->width() == 10);
  REQUIRE(predictor->count() == kImages);
  EvaluationSum sum;
  ScoreCounts scores;
  Predictions predictions;
  int64_t hits = 0;
  for (const Range part : {Range{0, 513}, Range{513, kImages}}) {
    REQUIRE_OK(predictor->Predict(part, &predictions, &sum, &scores));
    CHECK(predictions.first == part.begin);
    REQUIRE(predictions.labels.size() == static_cast<size_t>(part.size()));
    REQUIRE(predictions.outputs.size() == 10 * static_cast<size_t>(part.size()));
    for (size_t i = 0; i < predictions.labels.size(); ++i) {
      CHECK(predictions.labels[i] == static_cast<float>((part.begin + int64_t(i)) * 7 % 10));
      const auto logits = predictions.outputs.begin() + static_cast<ptrdiff_t>(10 * i);
      const auto best = std::max_element(logits, logits + 10) - logits;
      hits += static_cast<float>(best) == predictions.labels[i];
    }
  }
  CHECK(sum.samples == kImages);
  CHECK(sum.correct == expected.correct);
  CHECK(hits == expected.correct);
  CHECK(sum.loss == Approx(expected.loss_sum).epsilon(1e-12));
}

TEST_CASE("Predictor: a model of other layers is refused", "[worker][prediction]") {
  const TemporaryFolder folder;
  v1::JobSpec job = Parse("model { zoo: 'softmax_regression' } data { format: IDX }");
  *job.mutable_data()->mutable_test() = ImageSplit(folder, "test", 3);
  REQUIRE_OK(WriteModelFiles(folder.Path("model"), "job-1", job, {}));
  REQUIRE_OK_AND_ASSIGN(const ModelReader model, ModelReader::Open(folder.Path("model")));
  CHECK_STATUS(Predictor::Create(job, model).status(), absl::StatusCode::kInvalidArgument,
               "found no such tensor, expected [10, 64] for this model and data");
}

// Every second key of the table has a row of its own; the others have initial rows.
TEST_CASE("Predictor: a model on examples has its rows, and initial ones for other keys",
          "[worker][prediction]") {
  const TemporaryFolder folder;
  const bool squared = GENERATE(false, true);
  v1::JobSpec job = Parse(R"pb(
    model {
      sparse {
        factorization_machine { rank: 2 }
        buckets: 4
      }
    }
    data {
      format: CLICK_LOG
      click_log { fields: 3 keys_per_field: 5 dense_columns: 1 }
      train { examples: 60 }
      test { first_example: 60 examples: 50 }
    }
    training { epochs: 1 batch_size: 10 seed: 5 }
  )pb");
  if (squared) {
    job.mutable_model()->mutable_sparse()->mutable_factorization_machine()->set_loss(
        v1::SparseModel::SQUARED);
  }
  REQUIRE_OK_AND_ASSIGN(const auto trainer, SparseTrainer::Create(job));
  const auto specs = MakeSparseTables(job.model().sparse(), trainer->shape());
  REQUIRE_OK_AND_ASSIGN(const SparseBatch batch, trainer->LoadTest({0, 50}));
  std::vector<uint64_t> with_rows;
  std::vector<float> file_rows, rows(static_cast<size_t>(batch.keys->size()) * 3);
  std::vector<float*> places;
  for (size_t i = 0; i < batch.keys->keys.size(); ++i) places.push_back(rows.data() + 3 * i);
  RowInitializer(specs[0].sparse().initializer(), 5, TableId(0), 3, 1)
      .Fill(batch.keys->keys, places);
  for (size_t i = 0; i < batch.keys->keys.size(); i += 2) {
    for (size_t c = 0; c < 3; ++c) rows[3 * i + c] = 0.1f * static_cast<float>(i + c);
    with_rows.push_back(batch.keys->keys[i]);
    file_rows.insert(file_rows.end(), places[i], places[i] + 3);
  }
  const std::vector<float> dense = {0.25f, -0.5f};
  std::vector<float> expected_outputs;
  const BatchResult expected = trainer->Evaluate(batch, rows, dense, &expected_outputs);

  REQUIRE_OK(MakeDirectories(folder.Path("model")));
  REQUIRE_OK_AND_ASSIGN(RowFileWriter file,
                        RowFileWriter::Create(folder.Path("model/rows-rows.safetensors"), 3));
  REQUIRE_OK(file.Add(with_rows, file_rows));
  REQUIRE_OK(file.Finish());
  REQUIRE_OK(WriteModelFiles(folder.Path("model"), "job-1", job, {{&specs[1], 1, dense}},
                             {{.spec = &specs[0], .count = file.rows()}}));
  REQUIRE_OK_AND_ASSIGN(const ModelReader model, ModelReader::Open(folder.Path("model")));
  REQUIRE_OK_AND_ASSIGN(const auto predictor, Predictor::Create(job, model));
  CHECK(predictor->kind() == (squared ? OutputKind::kValue : OutputKind::kLogit));
  CHECK(predictor->count() == 50);
  EvaluationSum sum;
  ScoreCounts scores;
  std::vector<float> outputs;
  for (const Range part : {Range{0, 1}, Range{1, 33}, Range{33, 50}}) {
    Predictions predictions;
    REQUIRE_OK(predictor->Predict(part, &predictions, &sum, &scores));
    outputs.insert(outputs.end(), predictions.outputs.begin(), predictions.outputs.end());
  }
  CHECK(outputs == expected_outputs);
  CHECK(sum.correct == expected.correct);
  CHECK(sum.loss == Approx(expected.loss_sum).epsilon(1e-12));
  CHECK(scores.Examples() == (squared ? 0 : 50));
}

}  // namespace
}  // namespace capstan::worker::predictor_test
