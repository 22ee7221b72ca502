#include "common/examples/example_batch.h"

#include <catch2/catch.hpp>

#include "common/examples/testing/parser_checks.h"

namespace capstan::example_batch_test {
namespace {

using ::capstan::testing::CheckInvariants;
using ::capstan::testing::SameExamples;

// Example number i has i keys (10 i, 10 i + 1, ...), label i and two dense columns.
ExampleBatch MakeBatch(int64_t count) {
  ExampleBatch batch(/*dense_columns=*/2);
  for (int64_t i = 0; i < count; ++i) {
    batch.AddDense(static_cast<float>(i));
    for (int64_t j = 0; j < i; ++j) {
      batch.AddFeature(static_cast<uint64_t>(10 * i + j), static_cast<float>(j),
                       static_cast<int32_t>(j % 3));
    }
    batch.AddDense(-1.0f);
    batch.Finish(static_cast<float>(i));
  }
  return batch;
}

TEST_CASE("Example batch: rows hold what was added to them", "[common][examples]") {
  const ExampleBatch batch = MakeBatch(4);
  CheckInvariants(batch);
  CHECK(batch.count() == 4);
  CHECK(batch.value_count() == 6);
  CHECK(batch.row_begin() == absl::Span<const int64_t>({0, 0, 1, 3, 6}));
  CHECK(batch.keys() == absl::Span<const uint64_t>({10, 20, 21, 30, 31, 32}));
  CHECK(batch.dense() == absl::Span<const float>({0, -1, 1, -1, 2, -1, 3, -1}));
  const ExampleView last = batch.example(3);
  CHECK(last.label == 3);
  CHECK(last.dense == absl::Span<const float>({3, -1}));
  CHECK(last.keys == absl::Span<const uint64_t>({30, 31, 32}));
  CHECK(last.values == absl::Span<const float>({0, 1, 2}));
  CHECK(last.fields == absl::Span<const int32_t>({0, 1, 2}));
  CHECK(batch.example(0).keys.empty());
}

TEST_CASE("Example batch: an abandoned example leaves nothing behind", "[common][examples]") {
  for (const int64_t count : {0, 1, 5}) {
    ExampleBatch batch = MakeBatch(count);
    batch.AddDense(7);
    batch.AddFeature(1, 2, 3);
    batch.AddFeature(4, 5, 6);
    batch.Abandon();
    CheckInvariants(batch);
    CHECK(SameExamples(batch, MakeBatch(count)));
    batch.Abandon();
    CHECK(SameExamples(batch, MakeBatch(count)));
  }
}

TEST_CASE("Example batch: clearing keeps the memory", "[common][examples]") {
  ExampleBatch batch = MakeBatch(100);
  const uint64_t* const keys = batch.keys().data();
  const float* const dense = batch.dense().data();
  batch.Clear();
  CheckInvariants(batch);
  CHECK(batch.count() == 0);
  CHECK(batch.dense_columns() == 2);
  for (int64_t i = 0; i < 100; ++i) {
    batch.AddDense(0);
    batch.AddDense(0);
    batch.AddFeature(1, 1, 0);
    batch.Finish(0);
  }
  CHECK(batch.keys().data() == keys);
  CHECK(batch.dense().data() == dense);
  batch.Reset(/*dense_columns=*/0);
  CHECK(batch.dense_columns() == 0);
  batch.Finish(1);
  CheckInvariants(batch);
}

TEST_CASE("Example batch: truncating and appending are each other's inverse",
          "[common][examples]") {
  const ExampleBatch whole = MakeBatch(7);
  for (int64_t at = 0; at <= 7; ++at) {
    ExampleBatch front = MakeBatch(7);
    front.Truncate(at);
    CheckInvariants(front);
    CHECK(SameExamples(front, MakeBatch(at)));
    front.Append(whole, at, 7);
    CheckInvariants(front);
    CHECK(SameExamples(front, whole));
    front.Append(whole, at, at);
    CHECK(SameExamples(front, whole));
  }
}

}  // namespace
}  // namespace capstan::example_batch_test
