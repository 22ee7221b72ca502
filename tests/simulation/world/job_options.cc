#include "tests/simulation/world/job_options.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace capstan::sim {
namespace {

void DrawRowLifetime(Prng& prng, JobOptions& job) {
  const int64_t rows = job.table_elements[0] / job.sparse_dim;
  RowLifetime& lifetime = job.row_lifetime;
  if (prng.Chance(0.5)) {
    lifetime.admit_after = static_cast<int32_t>(prng.Between(2, 6));
    lifetime.admission_keys = prng.Between(1, 2 * rows);
  }
  if (prng.Chance(0.4)) lifetime.admit_probability = static_cast<float>(0.1 + 0.9 * prng.Unit());
  if (prng.Chance(0.5)) lifetime.evict_after_updates = static_cast<int32_t>(prng.Between(1, 6));
  if (prng.Chance(0.5)) lifetime.rows_max = prng.Between(1, rows);
}

std::string Describe(const RowLifetime& lifetime) {
  if (lifetime == RowLifetime()) return "";
  return absl::StrCat(", admitted after ", lifetime.admit_after, " of ", lifetime.admission_keys,
                      " keys with ", lifetime.admit_probability, ", evicted after ",
                      lifetime.evict_after_updates, " updates, ", lifetime.ttl_seconds,
                      " s or beyond ", lifetime.rows_max);
}

}  // namespace

void DrawJob(Prng& prng, const JobPlaces& places, JobOptions& job) {
  job.mode = static_cast<ConsistencyMode>(prng.Between(0, 2));
  job.staleness_bound = static_cast<int>(prng.Between(0, 3));
  job.workers = static_cast<int>(prng.Between(std::max(1, places.slots / 2), places.slots));
  job.servers = prng.Chance(0.5) ? 0 : static_cast<int>(prng.Between(1, places.servers));
  job.slots = static_cast<int>(prng.Between(1, std::min(8, 2 * job.workers)));
  job.batch_size = prng.Between(1, 4);
  job.epochs = static_cast<int>(prng.Between(1, 3));
  job.train_count = prng.Between(8, 40) * job.batch_size + prng.Between(0, job.batch_size);
  if (job.mode == ConsistencyMode::kBsp) job.train_count = job.train_count * (job.slots + 1) / 2;
  job.test_count = prng.Chance(0.3) ? prng.Between(1, 150) : 0;
  job.table_elements.push_back(prng.Between(1, 160));
  if (job.mode == ConsistencyMode::kBsp && prng.Chance(0.3))
    job.table_elements.push_back(prng.Between(1, 60));
  if (places.servers > 1 && prng.Chance(0.6)) {
    job.replicas = static_cast<int>(prng.Between(1, std::min(2, places.servers - 1)));
    job.servers = 0;
  }
  job.log = prng.Chance(0.3);
  if (prng.Chance(0.4)) job.checkpoint_iterations = prng.Between(2, 20);
  job.optimizer = job.mode == ConsistencyMode::kBsp ? static_cast<int>(prng.Between(0, 3)) : 0;
}

void DrawPace(Prng& prng, absl::Duration time, double longest, JobOptions& job) {
  const int64_t batches = job.epochs * job.train_count / job.batch_size;
  const int at_once =
      job.mode == ConsistencyMode::kBsp ? std::min(job.workers, job.slots) : job.workers;
  const int64_t steps = std::max<int64_t>(1, batches / at_once);
  const absl::Duration mean = time * prng.Unit() * longest / static_cast<double>(steps);
  job.compute_min = mean / 4;
  job.compute_max = std::max(mean * 7 / 4, job.compute_min + absl::Microseconds(1));
}

void DrawSparse(Prng& prng, JobOptions& job) {
  job.sparse_buckets = static_cast<int32_t>(prng.Between(1, 8));
  job.sparse_dim = prng.Between(1, 4);
  job.table_elements[0] = prng.Between(1, 40) * job.sparse_dim;
  if (prng.Chance(0.5)) DrawRowLifetime(prng, job);
  if (prng.Chance(0.5)) job.sparse_memory = 1024 * job.sparse_buckets;  // Some rows in each.
  const bool may_keep = job.mode == ConsistencyMode::kSsp ? job.staleness_bound >= 2
                                                          : job.mode == ConsistencyMode::kAsp;
  if (!may_keep || !prng.Chance(0.7)) return;
  job.cached_rows = prng.Between(1, 2 * job.table_elements[0] / job.sparse_dim);
  job.cached_iterations = static_cast<int>(prng.Between(1, 4));
}

void DrawBackups(Prng prng, JobOptions& job) {
  if (job.mode != ConsistencyMode::kBsp || job.slots < 2 || !prng.Chance(0.2)) return;
  job.backups = static_cast<int>(prng.Between(1, job.slots - 1));
  // With these options the parameters tell which slots are in them.
  job.optimizer = 0;
  job.table_elements.resize(1);
  job.row_lifetime = RowLifetime();
}

// Under BSP the result must not depend on time, as the reference trainer has none. Elsewhere only
// the version of a table is checked whose rows come and go, so rows that stay are left alone.
void DrawTtl(Prng prng, JobOptions& job) {
  const bool may_leave = job.row_lifetime != RowLifetime();
  if (job.mode == ConsistencyMode::kBsp || !may_leave || !prng.Chance(0.3)) return;
  job.row_lifetime.ttl_seconds = prng.Between(1, 6);
}

void DrawPushRoom(Prng prng, JobOptions& job) {
  if (prng.Chance(0.3)) job.push_bytes_max = prng.Between(1, 1024);
}

void DrawOwnPace(Prng prng, JobOptions& job) {
  if (job.mode != ConsistencyMode::kAsp || !prng.Chance(0.3)) return;
  const int64_t batches = job.train_count / job.batch_size;
  job.own_operations = static_cast<int>(std::clamp<int64_t>(batches / job.workers, 4, 16));
  job.epochs = 1;
  job.batch_size = 1;
  job.train_count = job.workers;
  job.cached_rows = 0;
  if (job.checkpoint_iterations > 0) job.checkpoint_iterations = 1;
  for (int64_t more = prng.Between(0, 3); more > 0; --more) {
    job.table_elements.push_back(prng.Between(1, 60));
  }
}

void DrawJobMeans(Prng& prng, JobOptions& job) {
  const int64_t every = prng.Between(1, 4);
  if (prng.Chance(0.75)) {
    job.log = true;
  } else if (!job.log && (job.checkpoint_iterations == 0 || prng.Chance(0.9))) {
    job.checkpoint_iterations = every;
  }
}

std::string Describe(const JobOptions& job) {
  static constexpr const char* kModes[] = {"bsp", "ssp", "asp"};
  return absl::StrCat(
      kModes[static_cast<int>(job.mode)], "(", job.staleness_bound, "), ", job.workers,
      " workers, ", job.servers, " servers, ", job.slots, " slots, ", job.backups,
      " backups, batches of ", job.batch_size, ", ", job.train_count, " + ", job.test_count,
      " samples, ", job.epochs, " epochs, ", job.own_operations,
      " operations at own pace, tables of ", absl::StrJoin(job.table_elements, ", "), " elements",
      job.sparse_buckets > 0
          ? absl::StrCat(" (rows of ", job.sparse_dim, " in ", job.sparse_buckets, " buckets",
                         Describe(job.row_lifetime), ", ", job.sparse_memory, " bytes of memory, ",
                         job.cached_rows, " kept for ", job.cached_iterations, ")")
          : "",
      ", optimizer ", job.optimizer, ", ", job.replicas, " replicas", job.log ? ", log" : "",
      ", checkpoint every ", job.checkpoint_iterations, ", room for pushes ", job.push_bytes_max,
      "; a batch takes ", absl::FormatDuration(job.compute_min), " to ",
      absl::FormatDuration(job.compute_max), ", a preparation up to ",
      absl::FormatDuration(job.prepare_max), ", the export up to ",
      absl::FormatDuration(job.export_max), "; submitted after ",
      absl::FormatDuration(job.submit_after));
}

}  // namespace capstan::sim
