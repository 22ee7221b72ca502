#include "tests/simulation/world/kept_moments.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/sparse/key_hash.h"

namespace capstan::sim {
namespace {

// Rows of a bucket as its snapshot has them.
struct Rows {
  explicit Rows(const v1::ShardSnapshot& snapshot)
      : keys(snapshot.bucket().stamps().size() / sizeof(uint32_t)) {
    if (keys.empty()) return;
    std::memcpy(keys.data(), snapshot.values().data(), keys.size() * sizeof(uint64_t));
    values = absl::string_view(snapshot.values()).substr(keys.size() * sizeof(uint64_t));
    row_bytes = values.size() / keys.size();
  }
  absl::string_view Row(size_t i) const { return values.substr(i * row_bytes, row_bytes); }

  std::vector<uint64_t> keys;
  absl::string_view values;
  size_t row_bytes = 0;
};

std::string CheckKeys(const v1::SnapshotRows& asked, const v1::ShardSnapshot& then,
                      const v1::ReadSnapshotResponse& response) {
  const Rows rows(then);
  std::map<uint64_t, absl::string_view> by_key;
  for (size_t i = 0; i < rows.keys.size(); ++i) by_key[rows.keys[i]] = rows.Row(i);
  std::string values;
  for (size_t i = 0; i < asked.keys().size() / sizeof(uint64_t); ++i) {
    uint64_t key = 0;
    std::memcpy(&key, asked.keys().data() + i * sizeof(key), sizeof(key));
    const auto row = by_key.find(key);
    const bool found = (response.found()[i / 8] >> i % 8 & 1) != 0;
    if (found != (row != by_key.end())) {
      return absl::StrCat("key ", key, found ? " is found" : " is not found");
    }
    if (found) absl::StrAppend(&values, row->second);
  }
  return values == response.values() ? "" : "the rows of keys are other ones";
}

std::string CheckBucket(const v1::SnapshotBucket& asked, int32_t buckets,
                        const v1::ShardSnapshot& then, const v1::ReadSnapshotResponse& response) {
  const Rows rows(then);
  std::string keys;
  std::string values;
  for (size_t i = 0; i < rows.keys.size(); ++i) {
    const uint64_t place = PlaceOf(KeyHash(rows.keys[i]), buckets).place;
    if (place < asked.place() || (!response.end() && place >= response.next_place())) continue;
    keys.append(reinterpret_cast<const char*>(&rows.keys[i]), sizeof(uint64_t));
    absl::StrAppend(&values, rows.Row(i));
  }
  return keys + values == response.values() ? "" : "the rows of the bucket are other ones";
}

}  // namespace

void KeptMoments::Look(int server, server::HeldJob& job) {
  auto& of_server = kept_[server];
  std::vector<CheckpointId> open = job.snapshot_calls().open();
  const std::vector<CheckpointId> before = std::exchange(open_[server], open);
  for (const CheckpointId id : open) {
    if (std::find(before.begin(), before.end(), id) != before.end()) continue;
    Moment moment;
    for (server::HeldCopy& copy : job.Copies()) moment[copy.shard] = std::move(copy.snapshot);
    of_server[id.value()] = std::move(moment);
  }
  while (of_server.size() > kMomentsMax) of_server.erase(of_server.begin());
}

const v1::ShardSnapshot* KeptMoments::Find(int server, uint64_t snapshot,
                                           const ShardKey& shard) const {
  const auto of_server = kept_.find(server);
  if (of_server == kept_.end()) return nullptr;
  const auto moment = of_server->second.find(snapshot);
  if (moment == of_server->second.end()) return nullptr;
  const auto then = moment->second.find(shard);
  return then == moment->second.end() ? nullptr : &then->second;
}

std::vector<uint64_t> KeptMoments::KeysOf(int server, uint64_t snapshot,
                                          const ShardKey& shard) const {
  const v1::ShardSnapshot* const then = Find(server, snapshot, shard);
  return then == nullptr ? std::vector<uint64_t>() : Rows(*then).keys;
}

std::string KeptMoments::Check(int server, const v1::ReadSnapshotRequest& request,
                               const v1::ReadSnapshotResponse& response) const {
  const auto check = [&](const auto& asked, const auto& compare) -> std::string {
    const ShardKey shard{TableId(asked.table()), ShardId(asked.shard())};
    const v1::ShardSnapshot* const then = Find(server, request.snapshot_id(), shard);
    std::string wrong = "it was never kept there";
    if (then != nullptr) wrong = compare(*then);
    if (then != nullptr && then->state().version() != response.version()) wrong = "another version";
    if (wrong.empty()) return wrong;
    return absl::StrCat("kept moments: snapshot ", request.snapshot_id(), ", table ",
                        shard.table.value(), " shard ", shard.shard.value(), ": ", wrong);
  };
  switch (request.what_case()) {
    case v1::ReadSnapshotRequest::kRows:
      return check(request.rows(), [&](const v1::ShardSnapshot& then) {
        return CheckKeys(request.rows(), then, response);
      });
    case v1::ReadSnapshotRequest::kBucket:
      return check(request.bucket(), [&](const v1::ShardSnapshot& then) {
        return CheckBucket(request.bucket(), buckets_, then, response);
      });
    case v1::ReadSnapshotRequest::kValues:
      return check(request.values(), [&](const v1::ShardSnapshot& then) -> std::string {
        return then.values() == response.values() ? "" : "the values are other ones";
      });
    case v1::ReadSnapshotRequest::WHAT_NOT_SET:
      return "";
  }
  return "";
}

}  // namespace capstan::sim
