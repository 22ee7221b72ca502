// ConsistencyRule: when a job's gradients are applied, and what a worker may read meanwhile, as its
// specification says (common/job/spec/consistency_of.h makes it). All roles ask this rule, and not
// the specification.
//
//   BSP  the gradients of an iteration's slots are summed, and applied together; with backups
//        those that come first, and the others are dropped (Chen et al., Revisiting Distributed
//        Synchronous SGD, 2016)
//   SSP  each is applied as it comes; a read lacks no update of an iteration that is more than
//        staleness_bound before the reader's (Ho et al., More Effective Distributed ML via a Stale
//        Synchronous Parallel Parameter Server, NIPS 2013)
//   ASP  each is applied as it comes; reads wait for nobody
//
// Thread safety: values.
#ifndef CAPSTAN_COMMON_TYPES_CONSISTENCY_RULE_H_
#define CAPSTAN_COMMON_TYPES_CONSISTENCY_RULE_H_

#include <cstdint>

namespace capstan {

enum class ConsistencyMode { kBsp, kSsp, kAsp };
constexpr ConsistencyMode LastOf(ConsistencyMode) { return ConsistencyMode::kAsp; }

struct ConsistencyRule {
  ConsistencyMode mode = ConsistencyMode::kBsp;
  int32_t slots = 1;            // BSP: micro-batches an iteration, >= 1.
  int32_t backups = 0;          // BSP: how many of them are not waited for, 0 to slots - 1.
  int32_t staleness_bound = 0;  // SSP: iterations, >= 0.
  // SSP, ASP: corrections of late gradients (server/optimizer/late_gradient.h). Off: false, 0.
  bool rate_by_staleness = false;
  float delay_compensation = 0.0f;  // >= 0.
  bool read_own_pushes = false;     // ASP: parameters are read with this worker's pushes.
  // SSP, ASP: rows of sparse tables that a worker may keep and use again; 0: none.
  int64_t cached_rows = 0;
  int32_t cached_iterations = 0;  // ASP: for so many iterations after the one that pulled a row.

  // True: an iteration is applied as a whole. False: each push is an update of its own.
  bool synchronous() const { return mode == ConsistencyMode::kBsp; }
  // True: a worker may read the parameters of its next batch before its last push is applied.
  bool reads_ahead() const {
    return mode == ConsistencyMode::kSsp   ? staleness_bound > 0
           : mode == ConsistencyMode::kAsp ? !read_own_pushes
                                           : false;
  }

  friend bool operator==(const ConsistencyRule&, const ConsistencyRule&) = default;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(mode, slots, backups, staleness_bound, rate_by_staleness, delay_compensation,
            read_own_pushes, cached_rows, cached_iterations);
  }
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TYPES_CONSISTENCY_RULE_H_
