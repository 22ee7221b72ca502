// Requests of users to a cluster at work.
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/nemesis/nemesis.h"

namespace capstan::sim {

// A server or a worker daemon, one at a time.
void Nemesis::Drain() {
  if (!drained_.empty()) return;
  auto& servers = cluster_->servers();
  auto& workers = cluster_->workers();
  const auto count = static_cast<int64_t>(servers.size() + workers.size());
  const auto chosen = static_cast<size_t>(users_prng_.Between(0, count - 1));
  if (chosen < servers.size()) {
    SimServer* server = servers[chosen].get();
    return Drain(server, [server] { server->Kill(SimServer::DiskFate::kLost); });
  }
  SimWorker* worker = workers[chosen - servers.size()].get();
  Drain(worker, [worker] { worker->process().Kill(); });
}

// Whoever is told that it is safe takes the machine away, and puts another one in its place.
// Nothing may be lost by that.
template <typename Node>
void Nemesis::Drain(Node* node, std::function<void()> kill) {
  const NodeId& name = node->process().name();
  ++world_->faults[Fault::kNodeDrained];
  Narrate(absl::StrCat("drains ", name));
  drained_.insert(name);
  ever_drained_.insert(name);
  cluster_->scheduler().Drain(name, [this, node, name, kill = std::move(kill)] {
    if (!drained_.contains(name)) return;
    ++world_->faults[Fault::kDrainedNodeGone];
    Narrate(absl::StrCat(name, " is drained: takes it away"));
    kill();
    const absl::Duration down =
        users_prng_.Between(absl::Milliseconds(110), world_->options.chaos.down_max);
    world_->loop.After(down, [this, node, name] {
      if (!node->process().alive()) node->Start();
      EndDrain(name);
    });
  });
  const absl::Duration patience = users_prng_.Between(absl::Seconds(1), absl::Seconds(15));
  world_->loop.After(patience, [this, name] { EndDrain(name); });
}

void Nemesis::EndDrain(const NodeId& node) {
  if (drained_.erase(node) == 0) return;
  Narrate(absl::StrCat("lets ", node, " be used again"));
  cluster_->scheduler().EndDrain(node);
}

template <typename Node>
void Nemesis::StartLater(Node* node) {
  const absl::Duration down =
      users_prng_.Between(absl::Milliseconds(110), world_->options.chaos.down_max);
  world_->loop.After(down, [node] {
    if (!node->process().alive()) node->Start();
  });
}

// Whoever stops a daemon in order may take its machine away when the daemon has ended because that
// was safe. Nothing may be lost by that.
void Nemesis::Leave() {
  auto& servers = cluster_->servers();
  auto& workers = cluster_->workers();
  const auto count = static_cast<int64_t>(servers.size() + workers.size());
  const auto chosen = static_cast<size_t>(users_prng_.Between(0, count - 1));
  const absl::Duration grace = users_prng_.Between(absl::Milliseconds(100), absl::Seconds(20));
  const SimServer::DiskFate fate =
      users_prng_.Chance(0.5) ? SimServer::DiskFate::kLost : SimServer::DiskFate::kKept;
  if (chosen >= servers.size()) {
    SimWorker* worker = workers[chosen - servers.size()].get();
    if (!worker->process().alive()) return;
    ++world_->faults[Fault::kWorkerLeft];
    Narrate(absl::StrCat("tells ", worker->process().name(), " to stop"));
    return worker->Stop([this, worker] { StartLater(worker); });
  }
  SimServer* server = servers[chosen].get();
  if (!server->process().alive()) return;
  Narrate(absl::StrCat("tells ", server->process().name(), " to stop within ",
                       absl::FormatDuration(grace)));
  server->Stop(fate, grace, [this, server](bool safe) {
    ++world_->faults[safe ? Fault::kServerLeft : Fault::kServerLeftUnsafe];
    Narrate(
        absl::StrCat(server->process().name(), safe ? " has left" : " could not leave in time"));
    StartLater(server);
  });
}

void Nemesis::SaveCheckpoint() {
  ++world_->faults[Fault::kCheckpointAskedFor];
  const JobWorld& job = DrawJob();
  Narrate(absl::StrCat("asks for a checkpoint of ", job.id()));
  cluster_->scheduler().SaveCheckpoint(job.id());
}

void Nemesis::StopJob() {
  JobWorld& job = DrawJob();
  Narrate(absl::StrCat("stops ", job.id()));
  cluster_->scheduler().StopJob(&job);
}

}  // namespace capstan::sim
