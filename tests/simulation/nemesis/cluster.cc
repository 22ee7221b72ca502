#include "tests/simulation/nemesis/cluster.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace capstan::sim {

Cluster::Cluster(World* world) : world_(world) {
  const Options& options = world->options;
  for (int host = 0; host < 1 + options.servers + options.workers; ++host) {
    const double drift = options.chaos.clock_drift * (2 * world->prng.Unit() - 1);
    if (drift != 0) ++world->faults[Fault::kClockDrift];
    clocks_.push_back(std::make_unique<HostClock>(
        &world->loop, 1 + drift, world->prng.Between(absl::ZeroDuration(), absl::Hours(1000))));
  }
  scheduler_ = std::make_unique<SimScheduler>(world, 0, clocks_[0].get());
  for (int i = 0; i < options.servers; ++i) {
    const int host = 1 + i;
    servers_.push_back(
        std::make_unique<SimServer>(world, host, &clock(host), absl::StrCat("server-", i + 1)));
  }
  for (int i = 0; i < options.workers; ++i) {
    const int host = 1 + options.servers + i;
    workers_.push_back(std::make_unique<SimWorker>(world, host, &clock(host),
                                                   absl::StrCat("worker-", i + 1),
                                                   options.capacities[static_cast<size_t>(i)]));
  }
  if (options.snapshots) {
    snapshot_reader_ = std::make_unique<SimSnapshotReader>(world, &world->first_job(), hosts() - 1,
                                                           &clock(hosts() - 1));
  }
  if (!options.reader) return;
  std::vector<SimNetwork::EndpointId> endpoints;
  for (const auto& server : servers_) endpoints.push_back(server->endpoint());
  const int host = hosts() - 1;
  reader_ = std::make_unique<SimReader>(world, &world->first_job(), host, &clock(host),
                                        std::move(endpoints));
}

void Cluster::Start() {
  scheduler_->Start();
  for (const auto& server : servers_) server->Start();
  for (const auto& worker : workers_) worker->Start();
  if (reader_ != nullptr) reader_->Start();
  if (snapshot_reader_ != nullptr) snapshot_reader_->Start();
}

SimServer* Cluster::StartTwice(const SimServer& server, int host, bool copy_disk) {
  copies_.push_back(
      std::make_unique<SimServer>(world_, host, &clock(host), server.process().name()));
  if (copy_disk) {
    copies_.back()->StartOnCopyOf(server);
  } else {
    copies_.back()->Start();
  }
  return copies_.back().get();
}

std::optional<Instant> Cluster::AliveSince(const std::string& node) {
  std::optional<Instant> since;
  const auto look = [&](const auto& daemon) {
    const Process& process = daemon->process();
    if (process.name() == node && process.alive()) since = process.started();
  };
  std::for_each(servers_.begin(), servers_.end(), look);
  std::for_each(workers_.begin(), workers_.end(), look);
  for (const auto& copy : copies_) {
    if (copy->process().name() == node && copy->registered()) return std::nullopt;
  }
  return since;
}

void Cluster::ClockJumped(int host) {
  const auto servers = static_cast<int>(servers_.size());
  if (reader_ != nullptr && reader_->host() == host) reader_->process().ClockJumped();
  if (snapshot_reader_ != nullptr && snapshot_reader_->host() == host) {
    snapshot_reader_->process().ClockJumped();
  }
  for (const auto& copy : copies_) {
    if (copy->host() == host) copy->process().ClockJumped();
  }
  if (host == 0) {
    scheduler_->process().ClockJumped();
  } else if (host <= servers) {
    servers_[static_cast<size_t>(host - 1)]->process().ClockJumped();
  } else {
    workers_[static_cast<size_t>(host - 1 - servers)]->ClockJumped();
  }
}

}  // namespace capstan::sim
