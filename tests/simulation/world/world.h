// World: what all parts of one simulated cluster share: time, network, disks, faults, and the jobs.
//
// Thread safety: thread-compatible; one world is one thread's.
#ifndef CAPSTAN_TESTS_SIMULATION_WORLD_WORLD_H_
#define CAPSTAN_TESTS_SIMULATION_WORLD_WORLD_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/storage/testing/sim_disk.h"
#include "server/store/sparse/testing/memory_row_disks.h"
#include "tests/simulation/network/event_loop.h"
#include "tests/simulation/network/fault.h"
#include "tests/simulation/network/prng.h"
#include "tests/simulation/network/sim_network.h"
#include "tests/simulation/network/trace_hash.h"
#include "tests/simulation/world/job_world.h"
#include "tests/simulation/world/options.h"
#include "tests/simulation/world/reached.h"

namespace capstan::sim {

struct World {
  World(const Options& drawn, bool verbose)
      : options(drawn),
        prng(Prng(drawn.seed).Fork(2)),
        trace(&loop, verbose),
        network(&loop, Prng(drawn.seed).Fork(3), &faults, &trace),
        shared_disk(drawn.seed) {
    for (const JobOptions& job : drawn.AllJobs()) jobs.push_back(std::make_unique<JobWorld>(job));
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Tells every checker of every job what concerns all of them.
  template <typename Call>
  void Tell(const Call& call) {
    for (const std::unique_ptr<JobWorld>& job : jobs) job->Tell(call);
  }

  JobWorld& first_job() { return *jobs.front(); }
  // REQUIRES: it is a job of this world.
  JobWorld& JobOf(const JobId& id) {
    return **std::find_if(jobs.begin(), jobs.end(),
                          [&](const auto& job) { return job->id() == id; });
  }

  // A living process may be unreachable, or seem so, for so long from now on.
  void TroubleFor(absl::Duration time) {
    trouble_until = std::max(trouble_until, loop.Now() + time);
  }

  void DiskSuffered(const NodeId& server) { disks_suffered[server] = loop.Now(); }

  // Call it after anything that may have written to the shared disk.
  void LookAtSharedDisk() {
    if (shared_disk.cut() && on_checkpoint_cut) on_checkpoint_cut();
  }

  void SchedulerLateFor(absl::Duration time) {
    scheduler_late_until = std::max(scheduler_late_until, loop.Now() + time);
  }

  template <typename Is>
  bool AnyJob(const Is& is) const {
    return std::any_of(jobs.begin(), jobs.end(), [&](const auto& job) { return is(job->options); });
  }

  // Addresses are what daemons tell the scheduler and clients dial.
  static std::string AddressOf(SimNetwork::EndpointId endpoint) {
    return absl::StrCat("sim:", endpoint);
  }
  static SimNetwork::EndpointId EndpointOf(const std::string& address) {
    int endpoint = -1;
    return absl::SimpleAtoi(absl::string_view(address).substr(4), &endpoint) ? endpoint : -1;
  }

  const Options options;
  Prng prng;
  EventLoop loop;
  TraceHash trace;
  FaultCounts faults;
  ReachedCounts reached;
  SimNetwork network;
  SimDisk::Rates disk_rates;             // Fault rates of the servers' disks.
  SimDisk::Rates checkpoint_disk_rates;  // Fault rates of the shared disk.
  SimDisk shared_disk;  // The checkpoints' disk, which every server and the scheduler reach.
  server::MemoryRowDisks row_disks;  // All servers share it; the content ends with the rows.
  std::vector<std::unique_ptr<JobWorld>> jobs;  // Ordered by submission; at least one.
  // When each server's disk last failed, or was lost with what it had synced. Keyed by server.
  std::map<NodeId, Instant> disks_suffered;
  std::optional<Instant> all_killed;  // When every process was killed at once, the last time.
  // Server and worker daemon whose link is dead for good.
  std::set<std::pair<NodeId, NodeId>> dead_links;
  SimNetwork::EndpointId scheduler = 0;
  Instant trouble_until;
  Instant scheduler_late_until;  // It was paused, or its clock stood still.
  // Since when a process of that name runs, in truth. Nothing: none does.
  std::function<std::optional<Instant>(const std::string& node)> alive_since;
  // How long the scheduler had not heard of it, by the scheduler's clock.
  std::function<absl::Duration(const scheduler::NodeDied& died)> silence_of;
  std::function<void()> on_snapshot_asked;  // A reader has, and the scheduler knows.
  std::function<void()> on_model_moves;     // A task has written it.
  std::function<void()> on_checkpoint_cut;  // The shared disk has lost its power.
  std::string failure;  // A shell's failure: a message that it cannot read, or a final refusal.
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_WORLD_WORLD_H_
