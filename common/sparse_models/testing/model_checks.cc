#include "common/sparse_models/testing/model_checks.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include "common/random/philox.h"
#include "common/sparse/key_batch.h"
#include "common/testing/status_matchers.h"

namespace capstan::testing {
namespace {

float Draw(uint64_t seed, uint64_t index) {
  return 2 * ToUnitFloat(PhiloxWord(MixKey(seed, 77), index)) - 1;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// fp32 sums of some dozen terms of size 1 err by a few units of 2^-24, relative to the largest.
constexpr double kTolerance = 2e-5;

void CheckClose(const char* what, size_t index, double actual, double expected, double scale) {
  INFO(what << " " << index);
  CHECK(std::abs(actual - expected) <= kTolerance * scale);
}

double LargestOf(const std::vector<float>& values) {
  double largest = 1;
  for (const float value : values) {
    largest = std::max(largest, std::abs(static_cast<double>(value)));
  }
  return largest;
}

ExampleBatch PartOf(const ExampleBatch& examples, int64_t begin, int64_t end) {
  ExampleBatch part(examples.dense_columns());
  part.Append(examples, begin, end);
  return part;
}

// Returns the examples [begin, end) with the rows that they have in `whole`; places stay as they
// are.
ModelCase CaseOfPart(const SparseModel& model, const ModelCase& whole, int64_t begin, int64_t end) {
  ModelCase part = whole;
  part.examples = PartOf(whole.examples, begin, end);
  part.draws.first += static_cast<uint64_t>(begin);
  std::vector<uint64_t> before, keys;
  REQUIRE_OK(model.AppendKeys(PartOf(whole.examples, 0, begin), whole.draws, &before));
  REQUIRE_OK(model.AppendKeys(part.examples, part.draws, &keys));
  const auto first = whole.places.begin() + static_cast<std::ptrdiff_t>(before.size());
  part.places.assign(first, first + static_cast<std::ptrdiff_t>(keys.size()));
  return part;
}

void CheckCut(SparseModel& model, const ModelCase& whole) {
  const int64_t n = whole.examples.count();
  const Gradients all = TrainOn(model, whole, n);
  const Gradients head = TrainOn(model, CaseOfPart(model, whole, 0, n / 2), n);
  const Gradients tail = TrainOn(model, CaseOfPart(model, whole, n / 2, n), n);
  CHECK(all.result.losses == head.result.losses + tail.result.losses);
  CheckClose("loss", 0, head.result.loss_sum + tail.result.loss_sum, all.result.loss_sum,
             std::abs(all.result.loss_sum) + 1);
  for (size_t i = 0; i < all.rows.size(); ++i) {
    CheckClose("row gradient", i, static_cast<double>(head.rows[i] + tail.rows[i]),
               static_cast<double>(all.rows[i]), LargestOf(all.rows));
  }
  for (size_t i = 0; i < all.dense.size(); ++i) {
    CheckClose("dense gradient", i, static_cast<double>(head.dense[i] + tail.dense[i]),
               static_cast<double>(all.dense[i]), LargestOf(all.dense));
  }
  const std::vector<float> outputs = PredictOn(model, whole);
  for (int64_t i = 0; i < n; ++i) {
    const std::vector<float> alone = PredictOn(model, CaseOfPart(model, whole, i, i + 1));
    CHECK(SameBits(alone, {outputs[static_cast<size_t>(i)]}));
  }
}

void CheckNan(SparseModel& model, ModelCase on) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (std::vector<float>* values : {&on.rows, &on.dense}) {
    if (values->empty()) continue;
    const std::vector<float> kept = std::exchange(*values, std::vector(values->size(), kNan));
    CHECK(std::isnan(TrainOn(model, on).result.loss_sum));
    *values = kept;
  }
}

}  // namespace

void AddExample(float label, const std::vector<float>& dense, const std::vector<Feature>& features,
                ExampleBatch* batch) {
  for (const float value : dense) batch->AddDense(value);
  for (const Feature& feature : features) {
    batch->AddFeature(feature.key, feature.value, feature.field);
  }
  batch->Finish(label);
}

ModelCase::ModelCase(const SparseModel& model, const ExampleBatch& batch, uint64_t seed,
                     float row_scale)
    : examples(batch), draws{.key = seed, .first = 10}, row_dim(model.shape().row_dim) {
  std::vector<uint64_t> keys;
  REQUIRE_OK(model.AppendKeys(examples, draws, &keys));
  const KeyBatch unique = MakeKeyBatch(keys, /*buckets=*/3, &places);
  rows.resize(static_cast<size_t>(unique.size() * row_dim));
  dense.resize(static_cast<size_t>(model.shape().dense_count));
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = row_scale * Draw(seed, i);
  for (size_t i = 0; i < dense.size(); ++i) dense[i] = Draw(seed + 1, i);
}

bool operator==(const Gradients& a, const Gradients& b) {
  return std::memcmp(&a.result.loss_sum, &b.result.loss_sum, sizeof(double)) == 0 &&
         a.result.losses == b.result.losses && SameBits(a.rows, b.rows) &&
         SameBits(a.dense, b.dense);
}

Gradients TrainOn(SparseModel& model, const ModelCase& on, int64_t gradient_samples) {
  // The earlier contents must not matter.
  Gradients gradients = {.rows = std::vector(on.rows.size(), 42.0f),
                         .dense = std::vector(on.dense.size(), 42.0f)};
  gradients.result = model.Train(on.Input(), gradient_samples, absl::MakeSpan(gradients.rows),
                                 absl::MakeSpan(gradients.dense));
  return gradients;
}

std::vector<float> PredictOn(SparseModel& model, const ModelCase& on) {
  std::vector<float> outputs(static_cast<size_t>(on.examples.count()), 42.0f);
  model.Predict(on.Input(), absl::MakeSpan(outputs));
  return outputs;
}

ReferenceLoss LossOfOutputs(SparseLoss loss, ReferenceOutput output) {
  return [loss, output = std::move(output)](const ModelCase& on, absl::Span<const double> rows,
                                            absl::Span<const double> dense) {
    double sum = 0;
    for (int64_t i = 0; i < on.examples.count(); ++i) {
      const ExampleView example = on.examples.example(i);
      std::vector<const double*> of_keys;
      const auto first = static_cast<size_t>(on.examples.row_begin()[static_cast<size_t>(i)]);
      for (size_t j = 0; j < example.keys.size(); ++j) {
        of_keys.push_back(rows.data() + on.places[first + j] * on.row_dim);
      }
      const double z = output(example, of_keys, dense.data());
      const auto label = static_cast<double>(example.label);
      sum += loss == SparseLoss::kSquared ? (z - label) * (z - label)
                                          : std::log1p(std::exp(label > 0 ? -z : z));
    }
    return sum;
  };
}

void CheckGradients(SparseModel& model, const ModelCase& on, const ReferenceLoss& reference) {
  constexpr double kStep = 1e-5;
  const Gradients actual = TrainOn(model, on);
  std::vector<double> rows(on.rows.begin(), on.rows.end());
  std::vector<double> dense(on.dense.begin(), on.dense.end());
  const double loss = reference(on, rows, dense);
  CheckClose("loss", 0, actual.result.loss_sum, loss, std::abs(loss) + 1);
  const auto check = [&](const char* what, const std::vector<float>& gradients,
                         std::vector<double>& parameters) {
    const double scale = LargestOf(gradients);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const double kept = std::exchange(parameters[i], parameters[i] + kStep);
      const double above = reference(on, rows, dense);
      parameters[i] = kept - kStep;
      const double below = reference(on, rows, dense);
      parameters[i] = kept;
      CheckClose(what, i, static_cast<double>(gradients[i]), (above - below) / (2 * kStep), scale);
    }
  };
  check("row gradient", actual.rows, rows);
  check("dense gradient", actual.dense, dense);
}

void CheckInvariants(SparseModel& model, const ExampleBatch& examples) {
  const ModelCase whole(model, examples);
  const Gradients once = TrainOn(model, whole);
  CHECK(once == TrainOn(model, whole));

  const ModelCase none(model, PartOf(examples, 0, 0));
  const Gradients nothing = TrainOn(model, none);
  CHECK(nothing.result.loss_sum == 0.0);
  CHECK(nothing.result.losses == 0);
  CHECK(nothing.rows.empty());
  CHECK(nothing.dense == std::vector<float>(whole.dense.size(), 0.0f));
  CHECK(once == TrainOn(model, whole));  // Batches of other sizes before do not matter.

  const Gradients halves = TrainOn(model, whole, 2);
  CHECK(halves.result.loss_sum == once.result.loss_sum);
  for (size_t i = 0; i < once.rows.size(); ++i) CHECK(2 * halves.rows[i] == once.rows[i]);
  for (size_t i = 0; i < once.dense.size(); ++i) CHECK(2 * halves.dense[i] == once.dense[i]);

  std::vector<float> outputs(static_cast<size_t>(examples.count()));
  const SparseResult predicted = model.Predict(whole.Input(), absl::MakeSpan(outputs));
  CHECK(predicted.loss_sum == once.result.loss_sum);
  CHECK(predicted.losses == once.result.losses);
  CheckCut(model, whole);
  CheckNan(model, whole);
}

std::vector<double> ReferenceMlp(std::vector<double> in, const std::vector<int64_t>& widths,
                                 bool relu_last, const double* dense, int64_t* offset) {
  for (size_t layer = 0; layer + 1 < widths.size(); ++layer) {
    const auto outs = static_cast<size_t>(widths[layer + 1]);
    const double* weight = dense + *offset;
    const double* bias = weight + outs * in.size();
    *offset += static_cast<int64_t>(outs * (in.size() + 1));
    std::vector<double> out(outs);
    for (size_t o = 0; o < outs; ++o) {
      out[o] = bias[o];
      for (size_t i = 0; i < in.size(); ++i) out[o] += weight[o * in.size() + i] * in[i];
      if (layer + 2 < widths.size() || relu_last) out[o] = std::max(out[o], 0.0);
    }
    in = std::move(out);
  }
  return in;
}

}  // namespace capstan::testing
