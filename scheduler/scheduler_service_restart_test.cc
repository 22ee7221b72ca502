// Tests a restarted scheduler: the state that it continues, and the files that it leaves alone.
#include <poll.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/job/check/check_job.h"
#include "common/security/capability.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"
#include "scheduler/admission/admitted_codec.h"
#include "scheduler/scheduler_service.h"
#include "scheduler/testing/loopback.h"
#include "scheduler/testing/small_job.h"

namespace capstan::scheduler::scheduler_service_restart_test {
namespace {

using capstan::testing::ReadFile;
using testing::Loopback;

TEST_CASE(
    "Scheduler service: a job goes on in the next incarnation, with its nodes, tables and numbers",
    "[scheduler]") {
  Loopback loopback;
  const v1::RegisterResponse server = loopback.Join(v1::SERVER, "server-1");
  const v1::RegisterResponse worker = loopback.Join(v1::WORKER, "worker-1");
  REQUIRE_OK_AND_ASSIGN(const std::string job,
                        loopback.Submit(testing::MakeSmallJob(loopback.folder.path())));
  REQUIRE_OK_AND_ASSIGN(const v1::SyncNodeResponse tables, loopback.Sync(server, 0));
  const v1::JobStatus before = loopback.Get(job);
  // The scheduler does not need the data any more.
  std::filesystem::remove(loopback.folder.path() + "/images-40");

  loopback.Restart();
  const v1::JobStatus after = loopback.Get(job);
  CHECK(after.state() == v1::RUNNING);
  CHECK(std::abs(after.submitted_unix_ms() - before.submitted_unix_ms()) < 1000);
  CHECK(after.spec().training().batch_size() == 10);
  // Incarnations and generations are unchanged, so a server that reports them gets no new answer.
  v1::SyncNodeRequest state;
  v1::TableState& held = *state.add_tables();
  held.set_job_id(job);
  held.set_routing_generation(tables.tables(0).routing().generation());
  held.set_membership_generation(tables.tables(0).membership().generation());
  REQUIRE_OK_AND_ASSIGN(const v1::SyncNodeResponse again, loopback.Sync(worker, 0));
  REQUIRE(again.tasks_size() == 1);
  CHECK(again.tasks(0).incarnation() == worker.incarnation() + 1);
  std::thread syncing(
      [&] { loopback.Sync(server, tables.generation(), state).status().IgnoreError(); });
  for (v1::JobStatus status = after; status.phase() != "starting";) {
    status = loopback.Get(job, status.revision(), 60'000);
  }
  CHECK(loopback.Join(v1::WORKER, "worker-2").incarnation() >= worker.incarnation() + 2);
  REQUIRE_OK_AND_ASSIGN(const std::string next,
                        loopback.Submit(testing::MakeSmallJob(loopback.folder.path())));
  CHECK(next == "small-2");
  loopback.service->Stop();
  syncing.join();
}

TEST_CASE("Scheduler service: a job's capability key outlives a restart; an older store gets one",
          "[scheduler]") {
  Loopback loopback;
  const v1::RegisterResponse server = loopback.Join(v1::SERVER, "server-1");
  const v1::RegisterResponse worker = loopback.Join(v1::WORKER, "worker-1");
  REQUIRE_OK_AND_ASSIGN(const std::string job,
                        loopback.Submit(testing::MakeSmallJob(loopback.folder.path())));
  const auto key_of_server = [&] {
    REQUIRE_OK_AND_ASSIGN(const v1::SyncNodeResponse tables, loopback.Sync(server, 0));
    REQUIRE(tables.tables_size() == 1);
    const absl::StatusOr<CapabilityKey> key =
        CapabilityKey::FromBytes(tables.tables(0).capability_key());
    REQUIRE_OK(key);
    return *key;
  };
  const CapabilityKey key = key_of_server();
  REQUIRE_OK_AND_ASSIGN(const v1::SyncNodeResponse tasks, loopback.Sync(worker, 0));
  REQUIRE(tasks.tasks_size() == 1);
  REQUIRE_OK(VerifyCapability(key, job, tasks.tasks(0).capability()));
  loopback.Restart();
  CHECK(key_of_server() == key);

  StoreRows rows = loopback.store.Load().value();
  const StoreWrite older = EncodeAdmittedWithoutKey(*DecodeAdmitted(rows).value().at(job));
  rows[older.key] = *older.value;
  loopback.StartWith(rows);
  const CapabilityKey drawn = key_of_server();
  CHECK_FALSE(drawn == key);
  loopback.Restart();
  CHECK(key_of_server() == drawn);
}

TEST_CASE("Scheduler service: a submission that comes again is answered with its job (issue 20)",
          "[scheduler]") {
  Loopback loopback;
  const v1::JobSpec spec = testing::MakeSmallJob(loopback.folder.path());
  REQUIRE_OK_AND_ASSIGN(const std::string job, loopback.Submit(spec, 77));
  CHECK(loopback.Submit(spec, 77).value() == job);
  loopback.Restart();
  // The scheduler knows the answer, so it does not need the data any more.
  std::filesystem::remove(loopback.folder.path() + "/images-40");
  CHECK(loopback.Submit(spec, 77).value() == job);
  v1::ListJobsResponse jobs;
  REQUIRE_OK(loopback.Ask(&v1::Scheduler::Stub::ListJobs, v1::ListJobsRequest(), &jobs));
  CHECK(jobs.jobs_size() == 1);
  // Submissions with another id, or with none, make new jobs.
  const v1::JobSpec other = testing::MakeSmallJob(loopback.folder.path());
  CHECK(loopback.Submit(other, 78).value() == "small-2");
  CHECK(loopback.Submit(other).value() == "small-3");
  CHECK(loopback.Submit(other).value() == "small-4");
}

TEST_CASE("Scheduler service: no incarnation is given out twice, where the store is gone or older",
          "[scheduler]") {
  const auto now = [] { return static_cast<uint64_t>(absl::ToUnixMillis(absl::Now())); };
  const uint64_t before = now();
  Loopback loopback;
  const uint64_t first = loopback.Join(v1::SERVER, "server-1").incarnation();
  CHECK(first >= before);
  CHECK(loopback.Join(v1::SERVER, "server-2").incarnation() == first + 1);
  // A store from a backup does not know the latest incarnations (issue 20).
  const StoreRows backup = loopback.store.Load().value();
  const uint64_t last = loopback.Join(v1::SERVER, "server-3").incarnation();
  while (now() <= last) std::this_thread::yield();  // Clusters use fewer than one per ms.
  loopback.StartWith(backup);
  CHECK(loopback.Join(v1::SERVER, "server-1").incarnation() > last);
  const uint64_t later = now();
  loopback.StartWith({});
  CHECK(loopback.Join(v1::SERVER, "server-1").incarnation() >= later);
}

TEST_CASE(
    "Scheduler service: files that a job's end did not get to are written in the next incarnation",
    "[scheduler]") {
  Loopback loopback;
  loopback.Join(v1::SERVER, "server-1");
  loopback.Join(v1::WORKER, "worker-1");
  REQUIRE_OK_AND_ASSIGN(const std::string job,
                        loopback.Submit(testing::MakeSmallJob(loopback.folder.path())));
  v1::StopJobRequest stop;
  stop.set_job_id(job);
  v1::StopJobResponse stopped;
  REQUIRE_OK(loopback.Ask(&v1::Scheduler::Stub::StopJob, stop, &stopped));
  const std::string file = loopback.Get(job).output_directory() + "/job.json";
  REQUIRE(std::filesystem::remove(file));
  loopback.Restart();
  CHECK(loopback.Get(job).state() == v1::STOPPED);
  CHECK(std::filesystem::exists(file));
}

TEST_CASE("Scheduler service: however often it starts in vain, a job goes on", "[scheduler]") {
  Loopback loopback;
  const v1::RegisterResponse server = loopback.Join(v1::SERVER, "server-1");
  loopback.Join(v1::WORKER, "worker-1");
  REQUIRE_OK_AND_ASSIGN(const std::string job,
                        loopback.Submit(testing::MakeSmallJob(loopback.folder.path())));
  REQUIRE_OK_AND_ASSIGN(const v1::SyncNodeResponse tables, loopback.Sync(server, 0));
  for (int i = 0; i < 101; ++i) loopback.Restart();
  v1::SyncNodeRequest seen;
  *seen.mutable_revision_seen() = tables.revision();
  REQUIRE_OK(loopback.Sync(server, 0, seen).status());
  CHECK(loopback.Get(job).state() == v1::RUNNING);
}

TEST_CASE("Scheduler service: it does not wait for a job's check, which may be killed with it",
          "[scheduler]") {
  Loopback loopback;
  loopback.Stop();
  absl::Notification checks;
  loopback.options.check_job = [&](const v1::JobSpec&, int stop) -> absl::StatusOr<JobCheck> {
    checks.Notify();
    pollfd waiter{.fd = stop, .events = POLLIN, .revents = 0};
    if (poll(&waiter, 1, /*timeout=*/50'000) == 1) return absl::InvalidArgumentError("killed");
    return absl::InternalError("it was not told to stop");
  };
  loopback.Start();
  absl::Status submitted;
  std::thread submitting(
      [&] { submitted = loopback.Submit(testing::MakeSmallJob(loopback.folder.path())).status(); });
  checks.WaitForNotification();
  loopback.service->Stop();
  submitting.join();
  CHECK_STATUS(submitted, absl::StatusCode::kUnavailable, "is shutting down");
}

// A cluster with one task slot, whose jobs write into one folder one after the other.
struct OneFolder : Loopback {
  OneFolder() : Loopback(/*sync_interval=*/absl::Milliseconds(20)) {
    Join(v1::SERVER, "server-1");
    worker = Join(v1::WORKER, "worker-1");
  }
  // Returns the job's id.
  std::string SubmitHere() {
    v1::JobSpec spec = testing::MakeSmallJob(folder.path());
    spec.mutable_output()->set_directory(out);
    return Submit(spec).value();
  }
  void StopJob(const std::string& job) {
    v1::StopJobRequest request;
    request.set_job_id(job);
    v1::StopJobResponse response;
    REQUIRE_OK(Ask(&v1::Scheduler::Stub::StopJob, request, &response));
  }
  // Syncs the worker, which receives its assignment and reports no task.
  void SyncWorker() {
    REQUIRE_OK_AND_ASSIGN(const v1::SyncNodeResponse news, Sync(worker, generation));
    generation = news.generation();
  }

  const std::string out = folder.path() + "/out";
  v1::RegisterResponse worker;
  uint64_t generation = 0;
};

TEST_CASE("Scheduler service: what an ended job's tasks have left goes once they are gone",
          "[scheduler]") {
  OneFolder loopback;
  const std::string job = loopback.SubmitHere();
  loopback.SyncWorker();
  const uint64_t incarnation = loopback.Get(job).tasks(0).incarnation();
  const auto folder = [&](const std::string& name) { return loopback.out + "/.export-" + name; };
  const std::string mine = folder("0-" + std::to_string(incarnation));
  const std::string later =
      folder("0-" + std::to_string(incarnation + 1));  // A later job's folder.
  for (const std::string& path : {mine, later, folder("notes")}) {
    std::filesystem::create_directories(path + "/half");
  }
  loopback.StopJob(job);
  loopback.SyncWorker();  // The worker learns that the task must end.
  SECTION("when its worker says so") { loopback.SyncWorker(); }
  SECTION("in the scheduler's next incarnation") {
    loopback.Restart();
    loopback.SyncWorker();
    loopback.SyncWorker();
  }
  CHECK(loopback.Get(job).state() == v1::STOPPED);
  loopback.service->Stop();
  CHECK_FALSE(std::filesystem::exists(mine));
  CHECK(std::filesystem::exists(later));
  CHECK(std::filesystem::exists(folder("notes")));
}

TEST_CASE(
    "Scheduler service: a new incarnation does not put an older job's files over a newer one's",
    "[scheduler]") {
  OneFolder loopback;
  const std::string older = loopback.SubmitHere();
  loopback.SyncWorker();
  loopback.StopJob(older);
  loopback.SyncWorker();
  const std::string newer = loopback.SubmitHere();
  loopback.SyncWorker();
  SECTION("that runs") {}
  SECTION("that has ended") { loopback.StopJob(newer); }
  const v1::JobState state = loopback.Get(newer).state();
  const std::string written = ReadFile(loopback.out + "/job.json");
  CHECK_THAT(written, Catch::Contains("\"job_id\": \"" + newer + "\""));
  loopback.Restart();
  CHECK(loopback.Get(newer).state() == state);
  CHECK(ReadFile(loopback.out + "/job.json") == written);
}

TEST_CASE("Scheduler service: a store without a job's specification is refused", "[scheduler]") {
  Loopback loopback;
  REQUIRE_OK(loopback.Submit(testing::MakeSmallJob(loopback.folder.path())));
  loopback.service->Stop();
  REQUIRE_OK(loopback.store.Write({{"admitted/small-1", std::nullopt}}));
  CHECK_STATUS(SchedulerService::Open(loopback.options, &loopback.store, &loopback.clock),
               absl::StatusCode::kDataLoss, "small-1");
}

}  // namespace
}  // namespace capstan::scheduler::scheduler_service_restart_test
