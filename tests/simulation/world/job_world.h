// JobWorld: what all parts of one simulated job share: its workload, the checkers that watch it and
// nothing else, and the models that its tasks have written.
//
// Thread safety: thread-compatible; one world is one thread's.
#ifndef CAPSTAN_TESTS_SIMULATION_WORLD_JOB_WORLD_H_
#define CAPSTAN_TESTS_SIMULATION_WORLD_JOB_WORLD_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "scheduler/core/messages/messages.h"
#include "tests/simulation/world/checker.h"
#include "tests/simulation/world/job_options.h"
#include "tests/simulation/world/kept_moments.h"
#include "tests/simulation/world/workload.h"

namespace capstan::sim {

// The servers that have a copy of some shard, in sync or not.
inline std::set<NodeId> HoldersOf(const scheduler::Routing& routing) {
  std::set<NodeId> holders;
  const auto add = [&](int server) {
    holders.insert(routing.servers[static_cast<size_t>(server)].node);
  };
  for (const scheduler::ShardRoute& shard : routing.shards) {
    add(shard.server);
    for (const scheduler::ReplicaRef& replica : shard.replicas) add(replica.server);
  }
  return holders;
}

struct JobWorld {
  // The model that a task has written.
  struct Model {
    TaskKey writer;
    Arrays tables;
    std::map<TableId, Version> versions;
  };

  explicit JobWorld(const JobOptions& drawn)
      : options(drawn), workload(drawn), kept(drawn.sparse_buckets) {}
  JobWorld(const JobWorld&) = delete;
  JobWorld& operator=(const JobWorld&) = delete;

  const JobId& id() const { return workload.job()->plan.id; }

  // Tells every checker of the job: job.Tell([&](Checker& checker) { checker.Exported(...); });
  template <typename Call>
  void Tell(const Call& call) {
    for (const std::unique_ptr<Checker>& checker : checkers) call(*checker);
  }

  // Puts the model to where users look for it.
  void ShowModel(Model model) {
    Tell([&](Checker& checker) { checker.Exported(model.writer, model.tables, model.versions); });
    models[workload.job()->plan.export_path] = std::move(model);
  }

  // As PublishModel of common/tensor/staged_model.h. Errors: kNotFound.
  absl::Status PublishModel(const std::string& staged, const TaskKey& exporter) {
    const std::string& folder = workload.job()->plan.export_path;
    std::erase_if(models, [&](const auto& entry) {
      return entry.first != folder && entry.second.writer.incarnation < exporter.incarnation;
    });
    auto model = models.extract(staged);
    if (!model.empty()) {
      ShowModel(std::move(model.mapped()));
      return absl::OkStatus();
    }
    const auto shown = models.find(folder);
    if (shown != models.end() && shown->second.writer == exporter) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat("no model in ", staged));
  }

  const JobOptions options;
  const Workload workload;
  KeptMoments kept;                     // Moments that servers kept for readers of snapshots.
  std::map<std::string, Model> models;  // Keyed by a folder of the shared disk.
  std::vector<std::unique_ptr<Checker>> checkers;
  scheduler::Routing routing;  // The newest that the scheduler has sent.
  bool went_back = false;      // It has, at least once.
  bool stop_asked = false;     // A user has asked for it.
  // Its course, as the scheduler has told it.
  bool submitted = false;
  bool started = false;
  bool training = false;
  bool ended = false;
  bool waited = false;         // Another job ended before this one could start.
  bool outlived_stop = false;  // Another job was stopped while this one ran.
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_WORLD_JOB_WORLD_H_
