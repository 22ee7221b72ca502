#include "tests/simulation/world/options_stores.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/simulation/network/prng.h"

namespace capstan::sim {
namespace {

constexpr uint64_t kStoreStream = 49;
constexpr uint64_t kCheckpointDiskStream = 42;
constexpr uint64_t kKillWhileMovingStream = 43;
constexpr uint64_t kStrandedExporterStream = 44;
constexpr uint64_t kFenceStream = 45;
constexpr uint64_t kSmallSegmentsStream = 48;
constexpr uint64_t kPutBackStream = 50;
constexpr double kAimed = 0.06;  // Share of the worlds that an aimed fault takes over.

void DrawStore(Prng prng, ChaosOptions& chaos) {
  const absl::Duration interval = prng.Between(absl::Seconds(3), absl::Seconds(15));
  if (prng.Chance(0.1)) chaos.break_store = interval;
}

void DrawCheckpointDisk(Prng prng, Options& options) {
  ChaosOptions& chaos = options.chaos;
  const bool saved =
      options.job.checkpoint_iterations > 0 || chaos.save != absl::InfiniteDuration();
  if (!saved || !prng.Chance(0.3)) return;
  const absl::Duration interval = prng.Between(absl::Milliseconds(500), absl::Seconds(8));
  switch (prng.Between(0, 2)) {
    case 0:
      chaos.checkpoint_fault = 0.05 * prng.Unit() * prng.Unit();
      return;
    case 1:
      chaos.flip_checkpoint_bit = interval;
      return;
    default:
      chaos.cut_checkpoint_power = interval;
  }
}

// A job without a log, whose servers die when a task has written its model.
void DrawKillWhileMoving(Prng prng, Options& options) {
  // A BSP job needs the log, or replicas, to leave a server that a dead link has cut off.
  const bool link_dies = options.chaos.kill_link != absl::InfiniteDuration();
  if (link_dies || !prng.Chance(kAimed)) return;
  options.chaos.kill_while_moving = true;
  options.job.log = false;
  options.left_to_task = false;
  options.move_max = std::max(options.move_max, absl::Seconds(4));
}

// An SSP or ASP job that has to go back to a checkpoint when its servers die, while a task that is
// taken for dead writes its model.
void DrawStrandedExporter(Prng prng, Options& options) {
  JobOptions& job = options.job;
  if (job.mode == ConsistencyMode::kBsp || !prng.Chance(kAimed)) return;
  job.log = false;
  job.checkpoint_iterations = prng.Between(1, 4);
  options.chaos.strand_exporter = prng.Between(absl::Milliseconds(300), absl::Seconds(1));
  options.job.export_max = std::max(options.job.export_max, absl::Seconds(4));
}

// Servers answer a push when they record it, so that a late one shows.
void DrawFence(Prng prng, Options& options) {
  const JobOptions& job = options.job;
  const bool at_once = job.mode != ConsistencyMode::kBsp && !job.log && job.replicas == 0;
  if (!at_once || job.workers < 2 || options.workers < 2 || !prng.Chance(0.6)) return;
  options.chaos.die_behind_fence = prng.Between(absl::Seconds(1), absl::Seconds(5));
}

// So small that they are cleaned again and again, and read back.
void DrawSmallSegments(Prng prng, Options& options) {
  if (!options.job.log || !prng.Chance(0.15)) return;
  options.log_segment_bytes = prng.Between(128, 1024);
  options.chaos.kill_all = prng.Between(absl::Seconds(2), absl::Seconds(8));
}

}  // namespace

void DrawStores(Options& options) {
  const Prng prng(options.seed);
  DrawKillWhileMoving(prng.Fork(kKillWhileMovingStream), options);
  DrawStrandedExporter(prng.Fork(kStrandedExporterStream), options);
  DrawFence(prng.Fork(kFenceStream), options);
  DrawSmallSegments(prng.Fork(kSmallSegmentsStream), options);
  DrawStore(prng.Fork(kStoreStream), options.chaos);
  DrawCheckpointDisk(prng.Fork(kCheckpointDiskStream), options);
}

void DrawPutBack(Options& options) {
  ChaosOptions& chaos = options.chaos;
  Prng prng = Prng(options.seed).Fork(kPutBackStream);
  // The store alone knows that a server's disk is an older one (seed 1230678735).
  if (chaos.older_disks() || !prng.Chance(0.03)) return;
  chaos.put_back_store = prng.Between(absl::Seconds(2), absl::Seconds(20));
  chaos.copy_age = prng.Between(absl::Milliseconds(100), chaos.put_back_store);
}

std::string DescribeStores(const ChaosOptions& chaos) {
  std::string text;
  const auto add = [&text](absl::string_view what, absl::Duration interval) {
    if (interval == absl::InfiniteDuration()) return;
    absl::StrAppend(&text, " ", what, " ", absl::FormatDuration(interval));
  };
  add("break the store", chaos.break_store);
  add("put the store back once, after", chaos.put_back_store);
  if (chaos.copy_age > absl::ZeroDuration()) add("by", chaos.copy_age);
  add("flip a checkpoint's bit", chaos.flip_checkpoint_bit);
  add("cut the checkpoint disk's power", chaos.cut_checkpoint_power);
  add("die behind a fence", chaos.die_behind_fence);
  if (chaos.kill_while_moving) absl::StrAppend(&text, " kill while the model is moved");
  if (chaos.checkpoint_fault > 0) {
    absl::StrAppend(&text, " checkpoint disk faults ", chaos.checkpoint_fault);
  }
  return text;
}

}  // namespace capstan::sim
