#include "scheduler/store/job_record.h"

#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "scheduler/store/schema_version.h"
#include "scheduler/store/state_codec.h"

namespace capstan::scheduler {

bool JobRecord::IsNewerThan(const JobRecord& other) const {
  return std::pair(routing, unix_ms) > std::pair(other.routing, other.unix_ms);
}

std::string EncodeJobRecord(const SchedulerCore& core, const JobId& job, const StoreWrite& admitted,
                            const Moment& moment) {
  const JobView view = core.Job(job, moment.now).value();
  std::vector<std::pair<std::string, std::string>> rows = {{admitted.key, *admitted.value}};
  for (StoreWrite& write : EncodeJobs(core, {.jobs = {job}, .routings = {job}}, moment)) {
    rows.emplace_back(std::move(write.key), *std::move(write.value));
  }
  return EncodeState(moment, [&](auto& archive) {
    archive(kSchemaVersion, kFieldsVersion, job, core.jobs().Find(job)->plan.unique_id,
            (*core.jobs().RoutingOf(job))->generation, absl::ToUnixMillis(moment.wall), view.detail,
            rows);
  });
}

absl::StatusOr<JobRecord> DecodeJobRecord(const std::string& bytes) {
  JobRecord record;
  const absl::Status status = DecodeState(bytes, Moment(), [&record](auto& archive) {
    int64_t schema = 0;
    int64_t fields = 0;
    archive(schema, fields);
    CAPSTAN_RETURN_IF_ERROR(CheckVersions(schema, fields));
    std::vector<std::pair<std::string, std::string>> rows;
    archive(record.job, record.unique_id, record.routing, record.unix_ms, record.stood, rows);
    record.rows.insert(rows.begin(), rows.end());
    return absl::OkStatus();
  });
  if (!status.ok()) return Annotate(status, "the record of where the job stands");
  return record;
}

}  // namespace capstan::scheduler
