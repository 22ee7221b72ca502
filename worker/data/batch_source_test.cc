#include "worker/data/batch_source.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "common/testing/status_matchers.h"

namespace capstan::worker::batch_source_test {
namespace {

// A decoder that writes the range into its images, and counts its calls.
struct Fixture {
  std::atomic<int> decoded{0};
  BatchSource source{[this](const BatchRange& range, DecodedBatch& batch) {
                       ++decoded;
                       if (range.begin == 666) return absl::DataLossError("bad range");
                       batch.range = range;
                       batch.images = {static_cast<float>(range.begin)};
                       return absl::OkStatus();
                     },
                     {}};
};

std::vector<BatchRange> Ranges(std::vector<int64_t> begins) {
  std::vector<BatchRange> ranges;
  for (const int64_t begin : begins) ranges.push_back({0, begin, begin + 4});
  return ranges;
}

TEST_CASE("BatchSource: batches of a plan that holds are decoded once", "[worker][data]") {
  Fixture fixture;
  for (int64_t first = 0; first < 40; first += 4) {
    REQUIRE_OK_AND_ASSIGN(const DecodedBatch* batch,
                          fixture.source.Get(Ranges({first, first + 4, first + 8})));
    CHECK(batch->images[0] == static_cast<float>(first));
  }
  CHECK(fixture.decoded <= 12);
}

TEST_CASE("BatchSource: a changed plan gets the batch that it asks for", "[worker][data]") {
  Fixture fixture;
  REQUIRE_OK(fixture.source.Get(Ranges({0, 4, 8, 12})));
  REQUIRE_OK_AND_ASSIGN(const DecodedBatch* batch, fixture.source.Get(Ranges({100, 4})));
  CHECK(batch->range.begin == 100);
  REQUIRE_OK_AND_ASSIGN(batch, fixture.source.Get(Ranges({4})));
  CHECK(batch->range.begin == 4);
}

TEST_CASE("BatchSource: a decoder's error is the caller's, and another plan goes on",
          "[worker][data]") {
  Fixture fixture;
  CHECK_STATUS(fixture.source.Get(Ranges({666})), absl::StatusCode::kDataLoss, "bad range");
  REQUIRE_OK(fixture.source.Get(Ranges({0})));
}

// Waits for the batch ahead; only the test's own timeout bounds the wait.
const DecodedBatch* AwaitAhead(BatchSource& source) {
  const DecodedBatch* ahead = nullptr;
  while ((ahead = source.Ahead()) == nullptr) std::this_thread::yield();
  return ahead;
}

TEST_CASE("BatchSource: the batch ahead is seen, and given by the next request", "[worker][data]") {
  Fixture fixture;
  REQUIRE_OK(fixture.source.Get(Ranges({0, 4, 8})));
  for (int i = 0; i < 2; ++i) CHECK(AwaitAhead(fixture.source)->range.begin == 4);
  REQUIRE_OK_AND_ASSIGN(const DecodedBatch* batch, fixture.source.Get(Ranges({4, 8})));
  CHECK(batch->range.begin == 4);
  CHECK(batch->images[0] == 4.0f);
  REQUIRE_OK_AND_ASSIGN(batch, fixture.source.Get(Ranges({8})));
  CHECK(batch->range.begin == 8);
  CHECK(fixture.decoded == 3);
  CHECK(fixture.source.Ahead() == nullptr);  // No more batches were asked for.
}

TEST_CASE("BatchSource: a changed plan drops the batch ahead, its error is the request's",
          "[worker][data]") {
  Fixture fixture;
  CHECK(fixture.source.Ahead() == nullptr);
  REQUIRE_OK(fixture.source.Get(Ranges({0, 4})));
  AwaitAhead(fixture.source);
  REQUIRE_OK_AND_ASSIGN(const DecodedBatch* batch, fixture.source.Get(Ranges({12, 666})));
  CHECK(batch->range.begin == 12);
  CHECK(fixture.source.Ahead() == nullptr);
  CHECK_STATUS(fixture.source.Get(Ranges({666})), absl::StatusCode::kDataLoss, "bad range");
}

}  // namespace
}  // namespace capstan::worker::batch_source_test
