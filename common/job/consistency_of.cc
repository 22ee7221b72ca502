#include "common/job/consistency_of.h"

#include "absl/strings/str_cat.h"

namespace capstan {

ConsistencyRule ConsistencyOf(const v1::JobSpec& job) {
  return ConsistencyOf(job.consistency(), job.training().has_slots() ? job.training().slots()
                                                                     : job.resources().workers());
}

ConsistencyRule ConsistencyOf(const v1::Consistency& consistency, int32_t slots) {
  const v1::Consistency::Ssp& ssp = consistency.ssp();
  const v1::Consistency::Asp& asp = consistency.asp();
  switch (consistency.mode_case()) {
    case v1::Consistency::kSsp:
      return {.mode = ConsistencyMode::kSsp,
              .slots = slots,
              .staleness_bound = ssp.staleness_bound(),
              .rate_by_staleness = ssp.rate_by_staleness(),
              .delay_compensation = ssp.delay_compensation(),
              .cached_rows = ssp.cached_rows()};
    case v1::Consistency::kAsp:
      return {.mode = ConsistencyMode::kAsp,
              .slots = slots,
              .rate_by_staleness = asp.rate_by_staleness(),
              .delay_compensation = asp.delay_compensation(),
              .read_own_pushes = asp.read_own_pushes(),
              .cached_rows = asp.cached_rows(),
              .cached_iterations = asp.cached_iterations()};
    case v1::Consistency::kBsp:
    case v1::Consistency::MODE_NOT_SET:
      break;
  }
  return {.slots = slots, .backups = consistency.bsp().backups()};
}

const char* NameOf(ConsistencyMode mode) {
  switch (mode) {
    case ConsistencyMode::kSsp:
      return "ssp";
    case ConsistencyMode::kAsp:
      return "asp";
    case ConsistencyMode::kBsp:
      break;
  }
  return "bsp";
}

std::string NameOf(const ConsistencyRule& rule) {
  const char* const mode = NameOf(rule.mode);
  if (rule.mode != ConsistencyMode::kSsp) return mode;
  return absl::StrCat(mode, "(", rule.staleness_bound, ")");
}

}  // namespace capstan
