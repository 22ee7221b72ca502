#include "tests/simulation/readers/sim_snapshot_reader.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/sparse/key_hash.h"
#include "server/snapshots/job_snapshots.h"
#include "tests/simulation/network/methods.h"

namespace capstan::sim {
namespace {

constexpr absl::Duration kOpenPauseMin = absl::Milliseconds(100);  // Between two snapshots.
constexpr absl::Duration kOpenPauseMax = absl::Seconds(3);
constexpr absl::Duration kReadMin = absl::Milliseconds(5);  // Between two reads.
constexpr absl::Duration kReadMax = absl::Milliseconds(400);
constexpr absl::Duration kTimeout = absl::Seconds(1);
constexpr absl::Duration kOpenLimit = absl::Seconds(5);
constexpr int64_t kReadsMax = 40;  // Reads of one snapshot.

}  // namespace

SimSnapshotReader::SimSnapshotReader(World* world, JobWorld* job, SimNetwork::HostId host,
                                     HostClock* clock)
    : world_(world),
      job_(job),
      host_(host),
      prng_(Prng(world->options.seed).Fork(6)),
      process_("snapshot-reader", &world->loop, clock),
      endpoint_(world->network.AddEndpoint(host, &process_)) {}

void SimSnapshotReader::Start() {
  process_.Start();
  OpenLater();
}

void SimSnapshotReader::OpenLater() {
  // Each stops the tasks once what they have begun has ended: they are to train in between.
  const absl::Duration batch = job_->options.compute_max;
  process_.After(batch + prng_.Between(kOpenPauseMin, kOpenPauseMax), [this] { Open(); });
}

void SimSnapshotReader::Open() {
  ++reader_;
  v1::OpenSnapshotRequest request;
  request.set_job_id(job_->id());
  request.set_reader(reader_);
  request.set_wait_limit_ms(static_cast<int32_t>(absl::ToInt64Milliseconds(kOpenLimit)));
  world_->network.Call(
      endpoint_, world_->scheduler, kOpenSnapshot, request.SerializeAsString(),
      kOpenLimit + kTimeout,
      [this](const absl::Status& status, const std::string& answer) { OnOpened(status, answer); });
}

void SimSnapshotReader::OnOpened(const absl::Status& status, const std::string& answer) {
  opened_.Clear();
  if (!status.ok() || !opened_.ParseFromString(answer) || opened_.snapshot_id() == 0) {
    opened_.Clear();
    return OpenLater();
  }
  ++world_->reached[Reached::kSnapshotOpened];
  reads_left_ = prng_.Between(1, kReadsMax);
  ReadLater();
}

void SimSnapshotReader::ReadLater() {
  process_.After(prng_.Between(kReadMin, kReadMax), [this] { Read(); });
}

SimNetwork::EndpointId SimSnapshotReader::EndpointOf(const v1::ShardRoute& route) const {
  return World::EndpointOf(opened_.routing().servers(route.server()).address());
}

void SimSnapshotReader::Read() {
  if (reads_left_-- == 0 || opened_.routing().shards_size() == 0) return Leave();
  const auto last = int64_t{opened_.routing().shards_size()} - 1;
  const auto chosen = static_cast<int>(prng_.Between(0, last));
  std::set<int32_t> asked = {opened_.routing().shards(chosen).server()};
  Ask(opened_.routing().shards(chosen), Question(opened_.routing().shards(chosen)));
  for (const v1::ShardRoute& route : opened_.routing().shards()) {
    if (asked.insert(route.server()).second) Ask(route, {});
  }
  ReadLater();
}

v1::ReadSnapshotRequest SimSnapshotReader::Question(const v1::ShardRoute& route) {
  v1::ReadSnapshotRequest request;
  const int32_t buckets = job_->options.sparse_buckets;
  if (buckets == 0 || route.table() != 0) {
    request.mutable_values()->set_table(route.table());
    request.mutable_values()->set_shard(route.shard());
    return request;
  }
  if (prng_.Chance(0.4)) {
    v1::SnapshotBucket& bucket = *request.mutable_bucket();
    bucket.set_table(route.table());
    bucket.set_shard(route.shard());
    bucket.set_bytes_max(prng_.Chance(0.5) ? 1 : 1 << 20);
    return request;
  }
  const ShardKey shard{TableId(route.table()), ShardId(route.shard())};
  std::vector<uint64_t> keys = job_->kept.KeysOf(EndpointOf(route), opened_.snapshot_id(), shard);
  std::erase_if(keys, [this](uint64_t) { return prng_.Chance(0.5); });
  for (uint64_t key = 0; key < 50; ++key) {  // Keys of the table, and others.
    if (PlaceOf(KeyHash(key), buckets).bucket == route.shard()) keys.push_back(key);
  }
  std::sort(keys.begin(), keys.end(),
            [](uint64_t a, uint64_t b) { return KeyHash(a) < KeyHash(b); });
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  request.mutable_rows()->set_table(route.table());
  request.mutable_rows()->set_shard(route.shard());
  request.mutable_rows()->set_keys(keys.data(), keys.size() * sizeof(uint64_t));
  return request;
}

void SimSnapshotReader::Ask(const v1::ShardRoute& route, v1::ReadSnapshotRequest request) {
  request.set_job_id(job_->id());
  request.set_snapshot_id(opened_.snapshot_id());
  request.set_reader(reader_);
  const SimNetwork::EndpointId server = EndpointOf(route);
  std::string bytes = request.SerializeAsString();
  world_->network.Call(endpoint_, server, kReadSnapshot, std::move(bytes), kTimeout,
                       [this, server, request = std::move(request)](const absl::Status& status,
                                                                    const std::string& answer) {
                         OnRead(server, request, status, answer);
                       });
}

void SimSnapshotReader::OnRead(int server, const v1::ReadSnapshotRequest& request,
                               const absl::Status& status, const std::string& answer) {
  const bool same_id = request.snapshot_id() == opened_.snapshot_id();
  const bool present = same_id && request.reader() == reader_;
  if (same_id && !present) return;  // The answer is late, and its id has been given out again.
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) return;
  if (!status.ok()) {  // It has ended.
    if (present) {
      ++world_->reached[Reached::kSnapshotEnded];
      reads_left_ = 0;
    }
    return;
  }
  v1::ReadSnapshotResponse response;
  if (!response.ParseFromString(answer)) return;
  if (request.what_case() != v1::ReadSnapshotRequest::WHAT_NOT_SET) {
    ++world_->reached[Reached::kSnapshotRead];
    // Rows of a timeline that the job has left promise nothing.
    if (!job_->went_back) {
      job_->Tell([&](Checker& checker) {
        checker.SnapshotShown(server::JobSnapshots::ShardOf(request).value(),
                              Version(response.version()));
      });
    }
  }
  std::string wrong = job_->kept.Check(server, request, response);
  const bool bsp = job_->options.mode == ConsistencyMode::kBsp;
  if (bsp && present && request.what_case() != v1::ReadSnapshotRequest::WHAT_NOT_SET &&
      response.version() != opened_.iteration()) {
    wrong = absl::StrCat("snapshot ", opened_.snapshot_id(), " is of iteration ",
                         opened_.iteration(), ", a shard of it of version ", response.version());
  }
  if (!wrong.empty() && world_->failure.empty()) {
    world_->failure = absl::StrCat("snapshots: ", wrong);
  }
}

void SimSnapshotReader::Leave() {
  std::set<int32_t> told;
  for (const v1::ShardRoute& route : opened_.routing().shards()) {
    if (prng_.Chance(0.3) || !told.insert(route.server()).second) continue;  // It vanishes there.
    v1::CloseSnapshotRequest request;
    request.set_job_id(job_->id());
    request.set_snapshot_id(opened_.snapshot_id());
    request.set_reader(reader_);
    world_->network.Call(endpoint_, EndpointOf(route), kCloseSnapshot, request.SerializeAsString(),
                         kTimeout, [](const absl::Status&, const std::string&) {});
  }
  opened_.Clear();
  OpenLater();
}

}  // namespace capstan::sim
