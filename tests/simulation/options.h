// Options: everything that a seed decides about a simulated world before it starts.
//
// Swarm testing (Groce et al., ISSTA 2012): a seed switches each kind of fault on or off as a
// whole, so that some worlds have one fault only, at a high rate, and others many.
// Thread safety: values; DrawOptions is a pure function.
#ifndef CAPSTAN_TESTS_SIMULATION_OPTIONS_H_
#define CAPSTAN_TESTS_SIMULATION_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/simulation/sim_network.h"

namespace capstan::sim {

enum class Mode { kBsp, kSsp, kAsp };

// What is done to the processes and the network, each at a mean interval of virtual time; infinite:
// never.
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
  // Whoever exports is paused, with its daemon, and the servers die, so that the job goes back.
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
  // One link between a worker daemon and a server is dead from then on, also once the world heals.
  absl::Duration kill_link = absl::InfiniteDuration();
  // What users do: a server or worker daemon is drained, stopped for good as soon as that is said
  // to be safe, and replaced; one is told to stop, and started again; a checkpoint is asked for;
  // the job is stopped, once.
  absl::Duration drain = absl::InfiniteDuration();
  absl::Duration leave = absl::InfiniteDuration();  // SIGTERM to a server or worker daemon.
  absl::Duration save = absl::InfiniteDuration();
  absl::Duration stop = absl::InfiniteDuration();
  absl::Duration clock_jump = absl::InfiniteDuration();
  absl::Duration clock_jump_max = absl::Seconds(10);
  absl::Duration pause_max = absl::Seconds(5);  // At most 60 s.
  absl::Duration down_max = absl::Seconds(5);   // From a kill to the restart.
  absl::Duration cut_max = absl::Seconds(5);
  double cut_power = 0;    // Share of killed servers whose unsynced writes are lost or torn.
  double any_sectors = 0;  // Share of those that keep any sectors of unsynced writes, in no order.
  double lose_disk = 0;    // Share of server restarts that find an empty disk,
  double old_disk = 0;     // or instead, in this share of them, the one that it had before.
  // Of the scheduler or a worker daemon, which then runs late. A server's right to answer reads
  // rests on its clock.
  absl::Duration freeze_clock = absl::InfiniteDuration();
  double clock_drift = 0;  // At most 0.05: rates lie in [1 - drift, 1 + drift].
  absl::Duration flip_stored_bit = absl::InfiniteDuration();  // Of some server's log.
  double slow_sync = 0;   // Share of groups of writes that take up to 5 s.
  double disk_fault = 0;  // Probability that a disk operation fails or lies.
};

// When keys of the sparse table get rows and lose them: as SparseSpec says, whose default it is.
struct RowLife {
  int32_t admit_after = 0;
  int64_t admission_keys = 0;
  float admit_probability = 1.0f;
  int32_t evict_after_updates = 0;
  int64_t rows_max = 0;
  friend bool operator==(const RowLife&, const RowLife&) = default;
};

struct JobOptions {
  Mode mode = Mode::kBsp;
  int staleness_bound = 0;
  int workers = 1;
  int servers = 0;  // 0: all.
  int slots = 1;
  int64_t batch_size = 1;
  int64_t train_count = 1;
  int64_t test_count = 0;
  int epochs = 1;
  std::vector<int64_t> table_elements;  // Table 1, if there is one, holds moving averages.
  // Above 0: table 0 is sparse, with so many buckets; its elements are those of all rows.
  int32_t sparse_buckets = 0;
  int64_t sparse_dim = 1;
  RowLife row_life;
  int64_t sparse_memory = 0;  // Bytes; 0: no limit.
  // SSP, ASP: rows that a task keeps, and under ASP in how many more iterations it may use one.
  int64_t cached_rows = 0;
  int cached_iterations = 0;
  int optimizer = 0;  // BSP: 0 SGD, 1 momentum, 2 Adam, 3 Adagrad.
  int replicas = 0;
  bool log = false;
  int64_t checkpoint_iterations = 0;
  int checkpoints_kept = 2;
  int max_restarts = 1000;
  absl::Duration worker_wait = absl::Minutes(10);
  absl::Duration server_wait = absl::Minutes(2);

  // Tasks pull the rows of the next batch while one is computed (worker/task/task_options.h).
  bool early_pulls() const {
    return sparse_buckets > 0 &&
           (mode == Mode::kAsp || (mode == Mode::kSsp && staleness_bound > 0));
  }
};

struct Options {
  uint64_t seed = 0;
  int servers = 1;
  int workers = 1;              // Daemons.
  std::vector<int> capacities;  // Of each worker daemon.
  JobOptions job;
  int64_t log_segment_bytes = int64_t{64} << 20;
  bool reader = false;     // A process that is no task follows the job: SSP, ASP with replicas.
  bool snapshots = false;  // A process that is no task reads snapshots of the job.
  ChaosOptions chaos;
  absl::Duration chaos_time = absl::Seconds(20);       // Then the world heals,
  absl::Duration heal_time = absl::Minutes(5);         // and the job ends within this time,
                                                       // beside that of preparations, evaluations,
                                                       // the export and the model's way.
  absl::Duration compute_min = absl::Milliseconds(5);  // Of a batch.
  absl::Duration compute_max = absl::Milliseconds(50);
  absl::Duration prepare_max;  // From a task's first report to its readiness for work.
  absl::Duration export_max;   // Of the writing of the model.
  absl::Duration move_max;     // Of its way to its place.
  bool left_to_task = false;   // The scheduler does not reach it: its writer is to move it.

  // Of all evaluations, if one task does them batch by batch.
  absl::Duration evaluations_max() const {
    const int64_t batches = (job.test_count + job.batch_size - 1) / job.batch_size;
    return compute_max * static_cast<double>(batches * job.epochs);
  }
};

Options DrawOptions(uint64_t seed);
std::string Describe(const Options& options);  // For people, on several lines.

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_OPTIONS_H_
