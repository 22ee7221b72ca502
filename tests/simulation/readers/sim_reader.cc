#include "tests/simulation/readers/sim_reader.h"

#include <cstdint>
#include <utility>

#include "absl/strings/cord.h"
#include "common/net/frame/frame.h"
#include "common/net/frame/testing/whole_frame.h"
#include "common/wire/tensor_message.h"
#include "tests/simulation/network/methods.h"

namespace capstan::sim {
namespace {

// Between two looks at the model.
constexpr absl::Duration kLookPauseMin = absl::Milliseconds(200);
constexpr absl::Duration kLookPauseMax = absl::Seconds(2);
constexpr absl::Duration kTimeoutMin = absl::Seconds(1);
constexpr absl::Duration kTimeoutMax = absl::Seconds(2);
constexpr Rank kReaderRank{-1};

}  // namespace

SimReader::SimReader(World* world, JobWorld* job, SimNetwork::HostId host, HostClock* clock,
                     std::vector<SimNetwork::EndpointId> servers)
    : world_(world),
      job_(job),
      host_(host),
      servers_(std::move(servers)),
      task_key_{job->id(), kReaderRank, Incarnation(0)},
      prng_(Prng(world->options.seed).Fork(5)),
      process_("reader", &world->loop, clock),
      endpoint_(world->network.AddEndpoint(host, &process_)) {}

void SimReader::Start() {
  process_.Start();
  LookLater();
}

void SimReader::LookLater() {
  process_.After(prng_.Between(kLookPauseMin, kLookPauseMax), [this] { Look(); });
}

void SimReader::Look() {
  if (job_->went_back) return;
  if (routing_.shards_size() == 0) AskRouting();
  ReadAll();
  LookLater();
}

void SimReader::ReadAll() {
  if (job_->went_back) return;
  for (const v1::ShardRoute& route : routing_.shards()) Read(route);
}

void SimReader::Read(const v1::ShardRoute& route) {
  const ShardKey shard{TableId(route.table()), ShardId(route.shard())};
  if (!reading_.insert(shard).second) return;
  v1::PullRequest request;
  v1::Caller& caller = *request.mutable_caller();
  caller.set_job_id(task_key_.job);
  caller.set_rank(task_key_.rank.value());
  caller.set_routing_generation(routing_.generation());
  request.set_snapshot(true);
  v1::ShardPull& pull = *request.add_shards();
  pull.set_table(route.table());
  pull.set_shard(route.shard());
  pull.set_held_version(-1);
  job_->Tell([&](Checker& checker) { checker.PullSent(task_key_, shard, Iteration(0)); });
  world_->network.Call(endpoint_, World::EndpointOf(routing_.servers(route.server()).address()),
                       kPull,
                       EncodeFrame({.kind = FrameKind::kRequest}, request.SerializeAsString()),
                       prng_.Between(kTimeoutMin, kTimeoutMax),
                       [this, shard](const absl::Status& status, const std::string& answer) {
                         OnAnswer(shard, status, answer);
                       });
}

void SimReader::OnAnswer(const ShardKey& shard, const absl::Status& status,
                         const std::string& answer) {
  reading_.erase(shard);
  if (job_->went_back) return;
  const absl::StatusOr<std::string> payload = status.ok() ? DecodeFrame(answer) : status;
  const absl::StatusOr<PullAnswer> pulled = DecodePullAnswer(absl::Cord(payload.value_or("")));
  if (!pulled.ok() || pulled->head.shards_size() != 1 ||
      pulled->head.shards(0).outcome() != v1::ShardValues::VALUES) {
    return AskRouting();
  }
  ++world_->reached[Reached::kReaderRead];
  const ShardRead read{.task_key = task_key_,
                       .shard = shard,
                       .iteration = Iteration(0),
                       .snapshot = true,
                       .version = Version(pulled->head.shards(0).version())};
  job_->Tell([&](Checker& checker) { checker.ReadDone(read); });
}

void SimReader::AskRouting() {
  const auto last = static_cast<int64_t>(servers_.size()) - 1;
  v1::GetRoutingRequest request;
  request.set_job_id(task_key_.job);
  world_->network.Call(endpoint_, servers_[static_cast<size_t>(prng_.Between(0, last))],
                       kGetRouting, request.SerializeAsString(), kTimeoutMin,
                       [this](const absl::Status& status, const std::string& answer) {
                         v1::GetRoutingResponse response;
                         if (!status.ok() || !response.ParseFromString(answer)) return;
                         if (response.routing().generation() > routing_.generation())
                           routing_ = response.routing();
                       });
}

}  // namespace capstan::sim
