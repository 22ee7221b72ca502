#include "scheduler/store/state_codec.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/planted/planted_bug.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "scheduler/core/core_archive.h"
#include "scheduler/store/schema_version.h"

namespace capstan::scheduler {
namespace {

// The schema version of job_state in checkpoints, which other states do not share: most changes of
// other states leave older checkpoints readable.
constexpr uint32_t kResumeFormat = 4;
constexpr absl::string_view kNodesKey = "nodes";
constexpr absl::string_view kRevisionsKey = "revisions";
constexpr absl::string_view kJobPrefix = "job/";
constexpr absl::string_view kRoutingPrefix = "routing/";

std::string JobKey(const JobId& job) { return absl::StrCat(kJobPrefix, job); }
std::string RoutingKey(const JobId& job) { return absl::StrCat(kRoutingPrefix, job); }

absl::Status LoadRow(const StoreRows::value_type& row, const Moment& moment, const StoreRows& rows,
                     SchedulerCore& core) {
  const auto& [key, bytes] = row;
  if (key == kNodesKey) {
    return DecodeState(bytes, moment, [&core](auto& archive) {
      CoreArchive(&core).SerializeNodes(archive);
      return absl::OkStatus();
    });
  }
  if (key == kRevisionsKey) {
    return DecodeState(bytes, moment, [&core](auto& archive) {
      archive(CoreArchive(&core).revisions());
      return absl::OkStatus();
    });
  }
  if (!absl::StartsWith(key, kJobPrefix)) return absl::OkStatus();
  std::shared_ptr<Routing> routing;
  const JobId job = key.substr(kJobPrefix.size());
  if (const auto table = rows.find(RoutingKey(job)); table != rows.end()) {
    routing = std::make_shared<Routing>();
    const absl::Status status = DecodeState(table->second, moment, [&routing](auto& archive) {
      archive(*routing);
      return absl::OkStatus();
    });
    if (!status.ok()) return Annotate(status, table->first);
  }
  return DecodeState(bytes, moment, [&](auto& archive) {
    return CoreArchive(&core).LoadJob(job, std::move(routing), moment.now, archive);
  });
}

absl::StatusOr<StoreRows::const_iterator> RowOf(const StoreRows& rows, const JobId& job) {
  const auto row = rows.find(JobKey(job));
  if (row != rows.end()) return row;
  return absl::DataLossError(absl::StrCat("there is no row of ", job));
}

// An output archive does not change its arguments.
CoreArchive SourceOf(const SchedulerCore& core) {
  return CoreArchive(const_cast<SchedulerCore*>(&core));
}

}  // namespace

std::vector<StoreWrite> EncodeChanges(const SchedulerCore& core, const Changes& changes,
                                      const Moment& moment) {
  std::vector<StoreWrite> writes;
  CoreArchive source = SourceOf(core);
  if (!changes.empty()) {
    writes.push_back({std::string(kRevisionsKey), EncodeState(moment, [&source](auto& archive) {
                        archive(source.revisions());
                      })});
  }
  if (changes.nodes) {
    writes.push_back({std::string(kNodesKey), EncodeState(moment, [&source](auto& archive) {
                        source.SerializeNodes(archive);
                      })});
  }
  for (StoreWrite& write : EncodeJobs(core, changes, moment)) writes.push_back(std::move(write));
  return writes;
}

std::vector<StoreWrite> EncodeJobs(const SchedulerCore& core, const Changes& changes,
                                   const Moment& moment) {
  std::vector<StoreWrite> writes;
  for (const JobId& job : changes.routings) {
    const JobRun* run = core.jobs().RunOf(job);
    if (run == nullptr) continue;
    writes.push_back({RoutingKey(job), EncodeState(moment, [run](auto& archive) {
                        archive(*run->parts().routing);
                      })});
  }
  for (const JobId& job : changes.jobs) {
    if (core.jobs().Find(job) == nullptr) continue;
    if (Planted(PlantedBug::kForgetToStoreJob) && !changes.nodes) continue;
    writes.push_back({JobKey(job), EncodeState(moment, [&](auto& archive) {
                        SourceOf(core).SaveJob(job, archive);
                      })});
  }
  for (const JobId& job : changes.forgotten) {
    writes.push_back({JobKey(job), std::nullopt});
    writes.push_back({RoutingKey(job), std::nullopt});
  }
  return writes;
}

absl::StatusOr<std::unique_ptr<SchedulerCore>> RestoreCore(const StoreRows& rows,
                                                           const SchedulerCore::Options& options,
                                                           const Moment& moment, Actions& actions) {
  auto core = std::make_unique<SchedulerCore>(options);
  for (const auto& row : rows) {
    if (const absl::Status status = LoadRow(row, moment, rows, *core); !status.ok()) {
      return Annotate(status, absl::StrCat("the store's row \"", row.first, "\""));
    }
  }
  CoreArchive(core.get()).Restored(moment.now, actions);
  return core;
}

absl::StatusOr<JobPlan> LoadPlan(const StoreRows& rows, const JobId& job) {
  JobPlan plan;
  CAPSTAN_ASSIGN_OR_RETURN(const StoreRows::const_iterator row, RowOf(rows, job));
  const absl::Status status = DecodeState(row->second, Moment(), [&plan](auto& archive) {
    archive(plan);
    return absl::OkStatus();
  });
  if (!status.ok()) return Annotate(status, absl::StrCat("the row of ", job));
  return plan;
}

absl::Status LoadJob(const StoreRows& rows, const JobId& job, const Moment& moment,
                     SchedulerCore& core) {
  CAPSTAN_ASSIGN_OR_RETURN(const StoreRows::const_iterator row, RowOf(rows, job));
  if (core.jobs().Find(job) != nullptr)
    return absl::DataLossError(absl::StrCat(job, " is known already"));
  const absl::Status status = LoadRow(*row, moment, rows, core);
  if (!status.ok() && core.jobs().Find(job) != nullptr) CoreArchive(&core).Unload(job);
  return Annotate(status, absl::StrCat("the row of ", job));
}

std::string EncodeResumePoint(const ResumePoint& at) {
  return EncodeState(Moment(),
                     [&at](auto& archive) { archive(kResumeFormat, kFieldsVersion, at); });
}

absl::StatusOr<ResumePoint> DecodeResumePoint(const std::string& bytes) {
  ResumePoint at;
  const absl::Status status = DecodeState(bytes, Moment(), [&at](auto& archive) {
    uint32_t format = 0;
    int64_t fields = 0;
    archive(format, fields);
    if (format != kResumeFormat || fields > kFieldsVersion) {
      return absl::DataLossError(absl::StrCat("format ", format, " with fields version ", fields,
                                              ", this scheduler reads ", kResumeFormat,
                                              " up to fields version ", kFieldsVersion));
    }
    archive(at);
    return absl::OkStatus();
  });
  if (!status.ok()) return Annotate(status, "the checkpoint's job_state");
  return at;
}

}  // namespace capstan::scheduler
