// Options: everything that a seed decides about a simulated world before it starts.
//
// Swarm testing (Groce et al., ISSTA 2012): a seed switches each kind of fault on or off as a
// whole, so that some worlds have one fault only, at a high rate, and others many.
// Thread safety: values; DrawOptions is a pure function.
#ifndef CAPSTAN_TESTS_SIMULATION_WORLD_OPTIONS_H_
#define CAPSTAN_TESTS_SIMULATION_WORLD_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/simulation/network/sim_network.h"
#include "tests/simulation/world/job_options.h"

namespace capstan::sim {

// Faults of processes and the network, each at a mean interval of virtual time; infinite: never.
struct ChaosOptions {
  LinkFaults link;
  absl::Duration partition = absl::InfiniteDuration();
  absl::Duration clog = absl::InfiniteDuration();
  absl::Duration kill_scheduler = absl::InfiniteDuration();
  absl::Duration kill_server = absl::InfiniteDuration();
  absl::Duration kill_worker = absl::InfiniteDuration();
  absl::Duration kill_task = absl::InfiniteDuration();
  absl::Duration pause_scheduler = absl::InfiniteDuration();
  absl::Duration pause_server = absl::InfiniteDuration();
  absl::Duration pause_worker = absl::InfiniteDuration();
  absl::Duration pause_task = absl::InfiniteDuration();
  absl::Duration kill_primaries = absl::InfiniteDuration();  // One, then its heir.
  absl::Duration kill_all = absl::InfiniteDuration();
  // The exporting task is paused, with its daemon, and the servers die, so that the job goes back.
  absl::Duration strand_exporter = absl::InfiniteDuration();
  // The scheduler lives, and all its links are cut for longer than a lease.
  absl::Duration isolate_scheduler = absl::InfiniteDuration();
  absl::Duration isolation_max = absl::Seconds(40);
  // A primary is cut off together with the reader, once, until another one has taken over.
  absl::Duration strand_reader = absl::InfiniteDuration();
  // Now and then a task is replaced while the scheduler does not hear of the others' progress.
  absl::Duration join_behind = absl::InfiniteDuration();
  // Tasks do not hear where a moment is to be, and die with the scheduler when they are beyond it.
  bool overrun_moment = false;
  // The same, and they die as soon as a server has told one of them of an iteration beyond the
  // moment.
  bool overrun_by_one = false;
  // A primary is cut off together with the reader as its successor is named, so that it does not
  // hear of that.
  bool strand_former_primary = false;
  // A server that takes over from its log is not heard any more, and comes back with its disk as it
  // was when it took over.
  bool lose_successor = false;
  // One link between a worker daemon and a server is dead from then on, also once the world heals.
  absl::Duration kill_link = absl::InfiniteDuration();
  // Actions of users: a server or worker daemon is drained, stopped for good as soon as that is
  // said to be safe, and replaced; one is told to stop, and started again; a checkpoint is asked
  // for; a job is stopped, once.
  absl::Duration drain = absl::InfiniteDuration();
  absl::Duration leave = absl::InfiniteDuration();  // SIGTERM to a server or worker daemon.
  absl::Duration save = absl::InfiniteDuration();
  absl::Duration stop = absl::InfiniteDuration();
  absl::Duration clock_jump = absl::InfiniteDuration();
  absl::Duration clock_jump_max = absl::Seconds(10);
  absl::Duration pause_max = absl::Seconds(5);  // At most 60 s.
  absl::Duration down_max = absl::Seconds(5);   // Longest time from a kill to the restart.
  absl::Duration cut_max = absl::Seconds(5);
  double cut_power = 0;    // Share of killed servers whose unsynced writes are lost or torn.
  double any_sectors = 0;  // Share of those that keep any sectors of unsynced writes, in no order.
  double lose_disk = 0;    // Share of server restarts that find an empty disk,
  double old_disk = 0;     // or instead, in this share of them, the one that it had before.
  // The clock of the scheduler or of a worker daemon freezes, which then runs late. A server's does
  // not, since its right to answer reads rests on its clock.
  absl::Duration freeze_clock = absl::InfiniteDuration();
  double clock_drift = 0;  // At most 0.05: rates lie in [1 - drift, 1 + drift].
  absl::Duration flip_stored_bit = absl::InfiniteDuration();  // A bit of some server's log.
  // A second process of a server's name is started on another host, on a copy of its folder.
  absl::Duration start_twice = absl::InfiniteDuration();
  // The scheduler's store, until the world heals or some seconds have passed: no transaction of it
  // is written, so that the process ends each time.
  absl::Duration break_store = absl::InfiniteDuration();
  // Once after this time the scheduler goes on from a copy of its store that is so old.
  absl::Duration put_back_store = absl::InfiniteDuration();
  absl::Duration copy_age;
  // The disk where checkpoints lie. Stored bits change only where an older checkpoint is whole.
  double checkpoint_fault = 0;  // Probability that an operation fails.
  absl::Duration flip_checkpoint_bit = absl::InfiniteDuration();
  absl::Duration cut_checkpoint_power = absl::InfiniteDuration();
  // All servers are killed while the model is moved to its place.
  bool kill_while_moving = false;
  // A task dies with pushes under way to a server that hears of its death late, and a checkpoint is
  // asked for meanwhile.
  absl::Duration die_behind_fence = absl::InfiniteDuration();
  double slow_sync = 0;   // Share of groups of writes that take up to 5 s.
  double disk_fault = 0;  // Probability that a disk operation fails or lies.

  // Whether a server may come back with a disk that it had before, or a copy of it.
  bool older_disks() const { return old_disk > 0 || start_twice != absl::InfiniteDuration(); }
};

struct Options {
  uint64_t seed = 0;
  int servers = 1;
  int workers = 1;                    // Daemons.
  std::vector<int> capacities;        // Task slots of each worker daemon.
  JobOptions job;                     // The first,
  std::vector<JobOptions> more_jobs;  // and others in the same cluster, by submission.
  int64_t log_segment_bytes = int64_t{64} << 20;
  // A process that is no task follows the first job: SSP, ASP with replicas.
  bool reader = false;
  bool snapshots = false;  // A process that is no task reads snapshots of the first job.
  ChaosOptions chaos;
  absl::Duration chaos_time = absl::Seconds(20);  // Then the world heals,
  absl::Duration heal_time = absl::Minutes(5);    // and a job ends within this time (JobTime).
  absl::Duration move_max;                        // Longest time to move a model to its place.
  bool left_to_task = false;  // The scheduler does not reach it: its writer is to move it.

  // The longest that a job may take to its end in a world that has healed, once all that got their
  // places or were submitted before it have ended: it may have waited for their places.
  absl::Duration JobTime(const JobOptions& each) const {
    absl::Duration work = each.prepare_max + each.evaluations_max() + each.export_max + move_max;
    // The tasks of all daemons but one may be left without work: they miss a server for good.
    if (chaos.kill_link != absl::InfiniteDuration()) work += each.training_max();
    return heal_time + 2 * work;
  }

  std::vector<JobOptions> AllJobs() const {
    std::vector<JobOptions> all = {job};
    all.insert(all.end(), more_jobs.begin(), more_jobs.end());
    return all;
  }
};

Options DrawOptions(uint64_t seed);
std::string Describe(const Options& options);  // Several lines for people.

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_WORLD_OPTIONS_H_
