// Bytes as what a scheduler keeps: a job's record, a point to go on from, an admitted job. They are
// refused, or decoded to what encodes and decodes to the same; a record that a server kept is
// refused, or loaded into a new scheduler's core, whose rows can be loaded again.
#include "scheduler/store/archive.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "scheduler/admission/admitted_codec.h"
#include "scheduler/core/changes.h"
#include "scheduler/core/plan/resume_point.h"
#include "scheduler/core/scheduler_core.h"
#include "scheduler/core/store_write.h"
#include "scheduler/store/job_record.h"
#include "scheduler/store/state_codec.h"
#include "scheduler/store/store.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {
namespace {

using scheduler::AdmittedJobs;
using scheduler::Changes;
using scheduler::JobRecord;
using scheduler::ResumePoint;
using scheduler::SchedulerCore;
using scheduler::StoreRows;
using scheduler::StoreWrite;

void CheckJobRecord(const std::string& bytes) {
  const absl::StatusOr<JobRecord> record = scheduler::DecodeJobRecord(bytes);
  if (!record.ok()) return;
  FUZZ_CHECK(!record->IsNewerThan(*record));
  SchedulerCore core{SchedulerCore::Options()};
  scheduler::DecodeAdmitted(record->rows).status().IgnoreError();
  if (!scheduler::LoadJob(record->rows, record->job, Moment(), core).ok()) return;
  StoreRows written;
  const Changes changes{.jobs = {record->job}, .routings = {record->job}};
  for (const StoreWrite& write : scheduler::EncodeJobs(core, changes, Moment())) {
    written[write.key] = *write.value;
  }
  SchedulerCore again{SchedulerCore::Options()};
  FUZZ_CHECK(scheduler::LoadJob(written, record->job, Moment(), again).ok());
}

void CheckResumePoint(const std::string& bytes) {
  const absl::StatusOr<ResumePoint> point = scheduler::DecodeResumePoint(bytes);
  if (!point.ok()) return;
  const std::string encoded = scheduler::EncodeResumePoint(*point);
  const absl::StatusOr<ResumePoint> again = scheduler::DecodeResumePoint(encoded);
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(scheduler::EncodeResumePoint(*again) == encoded);
}

void CheckAdmitted(const std::string& bytes) {
  const absl::StatusOr<AdmittedJobs> jobs = scheduler::DecodeAdmitted({{"admitted/job-1", bytes}});
  if (!jobs.ok()) return FUZZ_CHECK(absl::IsDataLoss(jobs.status()));
  FUZZ_CHECK(jobs->size() == 1);
  const StoreWrite write = scheduler::EncodeAdmitted(*jobs->begin()->second);
  const absl::StatusOr<AdmittedJobs> again = scheduler::DecodeAdmitted({{write.key, *write.value}});
  FUZZ_CHECK(again.ok() && again->size() == 1);
  FUZZ_CHECK(scheduler::EncodeAdmitted(*again->begin()->second).value == write.value);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const uint8_t what = input.Byte() % 3;
  const std::string bytes(input.Rest());
  if (what == 0) CheckJobRecord(bytes);
  if (what == 1) CheckResumePoint(bytes);
  if (what == 2) CheckAdmitted(bytes);
  return 0;
}

}  // namespace capstan::fuzz
