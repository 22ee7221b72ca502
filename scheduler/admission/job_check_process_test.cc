#include "scheduler/admission/job_check_process.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/net/socket/wake_up.h"
#include "common/tensor/safetensors/safetensors.h"
#include "common/testing/status_matchers.h"
#include "scheduler/testing/small_job.h"
#include "scheduler/testing/temporary_folder.h"

namespace capstan::scheduler::job_check_process_test {
namespace {

constexpr int64_t kMemoryBytes = int64_t{256} << 20;
constexpr absl::Duration kPatience = absl::Minutes(2);

// The scheduler's program, which this test has among its data.
JobCheckLimits OfScheduler() {
  return {.memory_bytes = kMemoryBytes,
          .time = kPatience,
          .program = std::filesystem::absolute("scheduler/capstan-scheduler").string()};
}

// A child that does what a shell script says instead of checking a job.
JobCheckLimits OfScript(const std::string& script) {
  return {.memory_bytes = kMemoryBytes,
          .time = kPatience,
          .program = "/bin/sh",
          .args = {"-c", script}};
}

void CheckStopped(const JobCheckLimits& limits, const v1::JobSpec& spec, const std::string& why) {
  CHECK_STATUS(CheckJobInChild(limits, spec), absl::StatusCode::kInvalidArgument,
               "admission of job \"small\" was stopped: the check of its data " + why);
}

TEST_CASE("Job check process: a child finds what this process finds", "[scheduler]") {
  const testing::TemporaryFolder folder;
  v1::JobSpec spec = testing::MakeSmallJob(folder.path());
  const std::string weights = folder.path() + "/weights";
  const std::vector<float> bias = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  REQUIRE_OK(WriteSafetensors(weights, {{"fc.bias", {10}, bias}}));
  spec.mutable_training()->set_initial_weights(weights);
  spec.mutable_training()->set_initial_weights_partial(true);
  const JobCheck here = CheckJob(spec);
  REQUIRE_OK_AND_ASSIGN(const JobCheck there, CheckJobInChild(OfScheduler(), spec));
  REQUIRE(here.diagnostics.empty());
  CHECK(there.diagnostics.empty());
  CHECK(!here.warnings.empty());
  CHECK(there.warnings == here.warnings);
  CHECK(there.plan.classes == here.plan.classes);
  REQUIRE(there.tables.size() == here.tables.size());
  CHECK(there.tables[0].SerializeAsString() == here.tables[0].SerializeAsString());
  CHECK(there.initial_values == here.initial_values);
  CHECK(there.initial_values[0].size() == 4 * 4 * 10 + 10);
  CHECK(there.train_count == testing::kSmallTrainCount);
  CHECK(there.test_count == testing::kSmallTestCount);
  CHECK(there.validation_count == 0);

  spec.mutable_training()->set_batch_size(-4);
  REQUIRE_OK_AND_ASSIGN(const JobCheck refused, CheckJobInChild(OfScheduler(), spec));
  REQUIRE(refused.diagnostics.size() == 1);
  CHECK(refused.diagnostics[0].ToString() == CheckJob(spec).diagnostics[0].ToString());
}

TEST_CASE("Job check process: data that takes all memory ends the child", "[scheduler]") {
  if (!LimitsMemory()) return;
  const testing::TemporaryFolder folder;
  const v1::JobSpec spec = testing::MakeSmallJob(folder.path());
  std::filesystem::resize_file(spec.data().train().images(), uint64_t{2} << 30);  // A hole.
  CheckStopped(OfScheduler(), spec, "needs more memory, expected at most 256 MiB");
}

TEST_CASE("Job check process: a child that hangs or crashes is an error of the job",
          "[scheduler]") {
  const testing::TemporaryFolder folder;
  const v1::JobSpec spec = testing::MakeSmallJob(folder.path());
  JobCheckLimits hangs = OfScript("exec sleep 1000");
  hangs.time = absl::Milliseconds(100);
  CheckStopped(hangs, spec, "took too long, expected at most 0.1 s");
  JobCheckLimits closes = OfScript("exec >&-; exec sleep 1000");
  closes.time = absl::Milliseconds(100);
  CheckStopped(closes, spec, "took too long");
  CheckStopped(OfScript("kill -XCPU $$"), spec, "took too long");
  CheckStopped(OfScript("kill -SEGV $$"), spec, "ended by signal 11");
  CheckStopped(OfScript("kill -KILL $$"), spec, "ended by signal 9");
  CheckStopped(OfScript("exit 7"), spec, "ended with exit code 7");
  CheckStopped(OfScript("cat >/dev/null"), spec, "ended with exit code 0");
}

TEST_CASE("Job check process: a check is given up at once", "[scheduler]") {
  const testing::TemporaryFolder folder;
  const v1::JobSpec spec = testing::MakeSmallJob(folder.path());
  const std::string script = GENERATE("exec sleep 1000", "exec >&-; exec sleep 1000");
  WakeUp stop;
  stop.Wake();
  const absl::Time before = absl::Now();
  CHECK_STATUS(CheckJobInChild(OfScript(script), spec, stop.descriptor()),
               absl::StatusCode::kUnavailable, "the scheduler stops");
  CHECK(absl::Now() - before < kPatience);
}

TEST_CASE("Job check process: an answer that no check gives is refused", "[scheduler]") {
  const testing::TemporaryFolder folder;
  const v1::JobSpec spec = testing::MakeSmallJob(folder.path());
  const std::string eight = "\\000\\000\\000\\000\\000\\000\\000";
  for (const std::string& bytes : {
           "yyyyyyyyyyyy" + eight,                              // A length above every bound.
           "\\000" + eight,                                     // No samples.
           "\\002" + eight + "\\377\\377",                      // No message.
           "\\003" + eight + "\\110\\001\\152",                 // Cut in the midst of a field.
           "\\006" + eight + "\\110\\001\\142\\002\\144\\144",  // Values for tables that are not.
       }) {
    INFO(bytes);
    CheckStopped(OfScript("printf '" + bytes + "'; exec sleep 1000"), spec, "gave a wrong answer");
  }
  CheckStopped(OfScript("printf '\\011" + eight + "abc'"), spec, "ended with exit code 0");
  CheckStopped(OfScript("exec yes"), spec, "gave a wrong answer");
}

}  // namespace
}  // namespace capstan::scheduler::job_check_process_test
