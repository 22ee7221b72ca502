// What users do to a cluster at work.
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/nemesis.h"

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
  Story(absl::StrCat("drains ", name));
  drained_.insert(name);
  ever_drained_.insert(name);
  cluster_->scheduler().Drain(name, [this, node, name, kill = std::move(kill)] {
    if (!drained_.contains(name)) return;
    ++world_->faults[Fault::kDrainedNodeGone];
    Story(absl::StrCat(name, " is drained: takes it away"));
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
  Story(absl::StrCat("lets ", node, " be used again"));
  cluster_->scheduler().EndDrain(node);
}

void Nemesis::SaveCheckpoint() {
  ++world_->faults[Fault::kCheckpointAskedFor];
  Story("asks for a checkpoint");
  cluster_->scheduler().SaveCheckpoint();
}

void Nemesis::StopJob() {
  Story("stops the job");
  cluster_->scheduler().StopJob();
}

}  // namespace capstan::sim
