#include "tests/simulation/world/options.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/random/philox.h"
#include "tests/simulation/network/prng.h"
#include "tests/simulation/world/options_stores.h"

namespace capstan::sim {
namespace {

constexpr uint64_t kOptionsStream = 1;
constexpr uint64_t kStrandingStream = 7;
constexpr uint64_t kMovingStream = 8;
constexpr uint64_t kSectorsStream = 9;
constexpr uint64_t kAimedStream = 10;
constexpr uint64_t kMeansStream = 11;
constexpr uint64_t kWireStream = 12;
constexpr uint64_t kDeadLinkStream = 13;
constexpr uint64_t kUsersStream = 14;
constexpr uint64_t kDisksStream = 16;
constexpr uint64_t kLossStream = 17;
constexpr uint64_t kFrozenStream = 18;
constexpr uint64_t kOldDiskStream = 20;
constexpr uint64_t kTwiceStream = 26;
constexpr uint64_t kLeaveStream = 21;
constexpr uint64_t kSegmentsStream = 22;
constexpr uint64_t kJobsStream = 40;
constexpr uint64_t kInstantsStream = 51;
constexpr uint64_t kSuccessorStream = 53;
constexpr uint64_t kBackupsStream = 54;
constexpr uint64_t kPushRoomStream = 55;
constexpr uint64_t kOwnPaceStream = 59;
constexpr uint64_t kTtlStream = 60;
constexpr double kHeavyLoss = 0.3;
constexpr absl::Duration kLongestBatch = absl::Minutes(4);
constexpr absl::Duration kQuickIteration = absl::Milliseconds(300);
constexpr double kSwitchedOn = 0.4;  // Share of seeds that have a given kind of fault.

// Small clusters are likelier: they cost less and meet the same code.
int DrawCount(Prng& prng, int max) {
  const int64_t bound = prng.Between(1, max);
  return static_cast<int>(prng.Between(1, bound));
}

void DrawLink(Prng& prng, LinkFaults& link) {
  const auto rate = [&prng](double max) {
    return prng.Chance(kSwitchedOn) ? max * prng.Unit() * prng.Unit() : 0.0;
  };
  link.lose = rate(0.1);
  link.delay = rate(0.3);
  link.repeat = rate(0.2);
  link.corrupt = rate(0.05);
  link.reset = rate(0.05);
  link.delay_max = prng.Between(absl::Milliseconds(20), absl::Seconds(2));
  link.latency_max = prng.Between(absl::Microseconds(200), absl::Milliseconds(10));
}

void DrawChaos(Prng& prng, ChaosOptions& chaos) {
  DrawLink(prng, chaos.link);
  const auto interval = [&prng](absl::Duration min, absl::Duration max) {
    const absl::Duration drawn = prng.Between(min, max);
    return prng.Chance(kSwitchedOn) ? drawn : absl::InfiniteDuration();
  };
  chaos.partition = interval(absl::Seconds(3), absl::Seconds(20));
  chaos.clog = interval(absl::Seconds(3), absl::Seconds(20));
  chaos.kill_scheduler = interval(absl::Seconds(8), absl::Seconds(30));
  chaos.kill_server = interval(absl::Seconds(5), absl::Seconds(30));
  chaos.kill_worker = interval(absl::Seconds(4), absl::Seconds(20));
  chaos.kill_task = interval(absl::Seconds(3), absl::Seconds(20));
  chaos.pause_scheduler = interval(absl::Seconds(8), absl::Seconds(30));
  chaos.pause_server = interval(absl::Seconds(5), absl::Seconds(30));
  chaos.pause_worker = interval(absl::Seconds(5), absl::Seconds(30));
  chaos.pause_task = interval(absl::Seconds(5), absl::Seconds(20));
  chaos.kill_primaries = interval(absl::Seconds(6), absl::Seconds(30));
  chaos.kill_all = interval(absl::Seconds(8), absl::Seconds(40));
  chaos.cut_power = prng.Unit();
  chaos.lose_disk = prng.Chance(0.3) ? 0.3 * prng.Unit() : 0;
  chaos.disk_fault = prng.Chance(0.2) ? 0.02 * prng.Unit() : 0;
  chaos.clock_jump = interval(absl::Seconds(5), absl::Seconds(20));
  chaos.clock_jump_max = prng.Between(absl::Milliseconds(100), absl::Seconds(30));
  if (prng.Chance(kSwitchedOn)) chaos.clock_drift = 0.05 * prng.Unit();
  const bool long_times = prng.Chance(0.2);
  const absl::Duration longest = long_times ? absl::Seconds(60) : absl::Seconds(8);
  chaos.pause_max = prng.Between(absl::Milliseconds(500), longest);
  chaos.down_max = prng.Between(absl::Milliseconds(500), longest);
  chaos.cut_max = prng.Between(absl::Milliseconds(500), longest);
}

constexpr int kLongWorkersMax = 3;

// Seldom longer than a task may stand still, and never of many tasks, which all report meanwhile.
absl::Duration DrawLongWork(Prng& prng, int workers) {
  if (prng.Chance(0.5)) return absl::ZeroDuration();
  const bool is_long = prng.Chance(0.1) && workers <= kLongWorkersMax;
  return is_long ? absl::Minutes(8) : prng.Between(absl::Milliseconds(10), absl::Seconds(5));
}

// Draws for a job that can go back, with an export long enough to be hit.
void DrawStranding(Prng prng, Options& options) {
  if (options.job.checkpoint_iterations == 0 || !prng.Chance(kSwitchedOn)) return;
  options.chaos.strand_exporter = prng.Between(absl::Milliseconds(300), absl::Seconds(2));
  options.job.export_max = std::max(options.job.export_max, absl::Seconds(4));
}

// Most jobs have the means to survive what is done to them, so that most failures are the system's:
// a log on disks that keep what was synced, or a checkpoint to go back to.
void DrawMeans(Prng prng, Options& options) {
  if (prng.Chance(0.03)) return;
  DrawJobMeans(prng, options.job);
  if (prng.Chance(0.9)) options.chaos.lose_disk = 0;
  if (prng.Chance(0.8)) options.chaos.disk_fault = 0;
}

// Faults that are aimed at a moment, which the others meet too seldom.
void DrawAimed(Prng prng, Options& options) {
  ChaosOptions& chaos = options.chaos;
  const JobOptions& job = options.job;
  if (prng.Chance(0.15)) {
    chaos.isolate_scheduler = prng.Between(absl::Seconds(4), absl::Seconds(20));
  }
  const absl::Duration early = prng.Between(absl::Seconds(1), absl::Seconds(8));
  if (prng.Chance(0.5) && options.reader && options.workers > 1) chaos.strand_reader = early;
  chaos.overrun_moment = prng.Chance(0.3) && options.snapshots && job.mode == ConsistencyMode::kBsp;
  const absl::Duration often = prng.Between(absl::Seconds(3), absl::Seconds(6));
  const bool keeps_rows = job.mode == ConsistencyMode::kSsp && job.cached_rows > 0;
  if (prng.Chance(0.7) && keeps_rows && options.workers > 1) chaos.join_behind = often;
}

// Faults that are aimed at one instant, which random times miss almost always.
void DrawInstants(Prng prng, Options& options) {
  ChaosOptions& chaos = options.chaos;
  const bool moments = options.snapshots && options.job.mode == ConsistencyMode::kBsp;
  chaos.overrun_by_one = prng.Chance(0.25) && moments;
  if (chaos.overrun_by_one) {
    // Tasks come beyond a moment while the scheduler still takes them for alive, and their
    // successors are there before it moves the moment on.
    JobOptions& job = options.job;
    const int batches = (job.slots + job.workers - 1) / job.workers;
    job.compute_max = std::min(job.compute_max, kQuickIteration / batches);
    job.compute_min = std::min(job.compute_min, job.compute_max / 2);
    job.prepare_max = absl::ZeroDuration();
  }
  const absl::Duration often = prng.Between(absl::Seconds(2), absl::Seconds(5));
  chaos.strand_former_primary = prng.Chance(0.25) && options.reader && options.workers > 1;
  // Shards leave servers that live.
  if (chaos.strand_former_primary) chaos.leave = std::min(chaos.leave, often);
}

void DrawWire(Prng prng, LinkFaults& link) {
  if (prng.Chance(kSwitchedOn)) link.flip = 0.05 * prng.Unit() * prng.Unit();
  if (prng.Chance(kSwitchedOn)) link.transport_status = prng.Unit();
}

// Its shards may leave a server in the middle of an iteration.
bool MayLeaveServer(const JobOptions& job) {
  return job.mode != ConsistencyMode::kBsp || job.replicas > 0 || job.log;
}

// There is another worker daemon, or another server whose disk does not fail.
void DrawDeadLink(Prng prng, Options& options) {
  const bool others =
      options.servers > 1 && options.chaos.disk_fault == 0 && MayLeaveServer(options.job);
  if ((options.workers == 1 && !others) || !prng.Chance(0.15)) return;
  options.chaos.kill_link = prng.Between(absl::ZeroDuration(), absl::Seconds(10));
}

void DrawUsers(Prng prng, ChaosOptions& chaos) {
  const auto interval = [&prng](double share, absl::Duration min, absl::Duration max) {
    const absl::Duration drawn = prng.Between(min, max);
    return prng.Chance(share) ? drawn : absl::InfiniteDuration();
  };
  chaos.drain = interval(0.3, absl::Seconds(2), absl::Seconds(10));
  chaos.save = interval(0.2, absl::Milliseconds(300), absl::Seconds(5));
  chaos.stop = interval(0.02, absl::Milliseconds(1), absl::Seconds(20));
}

void DrawLeave(Prng prng, ChaosOptions& chaos) {
  const absl::Duration interval = prng.Between(absl::Seconds(2), absl::Seconds(10));
  if (prng.Chance(0.25)) chaos.leave = interval;
}

void DrawDisks(Prng prng, Options& options) {
  ChaosOptions& chaos = options.chaos;
  const absl::Duration interval = prng.Between(absl::Seconds(2), absl::Seconds(20));
  // The job may need the disk of the server that its one worker still reaches (seed 3970785317).
  const bool one_way = options.workers == 1 && chaos.kill_link != absl::InfiniteDuration();
  if (prng.Chance(0.07) && !one_way) {
    chaos.flip_stored_bit = interval;
    chaos.cut_power =
        0;  // A record that was synced last and rots before a power cut is taken for torn.
  }
  if (prng.Chance(0.15)) chaos.slow_sync = 0.2 * prng.Unit();
}

// Servers change their disks often, for one that they had before.
void DrawOldDisk(Prng prng, Options& options) {
  ChaosOptions& chaos = options.chaos;
  if (!options.job.log || options.job.replicas == 0 || !prng.Chance(0.1)) return;
  chaos.lose_disk = 0.5;
  chaos.old_disk = 0.8;
  chaos.kill_server = prng.Between(absl::Milliseconds(1500), absl::Seconds(4));
}

// A server is started twice. If the first is not heard just then, the second has its name, and each
// knows what the other does not.
void DrawTwice(Prng prng, Options& options) {
  const bool both = options.job.log && options.job.replicas > 0;
  if (!both || !prng.Chance(0.1)) return;
  options.chaos.start_twice = prng.Between(absl::Seconds(2), absl::Seconds(10));
}

// A network that loses almost every third message, in some worlds for minutes.
void DrawHeavyLoss(Prng prng, Options& options) {
  if (!prng.Chance(0.06)) return;
  options.chaos.link.lose = kHeavyLoss;
  if (!prng.Chance(0.3)) return;
  const absl::Duration longer = prng.Between(absl::Seconds(40), absl::Minutes(3));
  const double times = absl::FDivDuration(longer, options.chaos_time);
  options.chaos_time = longer;
  // A batch is shorter than a task may stand still.
  options.job.compute_max = std::min(options.job.compute_max * times, kLongestBatch);
  options.job.compute_min = std::min(options.job.compute_min * times, options.job.compute_max);
  // The job may have to begin anew, and one batch takes long.
  options.heal_time += 3 * longer + 8 * options.job.compute_max;
}

constexpr double kSeveralJobs = 1.0 / 3;  // Share of the worlds.
constexpr int kMoreWorkersMax = 4;        // Workers of a job that is not the first.

// A job that has the means to survive what is done to this world, as the first has mostly.
JobOptions DrawAnother(Prng& prng, const Options& options, int slots) {
  JobOptions job;
  job.number = 2 + static_cast<int>(options.more_jobs.size());
  job.seed = MixKey(options.seed, static_cast<uint64_t>(job.number));
  DrawJob(prng, {.servers = options.servers, .slots = std::min(slots, kMoreWorkersMax)}, job);
  DrawPace(prng, options.chaos_time, 1, job);
  if (prng.Chance(0.35)) DrawSparse(prng, job);
  if (prng.Chance(0.5)) {
    job.submit_after = prng.Between(absl::ZeroDuration(), options.chaos_time * 2 / 3);
  }
  job.prepare_max = DrawLongWork(prng, kLongWorkersMax + 1);
  job.export_max = DrawLongWork(prng, kLongWorkersMax + 1);
  if (!prng.Chance(0.03)) DrawJobMeans(prng, job);
  const bool both = job.log && job.replicas > 0;
  if (options.chaos.older_disks() && !both && job.checkpoint_iterations == 0) {
    job.checkpoint_iterations = 2;
  }
  if (options.chaos.kill_link != absl::InfiniteDuration() && !MayLeaveServer(job)) job.log = true;
  return job;
}

// Two or three jobs share the cluster. In most of these worlds there are places for all at once; in
// the others some wait for the end of another, unless they are small.
void DrawMoreJobs(Prng prng, Options& options) {
  if (!prng.Chance(kSeveralJobs)) return;
  const int slots = std::accumulate(options.capacities.begin(), options.capacities.end(), 0);
  const int more = prng.Chance(0.35) ? 2 : 1;
  const bool places = prng.Chance(0.65);
  for (int i = 0; i < more; ++i) {
    const JobOptions job = DrawAnother(prng, options, slots);
    for (int worker = 0; places && worker < job.workers; ++worker) {
      ++options.capacities[static_cast<size_t>(prng.Between(0, options.workers - 1))];
    }
    options.more_jobs.push_back(job);
  }
  const absl::Duration stop = prng.Between(absl::Milliseconds(1), absl::Seconds(20));
  if (prng.Chance(0.09)) options.chaos.stop = stop;
}

// If there are replicas or other jobs, the copy of the disk would lack more than what the successor
// acknowledges unheard. The scheduler may come to know of the log after all, and refuse the disk:
// the job then needs a checkpoint.
void DrawLostSuccessor(Prng prng, Options& options) {
  ChaosOptions& chaos = options.chaos;
  const absl::Duration often = prng.Between(absl::Seconds(2), absl::Seconds(6));
  const bool alone = options.more_jobs.empty() && options.job.replicas == 0;
  chaos.lose_successor = prng.Chance(0.25) && options.job.log && alone;
  if (!chaos.lose_successor) return;
  chaos.kill_server = std::min(chaos.kill_server, often);
  chaos.old_disk = 1;
  if (options.job.checkpoint_iterations == 0) options.job.checkpoint_iterations = 2;
}

void DrawOwnPaces(uint64_t seed, Options& options) {
  DrawOwnPace(Prng(seed).Fork(kOwnPaceStream), options.job);
  for (JobOptions& more : options.more_jobs) {
    DrawOwnPace(Prng(more.seed).Fork(kOwnPaceStream), more);
  }
}

}  // namespace

Options DrawOptions(uint64_t seed) {
  Prng prng = Prng(seed).Fork(kOptionsStream);
  Options options;
  options.seed = seed;
  options.servers = DrawCount(prng, 8);
  options.workers = DrawCount(prng, 16);
  for (int i = 0; i < options.workers; ++i) {
    options.capacities.push_back(static_cast<int>(prng.Between(1, options.workers > 4 ? 1 : 3)));
  }
  options.job.seed = seed;
  const int slots = std::accumulate(options.capacities.begin(), options.capacities.end(), 0);
  DrawJob(prng, {.servers = options.servers, .slots = slots}, options.job);
  DrawChaos(prng, options.chaos);
  options.chaos_time = prng.Between(absl::Seconds(5), absl::Seconds(30));
  DrawPace(prng, options.chaos_time, 1.5, options.job);
  const JobOptions& job = options.job;
  options.reader = job.mode != ConsistencyMode::kBsp && job.replicas > 0 && prng.Chance(0.8);
  if (prng.Chance(0.35)) DrawSparse(prng, options.job);
  options.snapshots = prng.Chance(options.job.sparse_buckets > 0 ? 0.6 : 0.2);
  options.job.prepare_max = DrawLongWork(prng, job.workers);
  options.job.export_max = DrawLongWork(prng, 1);
  DrawStranding(Prng(seed).Fork(kStrandingStream), options);
  DrawWire(Prng(seed).Fork(kWireStream), options.chaos.link);
  Prng moving = Prng(seed).Fork(kMovingStream);
  if (moving.Chance(0.3)) {
    options.move_max = moving.Between(absl::Milliseconds(100), absl::Seconds(8));
  }
  options.left_to_task = moving.Chance(0.25);
  Prng sectors = Prng(seed).Fork(kSectorsStream);
  if (sectors.Chance(0.6)) options.chaos.any_sectors = 0.5 + 0.5 * sectors.Unit();
  DrawMeans(Prng(seed).Fork(kMeansStream), options);
  DrawAimed(Prng(seed).Fork(kAimedStream), options);
  DrawDeadLink(Prng(seed).Fork(kDeadLinkStream), options);
  DrawUsers(Prng(seed).Fork(kUsersStream), options.chaos);
  DrawDisks(Prng(seed).Fork(kDisksStream), options);
  DrawLeave(Prng(seed).Fork(kLeaveStream), options.chaos);
  DrawHeavyLoss(Prng(seed).Fork(kLossStream), options);
  DrawOldDisk(Prng(seed).Fork(kOldDiskStream), options);
  DrawTwice(Prng(seed).Fork(kTwiceStream), options);
  Prng segments = Prng(seed).Fork(kSegmentsStream);
  if (segments.Chance(0.5)) options.log_segment_bytes = segments.Between(1024, 16 * 1024);
  Prng frozen = Prng(seed).Fork(kFrozenStream);
  if (frozen.Chance(0.2)) {
    options.chaos.freeze_clock = frozen.Between(absl::Seconds(3), absl::Seconds(15));
  }
  DrawStores(options);
  DrawInstants(Prng(seed).Fork(kInstantsStream), options);
  DrawMoreJobs(Prng(seed).Fork(kJobsStream), options);
  DrawLostSuccessor(Prng(seed).Fork(kSuccessorStream), options);
  DrawBackups(Prng(seed).Fork(kBackupsStream), options.job);
  DrawPushRoom(Prng(seed).Fork(kPushRoomStream), options.job);
  DrawTtl(Prng(seed).Fork(kTtlStream), options.job);
  for (JobOptions& more : options.more_jobs) {
    DrawBackups(Prng(more.seed).Fork(kBackupsStream), more);
    DrawPushRoom(Prng(more.seed).Fork(kPushRoomStream), more);
    DrawTtl(Prng(more.seed).Fork(kTtlStream), more);
  }
  DrawOwnPaces(seed, options);
  DrawPutBack(options);
  return options;
}

std::string Describe(const Options& options) {
  const ChaosOptions& chaos = options.chaos;
  std::string text =
      absl::StrCat("seed ", options.seed, ": ", options.servers, " servers, ", options.workers,
                   " worker daemons with ", absl::StrJoin(options.capacities, "+"), " task slots");
  for (const JobOptions& job : options.AllJobs()) {
    absl::StrAppend(&text, "\n  job ", job.number, ": ", Describe(job));
  }
  absl::StrAppend(&text, "\n  logs in segments of ", options.log_segment_bytes,
                  options.reader ? ", a reader" : "",
                  options.snapshots ? ", a reader of snapshots" : "", "\n  messages: lose ",
                  chaos.link.lose, ", delay ", chaos.link.delay, " by up to ",
                  absl::FormatDuration(chaos.link.delay_max), ", repeat ", chaos.link.repeat,
                  ", corrupt ", chaos.link.corrupt, ", reset ", chaos.link.reset, "\n  every:");
  const auto add = [&text](absl::string_view what, absl::Duration interval) {
    if (interval == absl::InfiniteDuration()) return;
    absl::StrAppend(&text, " ", what, " ", absl::FormatDuration(interval));
  };
  add("partition", chaos.partition);
  add("clog", chaos.clog);
  add("kill scheduler", chaos.kill_scheduler);
  add("kill server", chaos.kill_server);
  add("kill worker", chaos.kill_worker);
  add("kill task", chaos.kill_task);
  add("kill primaries", chaos.kill_primaries);
  add("kill all", chaos.kill_all);
  add("pause scheduler", chaos.pause_scheduler);
  add("pause server", chaos.pause_server);
  add("pause worker", chaos.pause_worker);
  add("pause task", chaos.pause_task);
  add("strand exporter", chaos.strand_exporter);
  add("clock jump", chaos.clock_jump);
  add("isolate scheduler once, after", chaos.isolate_scheduler);
  add("strand reader once, after", chaos.strand_reader);
  add("join behind", chaos.join_behind);
  add("kill a link once, after", chaos.kill_link);
  add("freeze a clock", chaos.freeze_clock);
  add("flip a stored bit", chaos.flip_stored_bit);
  add("start a server twice", chaos.start_twice);
  add("drain", chaos.drain);
  add("leave", chaos.leave);
  add("save", chaos.save);
  add("stop a job, after", chaos.stop);
  if (chaos.overrun_moment) absl::StrAppend(&text, " overrun a moment");
  if (chaos.overrun_by_one) absl::StrAppend(&text, " overrun a moment by one");
  if (chaos.strand_former_primary) absl::StrAppend(&text, " strand a former primary");
  if (chaos.lose_successor) absl::StrAppend(&text, " lose a successor");
  absl::StrAppend(&text, DescribeStores(chaos));
  absl::StrAppend(
      &text, "\n  pauses up to ", absl::FormatDuration(chaos.pause_max), ", down up to ",
      absl::FormatDuration(chaos.down_max), ", cuts up to ", absl::FormatDuration(chaos.cut_max),
      ", drift ", chaos.clock_drift, ", cut power ", chaos.cut_power, ", of them in sectors ",
      chaos.any_sectors, ", lost disks ", chaos.lose_disk, ", of them for an older one ",
      chaos.old_disk, ", disk faults ", chaos.disk_fault, ", slow syncs ", chaos.slow_sync,
      "\n  chaos for ", absl::FormatDuration(options.chaos_time), ", moving a model up to ",
      absl::FormatDuration(options.move_max), options.left_to_task ? " by its writer" : "");
  return text;
}

}  // namespace capstan::sim
