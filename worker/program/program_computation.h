// ProgramComputation: lets a user's program compute the works of a task, on a thread of its own.
//
//   the task's thread                        the program's thread
//   BeginPull: asks for the keys, waits ───► Next: takes the question, if there are rows
//   BeginPull: returns the keys ◄─────────── NameKeys, Finish
//   Train: offers the work, waits ─────────► Next: takes it
//                                            computes; PutGradient, Release
//   Train: returns the result ◄───────────── Finish, or Fail
//   Evaluate: as Train, without a gradient
//
// A work is offered once it is certain and its parameters are here; they stay as they are until the
// program has released the gradient, or has finished. If there are rows, the keys of the next work
// are asked for before that, so that its rows are pulled meanwhile. The keys of the work after it
// are asked for when the current work is finished, so that the program makes that batch while the
// task waits for servers. A work that is given up is never offered. Works without samples are
// answered by the task's thread itself.
// At own pace the only work is the run of the program: BeginRun offers it, Finish ends it, and the
// program's threads push and pull by Tables meanwhile.
// Thread safety: one thread uses the methods of Computation, and one the program's; Tables,
// TablesToWait and Fail may be called by any.
#ifndef CAPSTAN_WORKER_PROGRAM_PROGRAM_COMPUTATION_H_
#define CAPSTAN_WORKER_PROGRAM_PROGRAM_COMPUTATION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/types/ids.h"
#include "proto/job.pb.h"
#include "proto/parameter_server.pb.h"
#include "worker/data/epoch_order.h"
#include "worker/task/computation/computation.h"
#include "worker/task/table_operations.h"

namespace capstan::worker {

// One work of the program: a batch, or a run at its own pace. Its arrays are valid until Finish or
// Fail.
struct ProgramWork {
  enum class Kind {
    kTrain,
    kNameKeys,
    kEvaluate,      // A batch of the test data: its loss alone is asked for.
    kNameTestKeys,  // As kNameKeys, for a batch that is to be evaluated.
    kRun,           // The program runs at its own pace.
  };
  Kind kind = Kind::kTrain;
  int64_t epoch = 0;
  int64_t iteration = 0;
  int slot = -1;  // BSP: which of the iteration's batches it is. Else -1.
  // Numbers of the samples in their order, [n], n >= 1: in the training or in the test data. A run
  // has none.
  absl::Span<const int64_t> samples;
  // For random numbers: the same for the same samples in the same place, on any worker.
  uint64_t seed = 0;
};

class ProgramComputation final : public Computation {
 public:
  // REQUIRES: `job` is valid (ValidateJob) and has a program.
  explicit ProgramComputation(const v1::JobSpec& job);

  // ---- The program's thread.

  // Waits for the next work, at most `patience`. No value: none has come.
  // Errors: kOutOfRange          the task has ended; none will come.
  //         kFailedPrecondition  the last one is not finished.
  absl::StatusOr<std::optional<ProgramWork>> Next(absl::Duration patience);
  // The batches planned after the current work, in order: most of them come next, unless another
  // task is given them. Empty: none are known, or there is no current work.
  absl::Span<const ProgramWork> Upcoming() const;
  // Names the rows of a table that the current work needs: keys in any order, repeated or not.
  // places[i] becomes the index of the row of keys[i] in the values that Parameters returns. Tables
  // that are not named have no rows then. REQUIRES: as many places as keys.
  // Errors: kInvalidArgument     the table has no rows, or there are 2^32 keys.
  //         kFailedPrecondition  the current work does not ask for keys.
  absl::Status NameKeys(int table, absl::Span<const int64_t> keys, absl::Span<int64_t> places);
  // The values of a table for the current work, [elements]; for a table of rows, the named rows.
  // Errors (also of the others below): kFailedPrecondition  there is no current work.
  //                                    kInvalidArgument     no such table or elements.
  absl::StatusOr<absl::Span<const float>> Parameters(int table) const;
  // Sets elements [first, first + values.size()) of the gradient to those of the mean over the
  // work's samples; for averages, to their new values.
  // Errors: kOutOfRange  a value is not finite; names the tensor. Finite ones must replace it.
  absl::Status PutGradient(int table, int64_t first, absl::Span<const float> values);
  // The elements of the parameters' gradient from `first` on have been put, and these parameters
  // are not read any more: the elements are sent meanwhile.
  // Errors: kOutOfRange  one of these elements is not finite.
  absl::Status Release(int64_t first);
  // Ends the current work. `loss_sum`: the losses of its samples. `correct`: how many of them were
  // classified correctly. A question for keys and a run ignore both.
  // Errors: kCancelled   the run was taken away.
  //         kOutOfRange  the loss, or a value that was put, is not finite: the work has ended, and
  //         the task fails.
  absl::Status Finish(double loss_sum, int64_t correct);
  // The tables by which a run pushes and pulls. They may be used after the run has ended, and then
  // refuse new operations.
  // Errors: kFailedPrecondition  there is no run.
  //         kCancelled           the task has ended.
  absl::StatusOr<std::shared_ptr<TableOperations>> Tables() const;
  // The tables of the last run, which may be over, to wait for its operations.
  // Errors: kFailedPrecondition  there was no run.
  absl::StatusOr<std::shared_ptr<TableOperations>> TablesToWait() const;
  // The program cannot go on: the task fails with this error. There need not be a current work. The
  // values that Parameters returned must not be read any more.
  void Fail(absl::Status error);
  // The program leaves: the task fails, unless the program has finished its run.
  void Leave();
  // The error of a Fail or Leave that came while the task waited for no work of the program, so
  // that no computation returns it. OK: there was none.
  absl::Status idle_failure() const;

  // ---- The task's thread.

  // The task has ended: from now on Next returns kOutOfRange.
  void End();

  const std::vector<v1::TableSpec>& tables() const override { return tables_; }
  int64_t train_samples() const override { return order_.count(); }
  int batches_planned() const override { return kBatchesPlanned; }
  absl::StatusOr<AllTableKeys> BeginPull(const Work& work, const std::vector<Work>& upcoming,
                                         TableArrays* parameters) override;
  AllTableKeys BeginTraining(const Work& work, TableArrays* parameters,
                             GradientArrays* gradient) override;
  bool Forward(const Work& work, const std::vector<Work>& upcoming, const TableArrays& parameters,
               const ParametersNeeded& needed) override;
  absl::StatusOr<WorkResult> Train(const Work& work, GradientArrays* gradient,
                                   const GradientPartReady& ready) override;
  absl::StatusOr<WorkResult> Evaluate(const Work& work, const TableArrays& parameters) override;
  void BeginRun(const Work& work, std::shared_ptr<TableOperations> tables,
                std::function<void()> changed) override;
  std::optional<absl::StatusOr<WorkResult>> RunResult() override;
  void EndRun() override;

 private:
  static constexpr int kBatchesPlanned = 16;  // Programs may load data in many processes.

  // A work with the samples that it points to.
  struct Batch {
    ProgramWork work;
    std::vector<int64_t> samples;
  };
  // A work that the task's thread offers to the program, with the arrays that it lends.
  struct Offer {
    Batch batch;
    std::vector<Batch> upcoming;
    std::vector<ProgramWork> upcoming_works;  // The works of `upcoming`.
    std::shared_ptr<AllTableKeys> keys;       // A question for keys fills them in.
    const TableArrays* parameters = nullptr;
    TableArrays* gradient = nullptr;  // Null: an evaluation.
    const GradientPartReady* ready = nullptr;
    // By table: covers all elements that were not finite when they were put; other values may have
    // replaced them.
    std::map<int, Range> doubtful;
    float scale = 1.0f;  // Turns a mean over the samples into the work's part of the iteration's.
    bool taken = false;
    bool awaited = true;  // The task's thread waits for its end.
  };
  // The keys of a work that were asked for before its pull.
  struct KeysAhead {
    Work work;
    std::shared_ptr<AllTableKeys> keys;
  };

  void MakeRoom(const AllTableKeys& keys, TableArrays* arrays) const;
  AllTableKeys NoKeys() const;
  Batch BatchOf(const Work& work);
  Offer OfferOf(const Work& work);
  Offer QuestionOf(const Work& work);
  // The keys of a work, once the program has named them; none without rows or samples.
  absl::StatusOr<AllTableKeys> KeysOf(const Work& work);
  // Asks for the keys of the work after the one whose keys are known, and does not wait.
  void AskAhead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Offers a work, and waits until the program has finished it.
  absl::StatusOr<WorkResult> Compute(Offer offer);
  void FailLocked(absl::Status error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Post(Offer offer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);  // REQUIRES: there is no offer.
  absl::Status AwaitNoOffer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);  // Returns failure_.
  absl::Status Await(Offer offer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishRun() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellChanged() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckTaken() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Errors: kFailedPrecondition  there is no current work, or it is not, in this order: a run; a
  // batch; a question for keys; a batch to compute; a batch with a gradient.
  absl::Status CheckRuns() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status CheckIsBatch() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status CheckNamesKeys() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status CheckComputes() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status CheckTrains() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Errors: kOutOfRange  not finite: one of these elements of the gradient (CheckFinite); the loss,
  // or any element that was put (CheckResult).
  // REQUIRES: there is a current work; CheckFinite: it has a gradient.
  absl::Status CheckFinite(int table, const Range& elements) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status CheckResult(double loss_sum) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  const v1::TableSpec* Find(int table) const;
  std::string TensorAt(int table, int64_t element) const;

  const uint64_t seed_;
  const std::vector<v1::TableSpec> tables_;
  const bool has_rows_;

  // Used by the task's thread alone.
  EpochOrder order_;
  const TableArrays* parameters_ = nullptr;
  std::vector<Work> planned_;  // The newest plan of the task.
  Work pulled_work_;           // The work of the last pull.
  std::optional<KeysAhead> ahead_;
  // With rows: the keys that were pulled last, and those of the work in training.
  AllTableKeys pulled_keys_, training_keys_;
  bool pulled_is_taken_ = true;
  TableArrays training_parameters_;

  mutable absl::Mutex mutex_;
  std::optional<Offer> offer_ ABSL_GUARDED_BY(mutex_);
  // The work that the program computed when it failed. Another thread may still read its samples.
  std::optional<Offer> failed_offer_ ABSL_GUARDED_BY(mutex_);
  // Calls of PutGradient and Release that use arrays of the task's thread without the lock: the
  // task's thread waits for their end.
  int calls_inside_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<WorkResult> result_ ABSL_GUARDED_BY(mutex_);  // Finish sets it.
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  absl::Status idle_failure_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<TableOperations> tables_of_run_ ABSL_GUARDED_BY(mutex_);  // Null: no run yet.
  std::function<void()> changed_ ABSL_GUARDED_BY(mutex_);                   // Null: no run.
  bool run_finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool left_ ABSL_GUARDED_BY(mutex_) = false;  // The program has called Leave.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_PROGRAM_PROGRAM_COMPUTATION_H_
