#include "scheduler/cli/operations/spec_changes.h"

#include <utility>

#include "common/job/parse/job_file.h"
#include "common/job/spec/consistency_of.h"
#include "common/job/validate/validate.h"
#include "common/status/status_macros.h"

namespace capstan::cli {

absl::StatusOr<v1::JobSpec> ChangedJob(const std::string& name, v1::JobSpec spec,
                                       const SpecChanges& changes) {
  if (changes.servers.has_value()) spec.mutable_resources()->set_servers(*changes.servers);
  if (changes.workers.has_value()) spec.mutable_resources()->set_workers(*changes.workers);
  if (!changes.output.empty()) spec.mutable_output()->set_directory(changes.output);
  // Slots are set again only under BSP. With them the validation would report the slots, not the
  // change of the mode, which the scheduler refuses.
  std::optional<int> slots;
  if (spec.training().has_slots()) {
    slots = spec.training().slots();
    spec.mutable_training()->clear_slots();
  }
  JobFile file = JobFile::OfSpec(name, std::move(spec));
  for (const std::string& assignment : changes.set) {
    CAPSTAN_RETURN_IF_ERROR(file.Set(assignment));
  }
  v1::JobSpec changed = file.spec();
  const bool bsp = ConsistencyOf(changed).synchronous();
  if (slots.has_value() && bsp && !changed.training().has_slots()) {
    changed.mutable_training()->set_slots(*slots);
  }
  CAPSTAN_RETURN_IF_ERROR(file.Refusal(ValidateJob(changed)));
  return changed;
}

}  // namespace capstan::cli
