#include "scheduler/core/placement.h"

#include <algorithm>
#include <utility>

namespace capstan::scheduler {
namespace {

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

std::vector<Range> CutTable(int64_t elements, int servers) {
  std::vector<Range> shards;
  if (elements == 0) return shards;
  const int64_t wanted = std::clamp(CeilDivide(elements, servers * kShardsPerServer),
                                    kShardElementsMin, kShardElementsMax);
  const int64_t needed = CeilDivide(elements, wanted);
  const int64_t count = CeilDivide(needed, servers) * servers;
  const int64_t size = CeilDivide(CeilDivide(elements, count), kShardAlignment) * kShardAlignment;
  for (int64_t begin = 0; begin < elements; begin += size) {
    shards.push_back({begin, std::min(begin + size, elements)});
  }
  return shards;
}

Routing PlaceShards(const JobId& job, Generation generation,
                    absl::Span<const int64_t> table_elements, std::vector<ServerRef> servers) {
  Routing routing{
      .job = job, .generation = generation, .shards = {}, .servers = std::move(servers)};
  const int server_count = static_cast<int>(routing.servers.size());
  for (size_t table = 0; table < table_elements.size(); ++table) {
    const std::vector<Range> ranges = CutTable(table_elements[table], server_count);
    for (size_t shard = 0; shard < ranges.size(); ++shard) {
      const ShardKey key{TableId(static_cast<int32_t>(table)),
                         ShardId(static_cast<int32_t>(shard))};
      routing.shards.push_back({key, ranges[shard], 0});
    }
  }
  std::vector<ShardRoute*> by_size;
  for (ShardRoute& route : routing.shards) by_size.push_back(&route);
  std::stable_sort(by_size.begin(), by_size.end(), [](const ShardRoute* a, const ShardRoute* b) {
    return a->elements.size() > b->elements.size();
  });
  std::vector<int64_t> load(routing.servers.size(), 0);
  for (ShardRoute* route : by_size) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += route->elements.size();
    route->server = static_cast<int>(least - load.begin());
  }
  return routing;
}

}  // namespace capstan::scheduler
