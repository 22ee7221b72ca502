// SimTask: one worker task's process: the real TaskLoop, TaskBoard and PushPullCore over simulated
// calls, with a trainer of its own (world/workload.h) and a compute time drawn for each batch.
//
// The shell of worker/task and worker/client without gRPC and threads: where those block, this one
// suspends the loop and resumes it by virtual time. Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_SHELLS_SIM_TASK_H_
#define CAPSTAN_TESTS_SIMULATION_SHELLS_SIM_TASK_H_

#include <coroutine>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"
#include "tests/simulation/network/process.h"
#include "tests/simulation/network/sim_network.h"
#include "tests/simulation/world/world.h"
#include "worker/client/call_queue.h"
#include "worker/client/client_call.h"
#include "worker/client/messages/message_codec.h"
#include "worker/client/push_pull_core.h"
#include "worker/client/transport/transport.h"
#include "worker/core/push_pull_session.h"
#include "worker/core/row_cache.h"
#include "worker/core/task_board.h"
#include "worker/core/task_loop.h"
#include "worker/task/reporting/report_pacer.h"

namespace capstan::sim {

class SimTask final : public worker::TaskPort {
 public:
  // `exited` is called once, with the exit code, unless the process is killed before; it may
  // destroy the task.
  SimTask(World* world, Process* process, SimNetwork::EndpointId self,
          const v1::TaskAssignment& assignment, std::function<void(int)> exited);
  ~SimTask();
  void Start();

  const TaskKey& task_key() const { return task_key_; }

  // ---- TaskPort
  void UseBoard(const std::function<void(worker::TaskBoard&)>& use) override;
  bool Fenced() override { return fenced_; }
  void ReportSoon() override;
  bool HasRouting() override { return core_.session().routing_generation().value() != 0; }
  absl::StatusOr<worker::OpId> Push(const worker::Work& work) override;
  absl::StatusOr<worker::OpId> Pull(const worker::Work& work, bool snapshot) override;
  void CancelPull(worker::OpId op) override;
  worker::RowsRead Pulled(const worker::OpDone& done) override;
  bool Wait(worker::OpId op, worker::OpDone* done) override;
  bool Forward(const worker::Work& work, std::optional<worker::OpId> pull,
               worker::OpDone* done) override;
  bool WaitForWork() override;
  bool Train(const worker::Work& work, worker::OpId push,
             absl::StatusOr<worker::WorkResult>* result) override;
  bool RunProgram(const worker::Work& work, absl::StatusOr<worker::WorkResult>* result) override;
  bool Evaluate(const worker::Work& work, absl::StatusOr<worker::WorkResult>* result) override;
  bool Export(const worker::Work& work, const std::map<TableId, Version>& versions,
              absl::Status* result) override;
  bool Move(const worker::Work& work, absl::Status* result);  // A model that is written.
  void Suspended(std::coroutine_handle<> loop) override { suspended_ = loop; }

 private:
  // The loop waits for this.
  enum class Waiting { kNothing, kOp, kParameters, kWork, kTime, kRun };
  // A program at its own pace, which the loop waits for.
  struct Run {
    worker::Work work;
    absl::StatusOr<worker::WorkResult>* result = nullptr;
    int left = 0;                                           // Operations to start.
    bool thinking = false;                                  // A timer starts the next one.
    std::map<worker::OpId, std::vector<float>> operations;  // Under way, with what is pulled.
  };
  struct Gradient {  // The gradient of a push that has not ended.
    Batch batch;
    std::shared_ptr<Arrays> values;
  };

  void GoOnWithRun();
  void StartRunOperation();
  absl::StatusOr<worker::OpId> StartRunPush(TableId table);
  absl::StatusOr<worker::OpId> StartRunPull(TableId table);
  void EndRunOperation(worker::OpId op);
  void EndRun(const absl::StatusOr<worker::WorkResult>& result);
  bool RunIsTakenAway();
  void NoteWork();                                       // Tells the checkers what there is to do.
  bool HasEnded(worker::OpId op, worker::OpDone* done);  // True once Wait may go on.
  void ComputeForward();
  absl::Duration ComputeStep();  // Duration of a forward pass, or of one part of the backward pass.
  void Resume();                 // Later: never inside a call of the loop's.
  void Changed();                // Something that the loop may wait for has happened.
  void FinishIfEnded();
  void BeginLoop();
  // Ends with `done` after a time up to `longest`, and goes on visibly until then.
  void TakeTime(const std::string& what, absl::Duration longest, std::function<void()> done);
  void GoOn(absl::Duration rest, std::function<void()> done);
  worker::PushPullCore::Options CoreOptions() const;
  worker::OpPayload PayloadOf(const Gradient& gradient) const;
  void Perform(worker::PushPullCore::Actions actions);
  void StartQueued();  // Same as PushPullClient's sender.
  void Send(const std::shared_ptr<worker::ClientCall>& call);
  void TellSent(const worker::ClientCall& call);
  void OnAnswer(const std::shared_ptr<worker::ClientCall>& call,
                const absl::StatusOr<worker::Transfer::Answer>& answer);
  void TellAnswered(const worker::ClientCall& call, const worker::DecodedReply& reply);
  void ArmSession();
  void AskRouting(const worker::CallQueue::Question& question);
  void TakeRouting(const v1::RoutingTable& routing);
  int64_t FirstReady(size_t table, int64_t element) const;
  void ReleasePart(worker::OpId push, const worker::Work& work, float forward, int step,
                   absl::StatusOr<worker::WorkResult>* result);

  // ---- the link to the scheduler, as in worker/task/reporting/scheduler_link.h
  void Report();
  void OnReported(const v1::SyncTaskRequest& request, absl::Duration took,
                  const absl::Status& status, const std::string& answer);
  v1::SyncTaskRequest MakeReport();
  void LastWord(int exit_code);

  World* const world_;
  JobWorld* const job_;
  Process* const process_;
  const SimNetwork::EndpointId self_;
  const v1::TaskAssignment assignment_;
  const TaskKey task_key_;
  const worker::CallerId caller_;
  const std::function<void(int)> exited_;

  worker::TaskBoard board_;
  worker::PushPullCore core_;
  Arrays parameters_;
  std::vector<int64_t> run_pushes_;  // By table, of all runs.
  std::optional<worker::RowCache> row_cache_;
  worker::AllTableKeys pulling_;  // The keys of the newest pull,
  Iteration pulled_for_;          // and its iteration, if it is no snapshot.
  std::map<worker::OpId, Gradient> gradients_;
  std::optional<Run> run_;
  int64_t run_numbers_ = 0;  // Pushes of all runs.
  std::map<std::pair<worker::MessageId, ShardKey>, bool> repeats_;
  std::map<std::pair<ShardKey, Sequence>, int> sent_;
  v1::Activity activity_;
  bool prepared_ = false;
  bool fenced_ = false;
  bool interrupted_ = false;
  bool needs_routing_ = false;
  absl::Status failure_;

  Waiting waiting_ = Waiting::kNothing;
  worker::OpId awaited_;
  worker::OpDone* awaited_done_ = nullptr;
  std::coroutine_handle<> suspended_;
  bool resuming_ = false;

  worker::ReportPacer pacer_;
  v1::StoreRevision revision_seen_;
  Process::TimerId report_timer_ = 0;
  bool reporting_ = false;
  bool report_woken_ = false;
  bool ending_ = false;

  Process::TimerId late_push_timer_ = 0;
  Process::TimerId session_timer_ = 0;
  Instant session_timer_for_;

  std::unique_ptr<worker::TaskLoop> loop_;  // Declared last: it uses all of the others.
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_SHELLS_SIM_TASK_H_
