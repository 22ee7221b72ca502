#include "scheduler/admission/admitted_codec.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/security/capability.h"
#include "common/status/annotate.h"
#include "scheduler/store/archive.h"

namespace capstan::scheduler {
namespace {

constexpr absl::string_view kPrefix = "admitted/";

std::string KeyOf(const JobId& job) { return absl::StrCat(kPrefix, job); }

absl::Status Decode(const std::string& bytes, AdmittedJob& job) {
  return DecodeState(bytes, Moment(), [&job](auto& archive) {
    std::string submitted;
    std::string spec;
    std::vector<std::string> tables;
    std::string key;
    archive(job.plan, submitted, spec, tables, job.mode, job.output_directory);
    archive.Appended(key);
    if (!key.empty()) {
      const absl::StatusOr<CapabilityKey> read = CapabilityKey::FromBytes(key);
      if (!read.ok()) return absl::DataLossError(read.status().message());
      job.capability_key = *read;
    }
    bool whole = job.submitted.ParseFromString(submitted) && job.spec.ParseFromString(spec);
    for (const std::string& table : tables) {
      whole = job.tables.emplace_back().ParseFromString(table) && whole;
    }
    return whole ? absl::OkStatus() : absl::DataLossError("its specification cannot be read");
  });
}

StoreWrite Encode(const AdmittedJob& job, const std::string& key) {
  std::vector<std::string> tables;
  for (const v1::TableSpec& table : job.tables) tables.push_back(table.SerializeAsString());
  return {KeyOf(job.plan.id), EncodeState(Moment(), [&](auto& archive) {
            archive(job.plan, job.submitted.SerializeAsString(), job.spec.SerializeAsString(),
                    tables, job.mode, job.output_directory);
            archive.Appended(key);
          })};
}

}  // namespace

StoreWrite EncodeAdmitted(const AdmittedJob& job) {
  return Encode(job, job.capability_key.has_value() ? job.capability_key->bytes() : "");
}

StoreWrite EncodeAdmittedWithoutKey(const AdmittedJob& job) { return Encode(job, ""); }

StoreWrite ForgetAdmitted(const JobId& job) { return {KeyOf(job), std::nullopt}; }

absl::StatusOr<AdmittedJobs> DecodeAdmitted(const StoreRows& rows) {
  AdmittedJobs jobs;
  for (auto row = rows.lower_bound(std::string(kPrefix)); row != rows.end(); ++row) {
    if (!absl::StartsWith(row->first, kPrefix)) break;
    AdmittedJob job;
    if (const absl::Status status = Decode(row->second, job); !status.ok()) {
      return Annotate(status, absl::StrCat("the store's row \"", row->first, "\""));
    }
    const JobId id = job.plan.id;
    if (KeyOf(id) != row->first) {
      return absl::DataLossError(
          absl::StrCat("the store's row \"", row->first, "\" holds the job \"", id, "\""));
    }
    jobs.emplace(id, std::make_shared<const AdmittedJob>(std::move(job)));
  }
  return jobs;
}

}  // namespace capstan::scheduler
