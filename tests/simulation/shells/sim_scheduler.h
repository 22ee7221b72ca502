// SimScheduler: the scheduler's process: the real SchedulerCore and codecs behind simulated calls.
//
// The shell of scheduler_service.h without gRPC, threads and files: a step's answers leave once its
// changes are in the store, which takes a while; a kill in between loses both.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_SHELLS_SIM_SCHEDULER_H_
#define CAPSTAN_TESTS_SIMULATION_SHELLS_SIM_SCHEDULER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/admission/admission.h"
#include "scheduler/core/scheduler_core.h"
#include "scheduler/core/store_write.h"
#include "scheduler/store/testing/memory_store.h"
#include "tests/simulation/network/process.h"
#include "tests/simulation/network/sim_network.h"
#include "tests/simulation/world/world.h"

namespace capstan::sim {

class SimScheduler {
 public:
  SimScheduler(World* world, SimNetwork::HostId host, HostClock* clock);
  ~SimScheduler();

  Process& process() { return process_; }
  // The process, anew, from its store. REQUIRES: it is dead. Jobs whose time has come are submitted
  // unless they have been.
  void Start();

  // Requests of users. They have no effect while the process is dead, and wait while it is paused.
  void Drain(const NodeId& node, std::function<void()> safe);  // `safe`: to stop.
  void EndDrain(const NodeId& node);
  void SaveCheckpoint(const JobId& job);
  void StopJob(JobWorld* job);

  // No transaction is written until MendStore.
  void BreakStore() { store_is_broken_ = true; }
  void MendStore() { store_is_broken_ = false; }
  void CopyStore();  // If all jobs are in it.
  // The copy takes the place of the store. False: there is none. REQUIRES: the process is dead.
  bool PutBackStore();
  // Their folders, by age. None while the process is dead, or does not know the job.
  std::vector<std::string> CompleteCheckpoints(const JobId& job) const;

  // The job's state; nothing while the process is dead, or does not know it.
  std::optional<scheduler::JobView> Job(const JobId& job) const;

 private:
  using Call = std::shared_ptr<SimNetwork::Incoming>;

  void Handle(const Call& call);
  absl::Status Register(const Call& call);
  absl::Status SyncNode(const Call& call);
  absl::Status HoldConnection(const Call& call);
  void EndConnection(const scheduler::NodeDied& died);
  absl::Status SyncTask(const Call& call);
  absl::Status OpenSnapshot(const Call& call);
  void SubmitDue();
  void Submit(const JobWorld& job);
  void Ask(const std::function<absl::Status(scheduler::Ticket, scheduler::Actions&)>& call);
  void Answer(const scheduler::DrainReply& reply);
  void Answer(const scheduler::CheckpointReply& reply);
  // Makes what a step has changed durable, then lets out what it said.
  void Commit(scheduler::Actions actions, std::vector<scheduler::StoreWrite> writes = {},
              std::function<void()> then = nullptr);
  void CommitGathered();
  void Perform(const scheduler::Actions& actions);
  void Publish(const scheduler::CheckpointPublish& publish);  // Writes its manifest.
  void Publish(const scheduler::ModelPublish& publish);       // Moves the model, if it can.
  void Move(const scheduler::ModelPublish& publish);
  void NoteRouting(const scheduler::Routing& routing);
  void Answer(const scheduler::NodeReply& reply);
  void Answer(const scheduler::TaskReply& reply);
  void Answer(const scheduler::SnapshotReply& reply);
  void Answer(const scheduler::JobReply&) {}  // Nobody asks.
  void Note(const scheduler::Event& event);
  void NoteMoves(const scheduler::RoutingChanged& moved);
  void TellCheckers(const scheduler::Event& event);
  void NoteCourse(JobWorld& job,
                  const scheduler::Event& event);  // Counts what the job has reached.
  void Arm();
  void NoteWakeup();

  World* const world_;
  Process process_;
  const SimNetwork::EndpointId endpoint_;
  std::unique_ptr<scheduler::MemoryStore> store_;
  bool store_is_broken_ = false;
  scheduler::StoreRows copy_;  // A copy of the store. Empty: none.
  Prng store_prng_;
  std::set<std::string> incremental_;  // Complete checkpoints' folders.

  // The state of this process.
  scheduler::AdmittedJobs jobs_;
  struct Step {
    scheduler::Actions actions;
    std::vector<scheduler::StoreWrite> writes;
    std::function<void()> then;
  };
  // Writes what these steps have changed. False: it could not be written, the process is dead.
  bool WriteStore(const std::vector<scheduler::StoreWrite>& writes, const std::vector<Step>& steps);
  std::vector<Step> steps_;  // Steps that wait for the store.
  bool committing_ = false;
  std::unique_ptr<scheduler::SchedulerCore> core_;
  int models_moved_ = 0;  // Now.
  uint64_t next_ticket_ = 1;
  std::map<scheduler::Ticket, Call> calls_;
  std::set<scheduler::Ticket> held_;  // SyncNode calls that the core has not answered.
  struct Connection {
    scheduler::Ticket ticket;
    Incarnation incarnation;
    Call call;
  };
  std::map<NodeId, Connection> connections_;
  std::map<scheduler::Ticket, TaskKey> tasks_;  // Tasks that sent a SyncTask.
  std::map<scheduler::Ticket, std::function<void()>> drains_;
  Process::TimerId timer_ = 0;
  Instant timer_for_;
  Instant wakeups_since_;
  int wakeups_ = 0;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_SHELLS_SIM_SCHEDULER_H_
