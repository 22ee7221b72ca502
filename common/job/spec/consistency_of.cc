#include "common/job/spec/consistency_of.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/job/spec/program_tables.h"

namespace capstan {
namespace {

constexpr int64_t kCachedRowsMax = int64_t{1} << 30;
constexpr int kCachedIterationsMax = 1000;

// Returns whether the job asks for a cache of rows, and may have one.
bool ValidateCachedRows(const v1::JobSpec& spec, int64_t rows, FieldChecker check) {
  if (!check.IntegerBetween("cached_rows", rows, 0, kCachedRowsMax, Presence::kExplicit)) {
    return false;
  }
  if (rows == 0 || spec.model().has_sparse()) return rows > 0;
  check.Wrong("cached_rows", absl::StrCat(rows), "nothing: only models of examples have rows");
  return false;
}

// `Mode` is Ssp or Asp.
template <typename Mode>
void ValidateCorrections(const v1::JobSpec& spec, const Mode& mode, FieldChecker check) {
  const float lambda = mode.delay_compensation();
  check.Real("delay_compensation", lambda, AtLeast(0.0), Presence::kExplicit);
  if (HasRows(spec)) {
    constexpr const char* kExpected = "nothing: late gradients of rows are not corrected";
    if (mode.rate_by_staleness()) check.Wrong("rate_by_staleness", "true", kExpected);
    if (lambda > 0.0f) check.Wrong("delay_compensation", absl::StrCat(lambda), kExpected);
    return;
  }
  const v1::Optimizer& optimizer = spec.optimizer();
  if (!mode.rate_by_staleness() || optimizer.has_sgd() || optimizer.has_momentum() ||
      optimizer.has_nesterov()) {
    return;
  }
  check.Wrong("rate_by_staleness", "true",
              "sgd, momentum or nesterov in optimizer: the others divide by the gradient's size");
}

void ValidateBsp(const v1::JobSpec& spec, FieldChecker check) {
  const ConsistencyRule rule = ConsistencyOf(spec);
  check.IntegerBetween("backups", rule.backups, 0, std::max(0, rule.slots - 1),
                       Presence::kExplicit);
}

void ValidateSsp(const v1::JobSpec& spec, FieldChecker check) {
  const v1::Consistency::Ssp& ssp = spec.consistency().ssp();
  ValidateCorrections(spec, ssp, check);
  check.IntegerAtLeast("staleness_bound", ssp.staleness_bound(), 0, Presence::kExplicit);
  if (!ValidateCachedRows(spec, ssp.cached_rows(), check) || ssp.staleness_bound() >= 2) return;
  check.Wrong("cached_rows", absl::StrCat(ssp.cached_rows()),
              absl::StrCat("nothing: with staleness_bound ", ssp.staleness_bound(),
                           " no row may be used twice, at least 2 is needed"));
}

void ValidateAsp(const v1::JobSpec& spec, FieldChecker check) {
  const v1::Consistency::Asp& asp = spec.consistency().asp();
  ValidateCorrections(spec, asp, check);
  const bool caches = ValidateCachedRows(spec, asp.cached_rows(), check);
  if (caches && asp.read_own_pushes()) {
    check.Wrong("cached_rows", absl::StrCat(asp.cached_rows()),
                "nothing with read_own_pushes: own pushes are missing in rows that were kept");
  }
  if (caches) {
    check.IntegerBetween("cached_iterations", asp.cached_iterations(), 1, kCachedIterationsMax,
                         Presence::kImplicit);
  } else if (asp.cached_rows() == 0 && asp.cached_iterations() != 0) {
    check.Wrong("cached_iterations", absl::StrCat(asp.cached_iterations()),
                "nothing without cached_rows");
  }
}

}  // namespace

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

void ValidateConsistency(const v1::JobSpec& spec, FieldChecker check) {
  ValidateBsp(spec, check.In("bsp"));
  ValidateSsp(spec, check.In("ssp"));
  ValidateAsp(spec, check.In("asp"));
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
