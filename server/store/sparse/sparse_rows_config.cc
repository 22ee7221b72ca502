#include "server/store/sparse/sparse_rows_config.h"

#include <algorithm>

#include "common/model/initial_rows.h"
#include "common/model/tables.h"

namespace capstan::server {

SparseRows::Config SparseRowsConfig(const v1::SparseSpec& spec, TableId table, uint64_t seed,
                                    const OptimizerConfig& rule, RowDisks* disks) {
  constexpr int64_t kAdmissionKeysDefault = 1 << 20;
  const int64_t buckets = spec.buckets();
  const int64_t counted = spec.admission_keys() > 0
                              ? spec.admission_keys()
                              : std::min(kAdmissionKeysDefault, kAdmissionKeysMax * buckets);
  const auto part = [&](int64_t of_table) { return std::max<int64_t>(1, of_table / buckets); };
  return {
      .dim = spec.dim(),
      .buckets = spec.buckets(),
      .rule = rule,
      .initializer =
          RowInitializer(spec.initializer(), seed, table, spec.dim(), spec.zero_columns()),
      .admission = {.after = std::max(1, spec.admit_after()),
                    .filter_keys = part(counted),
                    .probability = spec.has_admit_probability() ? spec.admit_probability() : 1.0f,
                    .stream = RowAdmission::StreamOf(seed, table)},
      .eviction = {.after = spec.evict_after_updates(),
                   .rows_max = spec.rows_max() > 0 ? part(spec.rows_max()) : 0,
                   .by_time = spec.ttl_seconds() > 0},
      .memory_bytes = spec.memory_bytes() > 0 ? part(spec.memory_bytes()) : 0,
      .disks = disks};
}

}  // namespace capstan::server
