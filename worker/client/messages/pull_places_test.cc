#include "worker/client/messages/pull_places.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"
#include "common/wire/tensor_message.h"

namespace capstan::worker::pull_places_test {
namespace {

constexpr int64_t kLarge = PullPlaces::kBytesMin / static_cast<int64_t>(sizeof(float));

// The payload of an answer with this many values for each shard.
std::string PayloadOf(const std::vector<int64_t>& elements) {
  v1::PullResponse response;
  for (const int64_t count : elements) {
    response.add_shards()->set_values(std::string(static_cast<size_t>(count) * sizeof(float), 'v'));
  }
  return std::string(Encode(Detach(response)));
}

// Shards of one table, one behind another.
std::vector<PullPlaces::Part> PartsOf(const std::vector<int64_t>& elements) {
  std::vector<PullPlaces::Part> parts;
  int64_t begin = 0;
  for (const int64_t count : elements) {
    parts.push_back({.table = TableId(0), .elements = {begin, begin + count}});
    begin += count;
  }
  return parts;
}

// Bytes of a payload from this one on, and where they belong.
using Placed = std::pair<size_t, char*>;

// The places of a payload's parts if the payload comes `step` bytes at a time.
std::vector<Placed> Places(PullPlaces& places, const std::string& payload, size_t step) {
  std::vector<Placed> found;
  size_t at = 0;
  for (size_t come = 0; at + come <= payload.size(); come += step) {
    const auto place = places.Next(absl::string_view(payload).substr(at, come));
    if (!place.has_value()) continue;
    if (place->to.empty()) break;
    CHECK(place->skip <= come);
    at += place->skip;
    found.emplace_back(at, place->to.data());
    at += place->to.size();
    come = 0;
  }
  return found;
}

TEST_CASE("Pull places: large values have a place each, small ones between them have none",
          "[worker][client]") {
  const size_t step = GENERATE(1, 7, 100, 4096);
  const std::vector<int64_t> elements = {kLarge, 3, kLarge + 1, kLarge - 1, kLarge, 2};
  TableArrays arrays = {std::vector<float>(6 * kLarge)};
  int begun = 0;
  PullPlaces places(PartsOf(elements), [&] {
    ++begun;
    return &arrays;
  });
  auto* const table = reinterpret_cast<char*>(arrays[0].data());
  const std::string payload = PayloadOf(elements);
  const int64_t count = std::accumulate(elements.begin(), elements.end(), int64_t{0});
  const size_t values_begin = payload.size() - static_cast<size_t>(count) * sizeof(float);
  const auto at = [&](int64_t element) {
    const int64_t offset = element * int64_t{sizeof(float)};
    return Placed(values_begin + static_cast<size_t>(offset), table + offset);
  };
  CHECK(Places(places, payload, step) ==
        std::vector<Placed>{at(0), at(kLarge + 3), at(3 * kLarge + 3)});
  CHECK(begun == 1);
}

TEST_CASE("Pull places: what is not as it was asked for may lie anywhere", "[worker][client]") {
  TableArrays arrays = {std::vector<float>(4 * kLarge)};
  PullPlaces places(PartsOf({kLarge, kLarge}), [&] { return &arrays; });
  SECTION("other sizes") {
    CHECK(Places(places, PayloadOf({kLarge + 1, kLarge - 1}), 4096).empty());
  }
  SECTION("another number of shards") {
    CHECK(Places(places, PayloadOf({kLarge, kLarge, kLarge}), 4096).empty());
  }
  SECTION("no payload") { CHECK(Places(places, std::string(64, '\xff'), 8).empty()); }
}

TEST_CASE("Pull places: nothing is written for who has gone", "[worker][client]") {
  PullPlaces places(PartsOf({kLarge}), [] { return nullptr; });
  CHECK(Places(places, PayloadOf({kLarge}), 4096).empty());
}

}  // namespace
}  // namespace capstan::worker::pull_places_test
