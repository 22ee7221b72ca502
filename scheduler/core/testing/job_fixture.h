// JobFixture: a job with two servers, driven by a test step by step. The first process of rank r
// has incarnation 10 + r, the next one 20 + r. Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_CORE_TESTING_JOB_FIXTURE_H_
#define CAPSTAN_SCHEDULER_CORE_TESTING_JOB_FIXTURE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/metrics/score_counts.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/job/job_run.h"
#include "scheduler/core/job/views.h"

namespace capstan::scheduler::testing {

struct JobFixture {
  explicit JobFixture(ConsistencyMode mode, int workers = 2, int64_t test_count = 0,
                      Objective objective = Objective::kClasses,
                      std::optional<RestoreFrom> restore = std::nullopt, bool log = false,
                      const DecisionPlan& decide = {}, bool own_pace = false,
                      int64_t ttl_seconds = 0);

  // Begins the job, or begins it anew after a test has changed `plan`.
  void Begin(std::optional<RestoreFrom> restore = std::nullopt);

  // A job whose tasks run programs at their own pace.
  static JobFixture AtOwnPace(int workers = 2, std::optional<RestoreFrom> restore = std::nullopt);

  void Place(int rank);
  static std::string Node(int rank);
  TaskKey Key(int rank) const;
  const Assignment& Of(int rank) const;

  // A server says that it has applied the newest state.
  void Apply(const std::string& server);
  void ApplyAll();
  TaskReport Base(int rank) const;
  absl::Status Send(const TaskReport& report);
  // The shell moves the model to its place, if there is one to be moved.
  void Publish(const absl::Status& status = absl::OkStatus());
  void Hello(int rank);
  // The task reports everything assigned as done.
  void Finish(int rank, double loss = 1.0, int64_t correct = 1, float click_score = 0);
  // One click in ten; the others score 0.
  static ScoreCounts Scores(const Range& positions, float click_score);
  void Exit(int rank, int code);
  void Died(const std::string& node);
  void Start();
  void Advance(absl::Duration step);
  JobView View() const;
  JobPhase phase() const;
  template <typename T>
  std::vector<T> Seen() const {
    std::vector<T> found;
    for (const Event& event : events) {
      if (const T* match = std::get_if<T>(&event)) found.push_back(*match);
    }
    return found;
  }

  JobPlan plan;
  Instant now = Instant::FromOrigin(absl::Seconds(100));
  Events events;
  bool shell_publishes = true;  // After each Send.
  std::unique_ptr<JobRun> run;
  std::vector<int> incarnations = std::vector<int>(8, 0);
};

}  // namespace capstan::scheduler::testing

#endif  // CAPSTAN_SCHEDULER_CORE_TESTING_JOB_FIXTURE_H_
