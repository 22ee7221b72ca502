// Nemesis: does to a simulated cluster what its options say, until it heals it.
//
// Each kind of fault comes at random times around its interval; what it hits is drawn. Heal ends
// all of them: the network is whole, every process runs, and nothing happens any more.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_NEMESIS_NEMESIS_H_
#define CAPSTAN_TESTS_SIMULATION_NEMESIS_NEMESIS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/messages/events.h"
#include "scheduler/core/messages/messages.h"
#include "tests/simulation/nemesis/cluster.h"
#include "tests/simulation/network/prng.h"
#include "tests/simulation/world/world.h"

namespace capstan::sim {

class Nemesis {
 public:
  Nemesis(World* world, Cluster* cluster);  // Both outlive it.

  void Start();
  void Heal();

 private:
  void Every(absl::Duration interval, void (Nemesis::*strike)());
  void Once(absl::Duration after, void (Nemesis::*strike)());
  void Partition();
  void ClogLinks();
  void IsolateScheduler();
  void StrandReader();
  void OverrunMoment();
  void JoinBehind();
  void KillLink();
  void Drain();
  template <typename Node>
  void Drain(Node* node, std::function<void()> kill);
  void EndDrain(const NodeId& node);
  void Leave();
  template <typename Node>
  void StartLater(Node* node);
  void SaveCheckpoint();
  void StopJob();
  // The scheduler's store and the disk of checkpoints (nemesis_stores.cc).
  void StartStores();
  void HealStores();
  void BreakStore();
  void CopyStore() { cluster_->scheduler().CopyStore(); }
  void PutBackStore();
  void FlipCheckpointBit();
  void CutCheckpointPowerSoon();
  void CrashCheckpointDisk();
  void OverrunUnheard();
  void KillWhileMoving();
  // Aimed at one instant of the first job (nemesis_instants.cc).
  void StartInstants();
  void OverrunByOne();
  void CutUnheard(bool to_scheduler);
  void TellMoment(const scheduler::Assignment& assignment);
  void TellVersion(int64_t version);
  void StrandFormerPrimary(const scheduler::RoutingChanged& changed);
  void ReadOften(Instant until);
  void LoseSuccessor(const scheduler::Routing& routing);
  void KillTasks();
  void DieBehindFence();
  void CutOneWay(int from, int to, absl::Duration time);
  // Cuts all links between the two, both ways, until `time` has passed or the world heals.
  void CutOff(const std::vector<int>& one, const std::vector<int>& other, absl::Duration time,
              std::function<void()> mended = nullptr);
  // Cuts these hosts off from all others, as CutOff.
  void CutOffTogether(const std::vector<int>& island, absl::Duration time);
  // Calls `undo` after `time`, or when the world heals, whichever is first.
  void UndoAfter(absl::Duration time, std::function<void()> undo);
  void KillScheduler();
  void KillSchedulerAndWorkers();
  void KillServer();
  void Kill(SimServer* server, absl::Duration down_max);
  void KillPrimaries();
  void KillAll();
  void KillWorkers();
  JobWorld& DrawJob();                                               // Any.
  SimServer* PrimaryOf(const JobWorld& job, const ShardKey& shard);  // Null: unknown, or dead.
  void KillWorker();
  void KillTask();
  void PauseScheduler();
  void PauseServer();
  void PauseWorker();
  void PauseTask();
  void StrandExporter();
  void JumpClock();
  void FreezeClock();
  void FlipStoredBit();
  void StartTwice();
  void Pause(Process* process, Fault fault);
  void PauseFor(Process* process, absl::Duration time, Fault fault);
  void SleepInside(absl::Duration cut);
  void RestartLater(Process* process, const std::function<void()>& start);
  void DrawIslands(std::vector<int>* one, std::vector<int>* other);
  // Two hosts, or a host and all others, drawn by role.
  void DrawSides(std::vector<int>* one, std::vector<int>* other);
  void Narrate(const std::string& text);

  World* const world_;
  Cluster* const cluster_;
  Prng prng_;
  Prng aimed_prng_;
  Prng users_prng_;
  Prng machines_prng_;
  Prng jobs_prng_;
  Prng stores_prng_;
  Prng instants_prng_;
  std::set<NodeId> drained_;       // Now: at most one.
  std::set<NodeId> ever_drained_;  // A scheduler that was dead has not heard of the end.
  bool overrun_ = false;
  bool unheard_ = false;              // Now: no task hears the scheduler, for OverrunByOne,
  std::vector<size_t> unheard_cuts_;  // by these of undo_.
  std::optional<Iteration> moment_;   // The iteration at which the job is to stop then.
  std::set<Incarnation> successors_;  // Successors that were lost, or are to be.
  int instants_left_ = 4;             // So often at most, jobs are short.
  bool healed_ = false;
  std::vector<std::function<void()>> undo_;  // Ends cuts and clogs that are on.
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_NEMESIS_NEMESIS_H_
