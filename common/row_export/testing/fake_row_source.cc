#include "common/row_export/testing/fake_row_source.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/sparse/key_hash.h"

namespace capstan {

FakeRowSource::FakeRowSource(int32_t buckets, int32_t dim) : keys_(static_cast<size_t>(buckets)) {
  table_.set_table(3);
  table_.set_name("features");
  table_.set_rule(v1::OPTIMIZER);
  table_.set_elements(buckets);
  table_.mutable_sparse()->set_dim(dim);
  table_.mutable_sparse()->set_buckets(buckets);
  table_.mutable_sparse()->mutable_initializer()->set_constant(0.0f);
  Route({"server-1"});
}

void FakeRowSource::Put(uint64_t key) {
  const KeyPlace at = PlaceOf(KeyHash(key), table_.sparse().buckets());
  keys_[static_cast<size_t>(at.bucket)][at.place] = key;
  written_[key] = advanced_;
}

void FakeRowSource::Erase(uint64_t key) {
  const KeyPlace at = PlaceOf(KeyHash(key), table_.sparse().buckets());
  keys_[static_cast<size_t>(at.bucket)].erase(at.place);
}

std::vector<float> FakeRowSource::Row(uint64_t key) const {
  std::vector<float> row;
  for (int32_t i = 0; i < table_.sparse().dim(); ++i) {
    row.push_back(static_cast<float>(key % 1000) + static_cast<float>(i) / 8);
  }
  return row;
}

void FakeRowSource::Route(const std::vector<std::string>& servers) {
  const uint64_t generation = routing.generation() + 1;
  routing.Clear();
  routing.set_generation(generation);
  for (const std::string& name : servers) {
    routing.add_servers()->set_node_id(name);
    routing.mutable_servers()->rbegin()->set_address(absl::StrCat(name, ":1"));
  }
  routing.add_shards()->set_element_end(8);  // The shard of a dense table.
  for (int32_t bucket = 0; bucket < table_.sparse().buckets(); ++bucket) {
    v1::ShardRoute& route = *routing.add_shards();
    route.set_table(table_.table());
    route.set_shard(bucket);
    route.set_element_begin(bucket);
    route.set_element_end(bucket + 1);
    route.set_server(bucket % routing.servers_size());
  }
}

absl::Status FakeRowSource::Check(const v1::ServerAddress& server,
                                  const v1::ScanRowsRequest& request) const {
  const auto failure = failed.find(server.node_id());
  if (failure != failed.end() && failure->second) return absl::UnavailableError("no answer");
  if (request.caller().routing_generation() != routing.generation()) {
    return absl::FailedPreconditionError("fetch the routing table");
  }
  const v1::ShardRoute& route = routing.shards(1 + request.shard());
  if (routing.servers(route.server()).node_id() != server.node_id()) {
    return absl::NotFoundError("not held here");
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::ScanRowsResponse> FakeRowSource::ScanRows(const v1::ServerAddress& server,
                                                             const v1::ScanRowsRequest& request) {
  asked.push_back(request);
  absl::Status status = before(calls++);
  if (status.ok()) status = Check(server, request);
  if (!status.ok()) return status;
  const int64_t version = 10 + request.shard() + advanced_;
  const int64_t since =
      request.has_since() ? advanced_ - (version - request.since().version()) : -1;
  if (request.has_since() && request.since().timeline() != timeline) {
    return absl::OutOfRangeError("the job has gone back");
  }
  const auto& keys = keys_[static_cast<size_t>(request.shard())];
  const auto rows_max = std::max<int64_t>(1, request.bytes_max() / (8 + 4 * table_.sparse().dim()));
  v1::ScanRowsResponse response;
  std::string values;
  auto at = keys.lower_bound(request.place());
  for (int64_t i = 0; i < rows_max && at != keys.end(); ++i, ++at) {
    if (written_.at(at->second) <= since) {
      if (!request.since().unchanged_keys()) continue;
      response.mutable_unchanged()->append(reinterpret_cast<const char*>(&at->second), 8);
      continue;
    }
    const std::vector<float> row = Row(at->second);
    response.mutable_rows()->append(reinterpret_cast<const char*>(&at->second), 8);
    values.append(reinterpret_cast<const char*>(row.data()), 4 * row.size());
  }
  response.mutable_rows()->append(values);
  response.set_version(version);
  response.set_timeline(timeline);
  response.set_end(at == keys.end());
  if (!response.end()) response.set_next_place(at->first);
  spoil(&response);
  return response;
}

absl::StatusOr<v1::RoutingTable> FakeRowSource::NewestRouting() {
  if (!routing_failure.ok()) return routing_failure;
  return routing;
}

absl::Status FakeRowSource::Pause(absl::Duration time) {
  clock.Advance(time);
  return absl::OkStatus();
}

}  // namespace capstan
