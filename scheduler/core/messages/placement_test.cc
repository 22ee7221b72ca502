#include "scheduler/core/messages/placement.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"

namespace capstan::scheduler::placement_test {
namespace {

std::vector<ServerRef> Servers(int count) {
  std::vector<ServerRef> servers;
  for (int i = 1; i <= count; ++i) {
    servers.push_back({"server-" + std::to_string(i), "h:" + std::to_string(i), Incarnation(i)});
  }
  return servers;
}

std::vector<int64_t> ElementsByServer(const Routing& routing) {
  std::vector<int64_t> load(routing.servers.size(), 0);
  for (const ShardRoute& shard : routing.shards) {
    load[static_cast<size_t>(shard.server)] += shard.elements.size();
  }
  return load;
}

TEST_CASE("Placement: shards are contiguous, aligned, at most 4 MiB, and cover the table",
          "[scheduler][core]") {
  for (const int64_t elements : {1, 15, 16, 17, 431'080, 1 << 20, (1 << 20) + 1, 25'600'000}) {
    for (const int servers : {1, 2, 3, 7}) {
      const std::vector<Range> shards = CutTable(elements, servers);
      int64_t end = 0;
      for (const Range& shard : shards) {
        CHECK(shard.begin == end);
        CHECK(shard.size() > 0);
        CHECK(shard.size() <= kShardElementsMax);
        CHECK(shard.begin % kShardAlignment == 0);
        end = shard.end;
      }
      CHECK(end == elements);
    }
  }
  CHECK(CutTable(0, 2).empty());
}

TEST_CASE("Placement: no shard cuts a tensor whose rule takes its norm, and none grows needlessly",
          "[scheduler][core]") {
  TableSize table = 0;
  // Two layers of a network, a tensor of more than a shard, and many small ones behind it.
  for (const int64_t size : {100'000, 10, 50'000, 10, 5'000'000, 1'000, 1'000, 1'000}) {
    table.elements += size;
    table.tensor_ends.push_back(table.elements);
  }
  for (const int servers : {1, 2, 7}) {
    const std::vector<Range> shards = CutTable(table, servers);
    const int64_t usual = CutTable(table.elements, servers).front().size();
    int64_t end = 0;
    for (const Range& shard : shards) {
      CHECK(shard.begin == end);
      end = shard.end;
      const auto within = std::count_if(table.tensor_ends.begin(), table.tensor_ends.end(),
                                        [&](int64_t at) { return at > shard.begin && at <= end; });
      CHECK(std::count(table.tensor_ends.begin(), table.tensor_ends.end(), end) == 1);
      CHECK((shard.size() <= usual || within == 1));
    }
    CHECK(end == table.elements);
    CHECK(shards.size() < table.tensor_ends.size());  // Small tensors share a shard.
  }
}

TEST_CASE("Placement: a small table is cut so that every server gets a share",
          "[scheduler][core]") {
  CHECK(CutTable(100'000, 2) == std::vector<Range>{{0, 50'000}, {50'000, 100'000}});
  CHECK(CutTable(64, 4).size() == 4);
  CHECK(CutTable(16, 4).size() == 1);  // A table below the alignment is not cut.
}

TEST_CASE("Placement: a server has several shards once they are 256 KiB, and never above 4 MiB",
          "[scheduler][core]") {
  CHECK(CutTable(kShardElementsMin, 1).size() == 1);
  CHECK(CutTable(4 * kShardElementsMin, 1).size() == 4);
  CHECK(CutTable(64 * kShardElementsMin, 1).size() == kShardsPerServer);
  CHECK(CutTable(64 * kShardElementsMin, 2).size() == 2 * kShardsPerServer);
  CHECK(CutTable(100 * kShardElementsMax, 1).size() == 100);
}

TEST_CASE("Placement: servers get the same number of elements, but for a shard's rounding",
          "[scheduler][core]") {
  for (const int servers : {1, 2, 3, 5}) {
    const std::vector<TableSize> tables = {25'600'000, 53'120};
    const Routing routing = PlaceShards("job-1", Generation(1), tables, Servers(servers));
    const std::vector<int64_t> load = ElementsByServer(routing);
    const auto [least, most] = std::minmax_element(load.begin(), load.end());
    CHECK(*most - *least <= 2 * kShardAlignment * 32);
  }
}

TEST_CASE("Placement: a bucket is a shard of its own, and servers share them evenly",
          "[scheduler][core]") {
  const std::vector<TableSize> tables = {100'000, {12, true}, {7, true}};
  const Routing routing = PlaceShards("job", Generation(1), tables, Servers(3));
  std::vector<int> buckets(3);
  int32_t expected = 0;
  for (const ShardRoute& shard : routing.shards) {
    if (shard.key.table.value() == 0) continue;
    if (shard.key.shard.value() == 0) expected = 0;
    CHECK(shard.key.shard.value() == expected);
    CHECK(shard.elements == Range{expected, expected + 1});
    ++expected;
    ++buckets[static_cast<size_t>(shard.server)];
  }
  for (const int count : buckets) CHECK(std::abs(count - 19 / 3) <= 1);
}

TEST_CASE("Placement: replicas are on other servers than their primary, evenly, to be filled",
          "[scheduler][core]") {
  const std::vector<TableSize> tables = {25'600'000};
  const Routing routing = PlaceShards("job-1", Generation(1), tables, Servers(4), /*replicas=*/2);
  std::vector<int> copies(4, 0);
  for (const ShardRoute& shard : routing.shards) {
    CHECK(shard.term == Term(1));
    REQUIRE(shard.replicas.size() == 2);
    CHECK(shard.replicas[0].server < shard.replicas[1].server);
    ++copies[static_cast<size_t>(shard.server)];
    for (const ReplicaRef& replica : shard.replicas) {
      CHECK(replica.server != shard.server);
      CHECK_FALSE(replica.in_sync);
      ++copies[static_cast<size_t>(replica.server)];
    }
  }
  const auto [least, most] = std::minmax_element(copies.begin(), copies.end());
  CHECK(*most - *least <= 2);
}

TEST_CASE(
    "Placement: shards are listed by table and number, and the same input gives the same table",
    "[scheduler][core]") {
  const std::vector<TableSize> tables = {100, 3'000'000, 0, 50};
  const Routing routing = PlaceShards("job-1", Generation(1), tables, Servers(3));
  CHECK(std::is_sorted(routing.shards.begin(), routing.shards.end(),
                       [](const ShardRoute& a, const ShardRoute& b) { return a.key < b.key; }));
  CHECK(routing == PlaceShards("job-1", Generation(1), tables, Servers(3)));
  for (const ShardRoute& shard : routing.shards) CHECK(shard.key.table != TableId(2));
}

TEST_CASE("Routing: a table that was read and cannot be one is refused", "[scheduler][core]") {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const std::vector<TableSize> tables = {3'000'000, {4, /*is_sparse=*/true}};
  Routing routing = PlaceShards("job-1", Generation(1), tables, Servers(3), /*replicas=*/1);
  REQUIRE_OK(CheckRouting(routing));
  const auto refused = [&](const std::string& why) {
    CHECK_STATUS(CheckRouting(routing), absl::StatusCode::kDataLoss, why);
  };
  ShardRoute& route = routing.shards[1];
  SECTION("a primary outside of it") {
    route.server = GENERATE(-1, 3, std::numeric_limits<int>::max());
    refused("table 0 shard 1: server " + std::to_string(route.server) +
            ", expected an index below 3");
  }
  SECTION("a replica outside of it") {
    route.replicas[0].server = 3;
    refused("table 0 shard 1: server 3, expected an index below 3");
  }
  SECTION("two copies on a server") {
    route.replicas[0].server = route.server;
    refused("has two copies, expected one");
  }
  SECTION("elements that are no range") {
    route.elements = GENERATE(Range{5, 4}, Range{-1, 4}, Range{0, kMax}, Range{kMax, -kMax});
    refused("table 0 shard 1: elements [");
  }
  SECTION("elements whose sum overflows") {
    for (ShardRoute& each : routing.shards) each.elements = {0, int64_t{1} << 61};
    refused("expected a range of at most 0");
  }
  SECTION("counters that leave no room") {
    routing.generation = Generation(~uint64_t{0});
    refused("generation: 18446744073709551615, expected 0 to 4611686018427387904");
  }
  SECTION("a server's incarnation") {
    routing.servers[2].incarnation = Incarnation(~uint64_t{0});
    refused("incarnation of a server: 18446744073709551615");
  }
}

}  // namespace
}  // namespace capstan::scheduler::placement_test
