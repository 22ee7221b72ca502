#include "server/rpc/call_rights.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/observability/log.h"
#include "common/status/status_macros.h"

namespace capstan::server {
namespace {

absl::Status WithoutKey(const JobId& job) {
  return absl::PermissionDeniedError(
      absl::StrCat("this server has no capability key of the job \"", job, "\": it admits nobody"));
}

// Bytes that are no capability give nobody a right.
absl::Status Refusal(const absl::Status& status) {
  return absl::PermissionDeniedError(status.message());
}

}  // namespace

CallRights::CallRights(const HeldJobs* jobs, Options options)
    : jobs_(jobs), options_(std::move(options)) {}

absl::StatusOr<std::shared_ptr<const VerifiedCapability>> CallRights::Verify(
    const std::string& capability) const {
  if (capability.empty() && !options_.authenticated) return nullptr;
  const absl::StatusOr<Capability> told = DecodeCapability(capability);
  if (!told.ok()) return Refusal(told.status());
  CAPSTAN_ASSIGN_OR_RETURN(const std::shared_ptr<HeldJob> job, jobs_->Find(told->job));
  const std::optional<CapabilityKey>& key = job->capability_key();
  if (!key.has_value()) {
    if (options_.authenticated) return WithoutKey(told->job);
    return nullptr;
  }
  CAPSTAN_ASSIGN_OR_RETURN(Capability verified, VerifyCapability(*key, told->job, capability));
  CAPSTAN_RETURN_IF_ERROR(CheckNotExpired(verified, options_.now()));
  return std::make_shared<const VerifiedCapability>(
      VerifiedCapability{.key = *key, .capability = std::move(verified)});
}

absl::StatusOr<std::shared_ptr<HeldJob>> CallRights::Find(const JobId& job,
                                                          const ShownCapability& shown,
                                                          const CapabilityUse& use) const {
  CAPSTAN_ASSIGN_OR_RETURN(std::shared_ptr<HeldJob> held, jobs_->Find(job));
  const absl::Status status = Judge(*held, shown, use);
  if (status.ok()) return held;
  LogWarning({.job = job}, "refused: {}", std::string(status.message()));
  return status;
}

absl::Status CallRights::Judge(const HeldJob& job, const ShownCapability& shown,
                               const CapabilityUse& use) const {
  const std::optional<CapabilityKey>& key = job.capability_key();
  if (!key.has_value()) return options_.authenticated ? WithoutKey(job.job()) : absl::OkStatus();
  if (shown.verified == nullptr) {
    const absl::StatusOr<Capability> capability = VerifyCapability(*key, job.job(), shown.bytes);
    if (!capability.ok()) return Refusal(capability.status());
    CAPSTAN_RETURN_IF_ERROR(CheckNotExpired(*capability, options_.now()));
    return CheckAllows(*capability, use);
  }
  const Capability& capability = shown.verified->capability;
  if (capability.job != job.job() || shown.verified->key != *key) {
    return absl::PermissionDeniedError(
        absl::StrCat("the connection was opened with a capability for the job \"", capability.job,
                     "\", expected one for \"", job.job(), "\" as this server holds it now"));
  }
  return CheckAllows(capability, use);
}

CapabilityUse UseOf(const v1::Caller& caller, CapabilityUse::Access access) {
  return {.access = access,
          .rank = Rank(caller.rank()),
          .incarnation = Incarnation(caller.incarnation())};
}

}  // namespace capstan::server
