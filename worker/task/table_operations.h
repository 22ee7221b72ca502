// TableOperations: pushes and pulls of single tables, by which a program works at its own pace.
//
//   CLOSED --Open: the run begins--> OPEN <--SetPaused--> PAUSED
//   OPEN, PAUSED --Close: the program has finished--> DRAINING --Drain, End--> CLOSED
//   any --End: the run was taken away--> CLOSED
//
// The program's threads start operations and wait for them; the task's thread opens and ends it,
// and keeps the operations going meanwhile (PushPullClient::AttendOperations). While it is paused,
// because the job stands still for a checkpoint or a snapshot, an operation that is to be started
// waits. A pull of a table sees every earlier push of this task to the table.
// Thread safety: thread-safe.
// Invariants: (1) at most kOperationsMax operations are not waited for;
//             (2) once End has returned, the client is not used.
#ifndef CAPSTAN_WORKER_TASK_TABLE_OPERATIONS_H_
#define CAPSTAN_WORKER_TASK_TABLE_OPERATIONS_H_

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
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/time/clock.h"
#include "common/types/progress.h"
#include "proto/parameter_server.pb.h"
#include "worker/client/push_pull_client.h"

namespace capstan::worker {

class TableOperations {
 public:
  static constexpr int kOperationsMax = 1024;

  // No value: the table is dense.
  using Keys = std::optional<absl::Span<const int64_t>>;

  // The result of a wait.
  struct Waited {
    bool ended = false;
    absl::Status status;  // The result of an operation that has ended.
    std::string text;     // If it has not ended: for whom it waits.
  };

  // `tables`: those of the job, by index. `progress` is called, by any thread, for each operation
  // whose end Wait has seen. The client outlives the last End.
  TableOperations(PushPullClient* client, std::vector<v1::TableSpec> tables, Progress progress);

  // ---- the program's threads
  // Starts a push of `values`. For a dense table they are [elements], and must not change until the
  // operation was waited for. For rows they are [keys, dim]: they are copied, and summed for a key
  // that occurs several times. Returns the operation's number.
  // Errors: kInvalidArgument    no such table, or another number of values than it has; keys of a
  //                             dense table; rows without keys.
  //         kOutOfRange         a value is not finite.
  //         kResourceExhausted  kOperationsMax are not waited for.
  //         kCancelled          the run is over.
  absl::StatusOr<int64_t> Push(int table, Keys keys, absl::Span<const float> values);
  // Starts a pull into `values`, which are written until the operation was waited for. Keys may
  // occur several times. A key without a row has initial values. Errors: as above.
  absl::StatusOr<int64_t> Pull(int table, Keys keys, absl::Span<float> values);
  // Waits at most `patience` for an operation, which is forgotten once its end was returned.
  // Status: kNotFound    it was never started, is forgotten, or another thread waits for it.
  //         kCancelled   the run is over.
  //         others       those with which PushPullSession ends operations.
  Waited Wait(int64_t operation, absl::Duration patience);

  // ---- the task's thread
  void Open();
  void SetPaused(bool paused);  // REQUIRES: open or paused.
  void Close();                 // No operation begins any more.
  bool IsIdle() const;          // No operation is being started or runs.
  // Keeps the operations going until IsIdle, or the client is interrupted; may return earlier.
  // REQUIRES: not open, so that no operation begins meanwhile.
  void AwaitIdle();
  // Takes the results of all operations that nobody waits for. Returns the first error.
  // REQUIRES: closed and idle.
  absl::Status Drain();
  // From now on calls end with kCancelled, and pulls write nothing.
  void End();

 private:
  enum class State { kClosed, kOpen, kPaused, kDraining };
  struct Operation {
    int table = 0;
    OpId op;
    bool push = false;
    bool awaited = false;                          // A thread is in Wait.
    std::shared_ptr<absl::Notification> released;  // Push of a dense table: its values are free.
    std::optional<absl::Status> result;            // It has ended.
    // Pull of rows: values[i] is row places[i] of `rows`.
    std::shared_ptr<std::vector<float>> rows;
    std::vector<uint32_t> places;
    absl::Span<float> values;
  };
  using StartOp = std::function<absl::StatusOr<OpId>(Iteration iteration)>;

  absl::StatusOr<const v1::TableSpec*> CheckTable(int table, const Keys& keys, size_t values) const;
  absl::StatusOr<int64_t> Start(Operation operation, const StartOp& start);
  absl::Status Begin(int table, bool push, Iteration* iteration);
  Operation* Await(int64_t number);  // The caller owns it until it is erased or not awaited.
  // Waits for the result. Returns why there is none yet, or an empty text.
  std::string AwaitResult(Operation& operation, Instant deadline);
  // Same, once the run is over: End is about to write the result.
  std::string AwaitEnd(const Operation& operation, Instant deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CopyRows(const Operation& operation) const;
  std::string NameOf(int table) const;

  PushPullClient* const client_;
  const SteadyClock clock_;  // The same time as the client's.
  const std::vector<v1::TableSpec> tables_;
  const Progress progress_;

  mutable absl::Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kClosed;
  int starting_ ABSL_GUARDED_BY(mutex_) = 0;             // Threads that start an operation.
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;              // Threads that wait in the client.
  int64_t last_ ABSL_GUARDED_BY(mutex_) = 0;             // The newest operation's number.
  std::vector<int64_t> pushes_ ABSL_GUARDED_BY(mutex_);  // Begun so far, by table.
  // The operations that were not waited for, by number.
  std::map<int64_t, Operation> operations_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_TABLE_OPERATIONS_H_
