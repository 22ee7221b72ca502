// JobExport: how a job's model gets to its place. A task writes the model into a folder of its own
// incarnation, and the scheduler moves it to its place; so a task that was declared dead but lives
// only writes into a folder that nobody reads.
//
//   NOBODY --AssignWriter--> WRITING --OnWritten--> STAGED --OnPublished: moved--> DONE
//     ^                        |   \                  \--it cannot be moved--> LEFT to its writer,
//     |--the writer dies-------/    \                      or, if that one is dead, NOBODY
//     |--the writer dies-------------\--------------- LEFT --OnWritten: the writer moved it--> DONE
//     |                               \--Keep: it cannot be written--> KEPT --too late--> job fails
//     \--------------------------------------------------------- Ask --/
//   any --Clear (the job goes back)--> NOBODY
//
// Once the model is whole, servers and tasks are not needed, except a writer that must move it.
// A staged model may be moved late, by a task that was declared dead. That move removes the models
// that earlier incarnations have staged (PublishModel). So only later ones write the model then.
// Called by JobRun, which enters and leaves the phase and fails the job, and by TaskWatch, which
// ends tasks. Pure: no clock; the time comes in. Thread safety: thread-compatible.
// Invariants: (1) at most one task writes or moves the model.   (2) DONE stays, until Clear.
//             (3) of two models that are staged the later is of the same or a later incarnation.
#ifndef CAPSTAN_SCHEDULER_CORE_JOB_PARTS_JOB_EXPORT_H_
#define CAPSTAN_SCHEDULER_CORE_JOB_PARTS_JOB_EXPORT_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/job/parts/job_shared.h"
#include "scheduler/core/messages/events.h"
#include "scheduler/core/messages/loaded_check.h"
#include "scheduler/core/messages/messages.h"

namespace capstan::scheduler {

class JobExport {
 public:
  explicit JobExport(const JobShared* job) : job_(*job), folder_(job->plan.export_path) {}

  // ---- its writer
  bool WantsWriter() const { return !writer_ && !staged_ && !kept_; }
  // Assigns the earliest live incarnation that may write it. False: none of them may.
  // REQUIRES: WantsWriter().
  bool AssignWriter();
  std::optional<Rank> writer() const { return writer_; }
  bool HasWork(Rank rank) const { return writer_ == rank && (!staged_ || left_to_writer_); }
  void AddTo(Assignment* assignment, const TaskKey& task) const;  // No effect on other tasks'.
  // The writer reports that it has done its assignment, and repeats this until it has another one.
  // True: a decision was made.
  bool OnWritten(const TaskKey& writer);
  void OnTaskEnded(Rank rank);
  bool WritesInto(const std::string& folder) const;  // A live task writes the model there now.

  // ---- its place
  // A task has written the whole model: servers and tasks are needed again only if it cannot be
  // moved.
  bool IsWhole() const;
  bool IsNeeded(Rank rank) const;  // The model is not whole, or this task alone can move it.
  // The shell must still move the model of that incarnation.
  bool Awaits(const TaskKey& writer) const;
  std::optional<ModelPublish> TakePublish();  // Given once in each incarnation of the scheduler.
  // REQUIRES: Awaits(its writer).
  void OnPublished(const absl::Status& status, Events& events);
  bool done() const { return done_; }  // The model is in its place.
  const std::string& folder() const { return folder_; }
  void Clear();  // Another task writes it, from the beginning.

  // ---- a model that cannot be written: no task writes it until a user asks
  void Keep(const std::string& why, Instant now, Events& events);
  bool IsKept() const { return kept_.has_value(); }
  std::optional<Instant> kept_until() const;
  void Ask(const std::string& folder);  // Empty: the same as before. REQUIRES: IsKept().
  std::optional<Failure> Overdue(Instant now) const;  // Nobody has asked in time.

  // Says in a sentence how the export stands. `progress`: the writer's, as a text.
  std::string Detail(const std::string& progress, Instant now) const;
  void RestartLimits(Instant now);

  // ---- durable state, in the form of scheduler/store/archive.h
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(folder_, writer_, staged_, left_to_writer_, done_, kept_);
    CheckLoaded(archive, [this] {
      return CheckCount("rank of the writer", writer_.value_or(Rank(0)).value(),
                        job_.plan.workers - 1);
    });
    archive.Appended(last_staged_);
  }

 private:
  struct Kept {
    Instant until;
    std::string why;
    template <typename Archive>
    void serialize(Archive& archive) {
      archive(until, why);
    }
  };

  bool IsExporting() const { return !job_.ended() && job_.phase == JobPhase::kExporting; }
  bool IsLeftTo(Rank rank) const { return left_to_writer_ && writer_ == rank; }
  std::string StagedPath(const TaskKey& writer) const;

  const JobShared& job_;
  std::string folder_;
  std::optional<Rank> writer_;
  std::optional<TaskKey> staged_;  // The task that has written the model, into its folder.
  Incarnation last_staged_;        // The last staged one that Clear dropped. No earlier one writes.
  bool left_to_writer_ = false;    // The writer must move it: the scheduler cannot.
  bool done_ = false;
  bool taken_ = false;  // TakePublish has given it. Not durable.
  std::optional<Kept> kept_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_JOB_PARTS_JOB_EXPORT_H_
