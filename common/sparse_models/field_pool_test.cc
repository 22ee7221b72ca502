#include "common/sparse_models/field_pool.h"

#include <catch2/catch.hpp>
#include <vector>

#include "common/examples/example_batch.h"

namespace capstan::field_pool_test {
namespace {

using Floats = std::vector<float>;

// Two examples; three fields, of which one has no key in either.
struct Pooled {
  Pooled() {
    examples.AddFeature(7, 2, 0);
    examples.AddFeature(8, 1, 2);
    examples.AddFeature(9, 4, 0);
    examples.Finish(1);
    examples.AddFeature(7, 1, 2);
    examples.Finish(0);
  }
  SparseInput Input() const { return {examples, {}, places, rows, {}}; }

  ExampleBatch examples;
  std::vector<uint32_t> places = {1, 0, 2, 1};
  Floats rows = {-1, 10, 20, -1, 1, 2, -1, 3, 5};  // Rows of 8, 7, 9; one column is not pooled.
};

FieldPool Make(Pooling pooling) {
  return FieldPool({.fields = 3, .dim = 2, .row_dim = 3, .first_column = 1, .pooling = pooling});
}

TEST_CASE("Field pool: sums of a field's keys by value, zeros without keys", "[sparse_models]") {
  const Pooled pooled;
  Floats out(14, 42);
  Make(Pooling::kSum).Forward(pooled.Input(), 7, out.data());
  CHECK(out == Floats{14, 24, 0, 0, 10, 20, 42, 0, 0, 0, 0, 1, 2, 42});
}

TEST_CASE("Field pool: means divide by the number of keys", "[sparse_models]") {
  const Pooled pooled;
  Floats out(14, 42);
  Make(Pooling::kMean).Forward(pooled.Input(), 7, out.data());
  CHECK(out == Floats{7, 12, 0, 0, 10, 20, 42, 0, 0, 0, 0, 1, 2, 42});
}

TEST_CASE("Field pool: gradients are added to the rows, other columns are left alone",
          "[sparse_models]") {
  const Pooled pooled;
  const Floats gradient = {1, 2, 9, 9, 3, 4, 9, 9, 9, 9, 9, 5, 6, 9};
  Floats sum(9, 100), mean(9, 100);
  Make(Pooling::kSum).Backward(pooled.Input(), 7, gradient.data(), sum.data());
  CHECK(sum == Floats{100, 103, 104, 100, 100 + 2 + 5, 100 + 4 + 6, 100, 104, 108});
  Make(Pooling::kMean).Backward(pooled.Input(), 7, gradient.data(), mean.data());
  CHECK(mean == Floats{100, 103, 104, 100, 100 + 1 + 5, 100 + 2 + 6, 100, 102, 104});
}

}  // namespace
}  // namespace capstan::field_pool_test
