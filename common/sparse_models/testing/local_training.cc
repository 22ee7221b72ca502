#include "common/sparse_models/testing/local_training.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>

#include "absl/types/span.h"
#include "common/random/normal.h"
#include "common/random/philox.h"
#include "common/sparse/key_batch.h"
#include "common/testing/status_matchers.h"

namespace capstan::testing {
namespace {

float DrawInitial(const Initial& initial, uint64_t key, uint64_t index) {
  const auto words = Philox4x32(key, index);
  switch (initial.kind) {
    case Initial::Kind::kConstant:
      return initial.value;
    case Initial::Kind::kUniform:
      return (2 * ToUnitFloat(words[0]) - 1) * initial.value;
    case Initial::Kind::kNormal:
      return static_cast<float>(NormalOf(words[0], words[1])) * initial.value;
  }
  return 0;
}

}  // namespace

struct LocalTraining::Step {
  Step(const LocalTraining& training, const ExampleBatch& all, int64_t begin, int64_t end)
      : examples(all.dense_columns()),
        draws{.key = MixKey(training.options_.seed, training.epoch_),
              .first = static_cast<uint64_t>(begin)} {
    examples.Append(all, begin, end);
    std::vector<uint64_t> named;
    REQUIRE_OK(training.model_.AppendKeys(examples, draws, &named));
    keys = MakeKeyBatch(named, /*buckets=*/1, &places).keys;
    for (const uint64_t key : keys) {
      const std::vector<float> row = training.Row(key);
      rows.insert(rows.end(), row.begin(), row.end());
    }
  }

  ExampleBatch examples;
  SampleDraws draws;
  std::vector<uint32_t> places;
  std::vector<uint64_t> keys;
  std::vector<float> rows;
};

void LocalTraining::Parameters::Update(const float* gradient, float rate) {
  for (size_t i = 0; i < weights.size(); ++i) {
    squares[i] += gradient[i] * gradient[i];
    weights[i] -= rate * gradient[i] / (std::sqrt(squares[i]) + 1e-10f);
  }
}

LocalTraining::LocalTraining(SparseModel& model, const Options& options)
    : model_(model), options_(options) {
  const SparseShape& shape = model.shape();
  int64_t end = 0;
  for (const PlannedTensor& tensor : shape.dense) {
    CHECK(tensor.offset == end);
    end += tensor.count;
    for (int64_t i = 0; i < tensor.count; ++i) {
      dense_.weights.push_back(DrawInitial(tensor.initial, MixKey(options.seed, 5),
                                           static_cast<uint64_t>(tensor.offset + i)));
    }
  }
  CHECK(end == shape.dense_count);
  dense_.squares.resize(dense_.weights.size());
}

LocalTraining::Parameters LocalTraining::NewRow(uint64_t key) const {
  const SparseShape& shape = model_.shape();
  const auto dim = static_cast<size_t>(shape.row_dim);
  Parameters row = {.weights = std::vector<float>(dim), .squares = std::vector<float>(dim)};
  for (auto c = static_cast<size_t>(shape.zero_columns); c < dim; ++c) {
    row.weights[c] = DrawInitial(shape.row_initial, MixKey(options_.seed, key), c);
  }
  return row;
}

std::vector<float> LocalTraining::Row(uint64_t key) const {
  const auto found = table_.find(key);
  return found == table_.end() ? NewRow(key).weights : found->second.weights;
}

double LocalTraining::Epoch(const ExampleBatch& examples) {
  SparseResult sum;
  for (int64_t begin = 0; begin < examples.count(); begin += options_.batch_size) {
    const int64_t end = std::min(begin + options_.batch_size, examples.count());
    const Step step(*this, examples, begin, end);
    std::vector<float> rows(step.rows.size());
    std::vector<float> dense(dense_.weights.size());
    const SparseResult result =
        model_.Train({step.examples, step.draws, step.places, step.rows, dense_.weights},
                     end - begin, absl::MakeSpan(rows), absl::MakeSpan(dense));
    sum.loss_sum += result.loss_sum;
    sum.losses += result.losses;
    for (size_t i = 0; i < step.keys.size(); ++i) {
      auto found = table_.find(step.keys[i]);
      if (found == table_.end()) {
        found = table_.emplace(step.keys[i], NewRow(step.keys[i])).first;
      }
      found->second.Update(rows.data() + i * found->second.weights.size(), options_.rate);
    }
    dense_.Update(dense.data(), options_.rate);
  }
  ++epoch_;
  return sum.loss_sum / static_cast<double>(sum.losses);
}

std::vector<float> LocalTraining::Predict(const ExampleBatch& examples) {
  const Step step(*this, examples, 0, examples.count());
  std::vector<float> outputs(static_cast<size_t>(examples.count()));
  model_.Predict({step.examples, step.draws, step.places, step.rows, dense_.weights},
                 absl::MakeSpan(outputs));
  return outputs;
}

}  // namespace capstan::testing
