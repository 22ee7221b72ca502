// SampleLeases: in SSP and ASP every sample of an epoch is leased, and the task that was leased it
// last has trained it with acknowledgement before the epoch ends; nobody else holds it meanwhile,
// and what was reported as done is not leased again.
//
// A scheduler that has restarted may lease again what was reported to its earlier incarnation and
// not yet in its store. Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_CHECKERS_SAMPLE_LEASES_H_
#define CAPSTAN_TESTS_SIMULATION_CHECKERS_SAMPLE_LEASES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/simulation/world/checker.h"
#include "tests/simulation/world/history.h"
#include "tests/simulation/world/job_options.h"

namespace capstan::sim {

class SampleLeases final : public Checker {
 public:
  SampleLeases(const JobOptions& job, int64_t* leased_again)
      : job_(job), leased_again_(leased_again) {}

  void Assigned(const TaskKey& task_key, const scheduler::Assignment& assignment) override;
  void BatchDone(const TaskKey& task_key, const Batch& batch) override;
  void ReportTaken(const scheduler::TaskReport& report) override;
  void Happened(const scheduler::Event& event) override;
  void SchedulerRestarted() override { known_.reported.clear(); }
  void StoreCopied() override { copied_ = known_; }
  void StorePutBack() override;

 private:
  struct Position {
    std::optional<TaskKey> holder;  // The last holder of the lease.
    LeaseId lease;
    bool trained = false;  // The holder has trained it, with acknowledgement.
    // The store was put back to before the lease. The next scheduler may hear of it, or lease the
    // position anew.
    bool forgotten = false;
  };

  void CloseEpoch();

  const JobOptions job_;
  int64_t* const leased_again_;  // Counts.
  struct Known {
    Epoch epoch{-1};
    std::vector<Position> positions;
    std::map<LeaseId, scheduler::SampleLease> leases;
    std::set<int64_t> reported;  // Positions reported as done.
  };
  Known known_;
  Known copied_;  // The state when the scheduler's store was copied.
  History<Known> history_;
  std::set<TaskKey> dead_;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_CHECKERS_SAMPLE_LEASES_H_
