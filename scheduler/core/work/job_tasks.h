// JobTasks: the incarnations of a job's ranks. A rank is one position of the job; each process that
// fills it is one incarnation.
//
//   UNPLACED --Place--> STARTING --Renew (first report)--> PREPARING --Renew (prepared)--> LIVE
//      ^-----End (died, exited, its daemon died)---------------/----------------------------/
//
// Thread safety: thread-compatible.
// Invariant: an unplaced rank has no deadline; any other does.
#ifndef CAPSTAN_SCHEDULER_CORE_WORK_JOB_TASKS_H_
#define CAPSTAN_SCHEDULER_CORE_WORK_JOB_TASKS_H_

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/messages/loaded_check.h"
#include "scheduler/core/messages/messages.h"
#include "scheduler/core/work/task_rate.h"

namespace capstan::scheduler {

struct Task {
  enum class State { kUnplaced, kStarting, kLive, kPreparing };  // The store has its number.
  friend constexpr State LastOf(State) { return State::kPreparing; }
  Rank rank;
  State state = State::kUnplaced;
  Incarnation incarnation;  // The newest incarnation; 0: none yet.
  NodeId node;
  std::string address;  // The daemon's address.
  Instant deadline;     // It is dead if it does not report before.
  Instant last_report;
  Iteration iterations;  // Its own count, as reported or as raised by start_iteration.
  TaskTotals totals;     // The totals accepted so far.
  bool idle = false;
  Wait wait;
  Activity activity;
  Assignment assignment;
  Generation assignment_seen;
  bool let_go = false;  // Unplaced: its last incarnation ended without a failure.
  // Since when it reports idle with its newest assignment, although that has unfinished work.
  std::optional<Instant> contradicts_since;
  // Since when it has work, or prepares, but makes no progress and names nothing that it waits for.
  std::optional<Instant> stuck_since;
  TaskRate rate;

  // Fields that each report repeats (wait, idle, activity) or that are measured again are left out.
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(rank, state, incarnation, node, address, deadline, last_report, iterations, totals,
            assignment, assignment_seen, let_go);
  }
  bool placed() const { return state != State::kUnplaced; }
  bool preparing() const { return state == State::kPreparing; }
  bool live() const { return state == State::kLive; }  // It takes work.
};

class JobTasks {
 public:
  struct Options {
    absl::Duration lease = absl::Seconds(3);         // The lease of a task that has reported.
    absl::Duration start_limit = absl::Seconds(30);  // From its placing to its first report.
  };
  JobTasks(int workers, const Options& options);

  // Starts a new incarnation. REQUIRES: the rank is unplaced.
  void Place(Rank rank, Incarnation incarnation, const NodeId& node, const std::string& address,
             Instant now);
  // A report came. A task that was live stays so, whatever a late report says.
  void Renew(Task& task, bool preparing, Instant now);
  // Its silence says nothing about the task, which gets the time of a lease again.
  void Excuse(Rank rank, Instant now) { at(rank).deadline = now + options_.lease; }
  void End(Rank rank);  // Keeps the last reported figures, for views.

  Task& at(Rank rank) { return tasks_[static_cast<size_t>(rank.value())]; }
  const Task& at(Rank rank) const { return tasks_[static_cast<size_t>(rank.value())]; }
  Task* FindIncarnation(Rank rank, Incarnation incarnation);  // Null: not a placed incarnation.
  const Task* Find(const TaskKey& key) const;  // The same, of an incarnation of this job.

  std::vector<Rank> Unplaced() const;
  std::vector<Rank> Live() const;
  std::vector<Rank> OnNode(const NodeId& node) const;  // Placed there.
  std::vector<Rank> Expired(Instant now) const;
  int CountIn(Task::State state) const;
  Incarnation LastIncarnation() const;  // The highest of all ranks; 0: none was placed.
  Iteration HighestIteration() const;   // Over live tasks; 0 if none.
  Instant NextDeadline() const;

  // ---- ranks with a newer assignment or routing table than at the last TakeChanged; not durable
  void NoteChanged(Rank rank) { changed_.insert(rank); }
  std::vector<Rank> TakeChanged();

  std::vector<Task>& all() { return tasks_; }
  const std::vector<Task>& all() const { return tasks_; }

  // ---- durable state, in the form of scheduler/store/archive.h
  template <typename Archive>
  void serialize(Archive& archive) {
    const size_t workers = tasks_.size();
    archive(tasks_);
    CheckLoaded(archive, [&] { return Check(workers); });
  }
  // Every placed task gets its whole time again, after `rejoin`.
  void Restored(Instant now, absl::Duration rejoin);

 private:
  // Errors: kDataLoss  there are not `workers` tasks, in the order of their ranks.
  absl::Status Check(size_t workers) const;

  const Options options_;
  std::vector<Task> tasks_;  // Ordered by rank.
  std::set<Rank> changed_;   // Placed tasks with something newer.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_WORK_JOB_TASKS_H_
