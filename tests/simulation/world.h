// World: what all parts of one simulated cluster share: time, network, faults, the job, and the
// checkers that watch.
//
// Thread safety: thread-compatible; one world is one thread's.
#ifndef CAPSTAN_TESTS_SIMULATION_WORLD_H_
#define CAPSTAN_TESTS_SIMULATION_WORLD_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/storage/sim_disk.h"
#include "server/sparse_table/memory_row_disks.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/event_loop.h"
#include "tests/simulation/fault.h"
#include "tests/simulation/options.h"
#include "tests/simulation/prng.h"
#include "tests/simulation/reached.h"
#include "tests/simulation/readers/kept_moments.h"
#include "tests/simulation/sim_network.h"
#include "tests/simulation/trace_hash.h"
#include "tests/simulation/workload.h"

namespace capstan::sim {

struct World {
  // As a task has written it.
  struct Model {
    Life writer;
    Arrays tables;
    absl::btree_map<TableId, Version> versions;
  };

  World(const Options& drawn, bool verbose)
      : options(drawn),
        prng(Prng(drawn.seed).Fork(2)),
        trace(&loop, verbose),
        network(&loop, Prng(drawn.seed).Fork(3), &faults, &trace),
        shared_disk(drawn.seed),
        workload(drawn),
        kept(drawn.job.sparse_buckets) {}
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Tells every checker: world.Tell([&](Checker& checker) { checker.Exported(...); });
  template <typename Call>
  void Tell(const Call& call) {
    for (const std::unique_ptr<Checker>& checker : checkers) call(*checker);
  }

  // Puts the model to where users look for it.
  void ShowModel(Model model) {
    Tell([&](Checker& checker) { checker.Exported(model.writer, model.tables, model.versions); });
    models[workload.job()->plan.export_path] = std::move(model);
  }

  // A living process may be unreachable, or seem so, for so long from now on.
  void TroubleFor(absl::Duration time) {
    trouble_until = std::max(trouble_until, loop.Now() + time);
  }

  void SchedulerLateFor(absl::Duration time) {
    scheduler_late_until = std::max(scheduler_late_until, loop.Now() + time);
  }

  // As whoever moves a model does first (common/tensor/staged_model.h).
  void RemoveStagedBefore(Incarnation writer) {
    absl::erase_if(models, [&](const auto& entry) {
      return entry.first != workload.job()->plan.export_path &&
             entry.second.writer.incarnation < writer;
    });
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
  SimDisk::Rates disk_rates;  // Of the servers' disks.
  SimDisk shared_disk;        // Where checkpoints lie: every server and the scheduler reach it.
  server::MemoryRowDisks row_disks;  // Of all servers: nothing outlives the rows.
  Workload workload;
  KeptMoments kept;                            // For readers of snapshots.
  absl::btree_map<std::string, Model> models;  // By folder of the disk that all share.
  std::vector<std::unique_ptr<Checker>> checkers;
  SimNetwork::EndpointId scheduler = 0;
  scheduler::Routing routing;  // The newest that the scheduler has sent.
  bool went_back = false;      // The job has, at least once.
  Instant trouble_until;
  Instant scheduler_late_until;  // It was paused, or its clock stood still.
  // Since when a process of that name runs, in truth. Nothing: none does.
  std::function<std::optional<Instant>(const std::string& node)> alive_since;
  std::function<void()> on_snapshot_asked;  // A reader has, and the scheduler knows.
  std::string failure;  // Of a shell: a message that cannot be read, a refusal for good.
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_WORLD_H_
