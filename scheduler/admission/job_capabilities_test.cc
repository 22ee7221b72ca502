#include "scheduler/admission/job_capabilities.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "common/security/capability.h"
#include "common/testing/status_matchers.h"

namespace capstan::scheduler::job_capabilities_test {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

AdmittedJob JobWithKey(char c) {
  AdmittedJob job;
  job.plan.id = "lenet-1";
  job.capability_key = CapabilityKey::FromBytes(std::string(CapabilityKey::kBytes, c)).value();
  return job;
}

TEST_CASE("Job capabilities: one is renewed when half of its time is over", "[scheduler]") {
  const absl::Time expiry = kNow + kCapabilityLifetime;
  CHECK_FALSE(IsToBeRenewed(expiry, kNow));
  CHECK_FALSE(IsToBeRenewed(expiry, kNow + kCapabilityLifetime / 2 - absl::Seconds(1)));
  CHECK(IsToBeRenewed(expiry, kNow + kCapabilityLifetime / 2));
  CHECK(IsToBeRenewed(expiry, expiry + absl::Hours(1)));
  // A scheduler may be away for so long, whenever it was heard last.
  CHECK(kCapabilityLifetime / 2 >= absl::Hours(12));
}

TEST_CASE("Job capabilities: a task gets its own with its assignment", "[scheduler]") {
  const AdmittedJobs jobs = {
      {"lenet-1", std::make_shared<const AdmittedJob>(JobWithKey('k'))},
      {"sim-2", std::make_shared<const AdmittedJob>()},  // Without a key.
  };
  v1::SyncNodeResponse response;
  for (const char* job : {"lenet-1", "sim-2"}) {
    v1::TaskAssignment& task = *response.add_tasks();
    task.set_job_id(job);
    task.set_rank(3);
    task.set_incarnation(7);
  }
  AddTaskCapabilities(jobs, kNow, &response);
  REQUIRE_OK_AND_ASSIGN(const Capability capability,
                        VerifyCapability(*jobs.at("lenet-1")->capability_key, "lenet-1",
                                         response.tasks(0).capability()));
  CHECK(capability == Capability{.job = "lenet-1",
                                 .scope = Capability::Scope::kTask,
                                 .rank = Rank(3),
                                 .incarnation = Incarnation(7),
                                 .expiry = kNow + kCapabilityLifetime});
  CHECK(response.tasks(1).capability().empty());
}

TEST_CASE("Job capabilities: a report brings a new one in time", "[scheduler]") {
  const AdmittedJob job = JobWithKey('k');
  v1::SyncTaskRequest request;
  request.set_rank(3);
  request.set_incarnation(7);
  const auto renewed = [&](absl::Time expiry) {
    request.set_capability_expiry_unix_s(absl::ToUnixSeconds(expiry));
    v1::SyncTaskResponse response;
    RenewCapability(request, job, kNow, &response);
    return response.capability();
  };
  CHECK(renewed(kNow + kCapabilityLifetime).empty());
  for (const absl::Time expiry :
       {kNow + absl::Hours(1), kNow - absl::Hours(1), absl::UnixEpoch()}) {
    REQUIRE_OK_AND_ASSIGN(const Capability capability, DecodeCapability(renewed(expiry)));
    CHECK(capability.rank == Rank(3));
    CHECK(capability.incarnation == Incarnation(7));
    CHECK(capability.expiry == kNow + kCapabilityLifetime);
  }
}

TEST_CASE("Job capabilities: a reader's allows reading", "[scheduler]") {
  const AdmittedJob job = JobWithKey('k');
  REQUIRE_OK_AND_ASSIGN(
      const Capability capability,
      VerifyCapability(*job.capability_key, "lenet-1", ReadCapability(job, kNow)));
  CHECK(capability.scope == Capability::Scope::kRead);
  CHECK(ReadCapability(AdmittedJob(), kNow).empty());
}

}  // namespace
}  // namespace capstan::scheduler::job_capabilities_test
