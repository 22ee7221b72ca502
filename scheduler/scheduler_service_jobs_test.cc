// Tests the calls on jobs: events, labels, notes, deletion, checkpoints to restore.
#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/storage/posix_disk.h"
#include "common/tensor/safetensors/safetensors.h"
#include "common/testing/status_matchers.h"
#include "scheduler/files/uploads.h"
#include "scheduler/scheduler_service.h"
#include "scheduler/testing/loopback.h"
#include "scheduler/testing/small_job.h"

namespace capstan::scheduler::scheduler_service_jobs_test {
namespace {

using testing::Loopback;

v1::JobSpec Labelled(const Loopback& loopback) {
  v1::JobSpec spec = testing::MakeSmallJob(loopback.folder.path());
  (*spec.mutable_labels())["team"] = "ads";
  spec.set_note("first try");
  return spec;
}

absl::Status Delete(Loopback& loopback, const std::string& job, v1::DeleteJobResponse& response) {
  v1::DeleteJobRequest request;
  request.set_job_id(job);
  return loopback.Ask(&v1::Scheduler::Stub::DeleteJob, request, &response);
}

void StopJob(Loopback& loopback, const std::string& job) {
  v1::StopJobRequest stop;
  stop.set_job_id(job);
  v1::StopJobResponse stopped;
  REQUIRE_OK(loopback.Ask(&v1::Scheduler::Stub::StopJob, stop, &stopped));
}

TEST_CASE("Scheduler service: a full disk of a server is an event of its job, over restarts",
          "[scheduler]") {
  Loopback loopback;
  const v1::RegisterResponse server = loopback.Join(v1::SERVER, "server-1");
  loopback.Join(v1::SERVER, "server-2");
  loopback.Join(v1::WORKER, "worker-1");
  REQUIRE_OK_AND_ASSIGN(const std::string job,
                        loopback.Submit(testing::MakeSmallJob(loopback.folder.path())));
  REQUIRE_OK_AND_ASSIGN(const v1::SyncNodeResponse tables, loopback.Sync(server, 0));
  CHECK(loopback.Get(job).events_size() == 0);
  v1::SyncNodeRequest full;
  v1::TableState& table = *full.add_tables();
  table.set_job_id(job);
  table.mutable_failure()->set_reason(v1::Failure::SERVER_LOST);
  table.mutable_failure()->set_message("cannot write /logs/wal-1: No space left on device");
  REQUIRE_OK(loopback.Sync(server, tables.generation(), full));

  const v1::JobStatus status = loopback.Get(job);
  REQUIRE(status.events_size() >= 1);
  const v1::JobEvent& event = status.events(0);
  CHECK(event.kind() == v1::JobEvent::DISK_FULL);
  CHECK(event.node_id() == "server-1");
  CHECK_THAT(event.text(), Catch::Contains("/logs/wal-1: No space left on device"));
  CHECK(event.count() == 1);
  const auto age = absl::Now() - absl::FromUnixMillis(event.unix_ms());
  CHECK(age > -absl::Minutes(1));
  CHECK(age < absl::Minutes(1));
  CHECK(event.first_unix_ms() == event.unix_ms());

  v1::ListJobsResponse jobs;
  REQUIRE_OK(loopback.Ask(&v1::Scheduler::Stub::ListJobs, v1::ListJobsRequest(), &jobs));
  CHECK(jobs.jobs(0).events_size() == 0);
  loopback.Restart();
  const v1::JobStatus after = loopback.Get(job);
  REQUIRE(after.events_size() >= 1);
  CHECK(after.events(0).text() == event.text());
  CHECK(std::abs(after.events(0).unix_ms() - event.unix_ms()) < 1000);
}

TEST_CASE("Scheduler service: labels and note come with the job, can be changed, and stay",
          "[scheduler]") {
  Loopback loopback;
  REQUIRE_OK_AND_ASSIGN(const std::string job, loopback.Submit(Labelled(loopback)));
  v1::ListJobsResponse jobs;
  REQUIRE_OK(loopback.Ask(&v1::Scheduler::Stub::ListJobs, v1::ListJobsRequest(), &jobs));
  CHECK(jobs.jobs(0).labels().at("team") == "ads");
  CHECK(jobs.jobs(0).note() == "first try");

  v1::AnnotateJobRequest change;
  change.set_job_id(job);
  (*change.mutable_set_labels())["best"] = "yes";
  change.add_remove_labels("team");
  change.add_remove_labels("never-there");
  v1::AnnotateJobResponse changed;
  REQUIRE_OK(loopback.Ask(&v1::Scheduler::Stub::AnnotateJob, change, &changed));
  CHECK(changed.labels_size() == 1);
  CHECK(changed.note() == "first try");
  change.set_note("");
  REQUIRE_OK(loopback.Ask(&v1::Scheduler::Stub::AnnotateJob, change, &changed));
  CHECK(changed.note().empty());

  v1::AnnotateJobRequest wrong;
  wrong.set_job_id(job);
  (*wrong.mutable_set_labels())["no blank"] = "";
  CHECK_STATUS(loopback.Ask(&v1::Scheduler::Stub::AnnotateJob, wrong, &changed),
               absl::StatusCode::kInvalidArgument, "labels: got the key \"no blank\"");
  wrong.set_job_id("nobody-9");
  CHECK_STATUS(loopback.Ask(&v1::Scheduler::Stub::AnnotateJob, wrong, &changed),
               absl::StatusCode::kNotFound, "there is no job \"nobody-9\"");

  loopback.Restart();
  const v1::JobStatus status = loopback.Get(job);
  REQUIRE(status.labels_size() == 1);
  CHECK(status.labels().at("best") == "yes");
  // The specification, which a user may submit again, has the labels, too.
  CHECK(status.spec().labels().at("best") == "yes");
}

TEST_CASE("Scheduler service: a deleted job is gone for good, and its files stay", "[scheduler]") {
  Loopback loopback;
  REQUIRE_OK_AND_ASSIGN(const std::string job, loopback.Submit(Labelled(loopback)));
  REQUIRE_OK_AND_ASSIGN(const std::string other, loopback.Submit(Labelled(loopback)));
  v1::DeleteJobResponse deleted;
  CHECK_STATUS(Delete(loopback, job, deleted), absl::StatusCode::kFailedPrecondition,
               "expected a job that has ended; stop it first");
  StopJob(loopback, job);
  REQUIRE_OK(Delete(loopback, job, deleted));
  CHECK(deleted.output_directory() == loopback.folder.path() + "/jobs/" + job);
  CHECK(std::filesystem::exists(deleted.output_directory()));
  CHECK_STATUS(Delete(loopback, job, deleted), absl::StatusCode::kNotFound, job);
  loopback.Restart();
  v1::ListJobsResponse jobs;
  REQUIRE_OK(loopback.Ask(&v1::Scheduler::Stub::ListJobs, v1::ListJobsRequest(), &jobs));
  REQUIRE(jobs.jobs_size() == 1);
  CHECK(jobs.jobs(0).job_id() == other);
  const StoreRows rows = loopback.store.Load().value();
  for (const auto& [key, value] : rows) CHECK_THAT(key, !Catch::EndsWith("/" + job));
}

TEST_CASE("Scheduler service: old jobs go by number, rows and all", "[scheduler]") {
  Loopback loopback;
  loopback.Stop();
  loopback.options.core.ended_jobs_max = 1;
  loopback.Start();
  for (int i = 0; i < 3; ++i) {
    REQUIRE_OK_AND_ASSIGN(const std::string job, loopback.Submit(Labelled(loopback)));
    StopJob(loopback, job);
  }
  REQUIRE_OK_AND_ASSIGN(const std::string last, loopback.Submit(Labelled(loopback)));
  v1::ListJobsResponse jobs;
  REQUIRE_OK(loopback.Ask(&v1::Scheduler::Stub::ListJobs, v1::ListJobsRequest(), &jobs));
  REQUIRE(jobs.jobs_size() == 2);
  CHECK(jobs.jobs(0).job_id() == "small-3");
  const StoreRows rows = loopback.store.Load().value();
  CHECK_FALSE(rows.contains("admitted/small-1"));
  CHECK(rows.contains("admitted/small-3"));
}

absl::StatusOr<v1::SubmitJobResponse> Resume(Loopback& loopback, const v1::JobSpec& spec,
                                             const std::string& job) {
  v1::SubmitJobRequest request;
  request.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
  *request.mutable_spec() = spec;
  request.set_resume_job(job);
  v1::SubmitJobResponse response;
  const absl::Status status = loopback.Ask(&v1::Scheduler::Stub::SubmitJob, request, &response);
  if (!status.ok()) return status;
  return response;
}

TEST_CASE("Scheduler service: a job that has not ended, or has no checkpoint, cannot be resumed",
          "[scheduler]") {
  Loopback loopback;
  const v1::JobSpec spec = testing::MakeSmallJob(loopback.folder.path());
  REQUIRE_OK_AND_ASSIGN(const std::string job, loopback.Submit(spec));
  CHECK_STATUS(Resume(loopback, spec, job), absl::StatusCode::kFailedPrecondition,
               job + " has not ended: ");
  CHECK_STATUS(Resume(loopback, spec, "nobody-9"), absl::StatusCode::kNotFound, "nobody-9");
  StopJob(loopback, job);
  CHECK_STATUS(Resume(loopback, spec, job), absl::StatusCode::kNotFound,
               job + " cannot go on: no complete checkpoint in ");
  v1::JobSpec with_weights = spec;
  with_weights.mutable_training()->set_initial_weights("/w");
  CHECK_STATUS(Resume(loopback, with_weights, job), absl::StatusCode::kInvalidArgument,
               "training.initial_weights: got \"/w\", expected nothing");
  v1::StopJobRequest save;
  save.set_job_id(job);
  save.set_save(true);
  v1::StopJobResponse stopped;
  CHECK_STATUS(loopback.Ask(&v1::Scheduler::Stub::StopJob, save, &stopped),
               absl::StatusCode::kFailedPrecondition, job + " has not started");
}

absl::Status WriteWeights(const std::string& path, const std::string& second_tensor = "fc.bias") {
  const std::vector<float> weight(160, 0.5f), bias(10, 0.25f);
  return WriteSafetensors(path, {{"fc.weight", {10, 16}, weight}, {second_tensor, {10}, bias}});
}

TEST_CASE("Scheduler service: a job begins with the weights of a file, which go when it has ended",
          "[scheduler]") {
  Loopback loopback(/*sync_interval=*/absl::Milliseconds(5));
  v1::JobSpec spec = testing::MakeSmallJob(loopback.folder.path());
  const std::string path = loopback.folder.path() + "/weights.safetensors";
  spec.mutable_training()->set_initial_weights(path);
  CHECK_STATUS(loopback.Submit(spec), absl::StatusCode::kInvalidArgument,
               "training.initial_weights: " + path + ": cannot be read: No such file");
  REQUIRE_OK(WriteWeights(path));
  loopback.Join(v1::SERVER, "server-1");
  const v1::RegisterResponse worker = loopback.Join(v1::WORKER, "worker-1");
  REQUIRE_OK_AND_ASSIGN(const std::string job, loopback.Submit(spec));
  std::filesystem::remove(path);  // The scheduler does not need the file any more.
  const std::string kept = loopback.folder.path() + "/initial-weights";
  REQUIRE_FALSE(std::filesystem::is_empty(kept));
  const std::string checkpoint =
      std::filesystem::directory_iterator(kept)->path().string() + "/checkpoint-1";
  PosixDisk disk;
  REQUIRE_OK(VerifyCheckpoint(disk, checkpoint).status());
  CHECK(loopback.service->rights().MayReadFrom(checkpoint, std::nullopt));
  loopback.Restart();
  REQUIRE_OK(VerifyCheckpoint(disk, checkpoint).status());

  StopJob(loopback, job);
  uint64_t seen = 0;
  for (int i = 0; i < 1000 && !std::filesystem::is_empty(kept); ++i) {
    REQUIRE_OK_AND_ASSIGN(const v1::SyncNodeResponse wanted, loopback.Sync(worker, seen));
    seen = wanted.generation();  // The worker reports no task of the job.
  }
  CHECK(std::filesystem::is_empty(kept));
}

TEST_CASE("Scheduler service: weights that a killed scheduler has left go at the next start",
          "[scheduler]") {
  Loopback loopback;
  v1::JobSpec spec = testing::MakeSmallJob(loopback.folder.path());
  spec.mutable_training()->set_initial_weights(loopback.folder.path() + "/w");
  REQUIRE_OK(WriteWeights(spec.training().initial_weights()));
  const std::string kept = loopback.folder.path() + "/initial-weights";
  REQUIRE_OK_AND_ASSIGN(const std::string stopped, loopback.Submit(spec));
  const std::string of_stopped = std::filesystem::directory_iterator(kept)->path().string();
  REQUIRE_OK_AND_ASSIGN(const std::string waits, loopback.Submit(spec));
  const std::string copy = loopback.folder.path() + "/copy";
  const auto whole = std::filesystem::copy_options::recursive;
  std::filesystem::copy(of_stopped, copy, whole);
  StopJob(loopback, stopped);
  loopback.Stop();
  REQUIRE_FALSE(std::filesystem::exists(of_stopped));
  std::filesystem::copy(copy, of_stopped, whole);  // It was killed before it removed them.
  std::filesystem::copy(copy, kept + "/unknown", whole);
  loopback.Start();
  CHECK_FALSE(std::filesystem::exists(of_stopped));
  CHECK(std::filesystem::exists(kept + "/unknown"));  // The store may be an older copy.
  CHECK_FALSE(std::filesystem::is_empty(kept));
  CHECK(loopback.Get(waits).state() == v1::PENDING);
}

TEST_CASE("Scheduler service: what was sent for a job goes when the job is refused",
          "[scheduler]") {
  Loopback loopback;
  v1::JobSpec spec = testing::MakeSmallJob(loopback.folder.path());
  spec.mutable_training()->set_initial_weights("upload:w");
  const std::string folder = UploadFolderOf(loopback.folder.path(), /*owner=*/"");
  const auto send = [&](const std::string& second_tensor) {
    std::filesystem::create_directories(folder);
    return WriteWeights(folder + "/w", second_tensor);
  };
  REQUIRE_OK(send("fc.other"));
  CHECK_STATUS(loopback.Submit(spec), absl::StatusCode::kInvalidArgument,
               "training.initial_weights: ");
  CHECK(std::filesystem::is_empty(folder));
  REQUIRE_OK(send("fc.bias"));
  REQUIRE_OK(loopback.Submit(spec).status());
  CHECK_FALSE(std::filesystem::is_empty(folder));
}

}  // namespace
}  // namespace capstan::scheduler::scheduler_service_jobs_test
