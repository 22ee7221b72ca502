#include "scheduler/checkpoint/job_checkpoint.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <string>

#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/shard_file.h"
#include "common/storage/posix_disk.h"
#include "common/testing/status_matchers.h"
#include "scheduler/testing/small_job.h"
#include "scheduler/testing/temporary_folder.h"

namespace capstan::scheduler::job_checkpoint_test {
namespace {

const ServerRef kServer1{"server-1", "10.0.0.1:7071", Incarnation(4)};

struct Fixture {
  Fixture() {
    auto admitted = AdmitJob(testing::MakeSmallJob(folder.path()));
    REQUIRE_OK(admitted.status());
    job = *std::move(admitted);
    REQUIRE_OK(NameJob(3, folder.path(), disk, OldModel::kKeep, job));
  }
  // Returns a checkpoint with one part, which server-1 has written.
  CheckpointPublish Publish(uint64_t id) { return Publish(id, job.plan.id); }
  CheckpointPublish Publish(uint64_t id, const JobId& owner) {
    CheckpointPublish publish{
        .job = owner, .id = CheckpointId(id), .parts = {}, .writers = {kServer1}, .at = {}};
    publish.job_folder = job.plan.checkpoint_folder;
    publish.folder = publish.job_folder + "/checkpoint-" + std::to_string(id);
    publish.parts.push_back({.shard = {}, .elements = {0, 170}, .version = Version(5)});
    v1::ShardSnapshot snapshot;
    snapshot.mutable_state()->set_version(5);
    REQUIRE_OK(disk.MakeFolder(publish.folder));
    REQUIRE_OK_AND_ASSIGN(const v1::CheckpointPart part,
                          WriteShardFile(disk, publish.folder, owner, publish.parts.back().shard,
                                         publish.parts.back().elements, snapshot));
    publish.parts.back().file = part.file();
    publish.parts.back().bytes = part.bytes();
    publish.parts.back().crc32c = part.crc32c();
    publish.at.epoch = Epoch(1);
    publish.at.iteration = Iteration(6);
    publish.at.untrained = {{20, 30}, {35, 40}};
    publish.at.batches = 3;
    publish.at.results.push_back({.epoch = Epoch(0), .test_accuracy = 0.5});
    publish.at.membership = Generation(9);
    publish.at.incarnation = Incarnation(12);
    return publish;
  }
  void Remove(CheckpointId floor, const std::vector<CheckpointId>& staying) {
    RemoveCheckpoints(disk, {job.plan.checkpoint_folder, floor, staying});
  }
  testing::TemporaryFolder folder;
  PosixDisk disk;
  AdmittedJob job;
};

TEST_CASE("Job checkpoint: what is published says where to go on, and old ones go", "[scheduler]") {
  Fixture f;
  for (uint64_t id = 1; id <= 3; ++id) {
    const CheckpointPublish publish = f.Publish(id);
    REQUIRE_OK(PublishCheckpoint(f.disk, publish, f.job, 77));
    REQUIRE_OK(PublishCheckpoint(f.disk, publish, f.job, 77));  // A restarted scheduler repeats it.
  }
  // No checkpoint is removed before it is durable that the new one is complete.
  CHECK(ListCheckpoints(f.disk, f.job.plan.checkpoint_folder).value().size() == 3);
  f.Remove(CheckpointId(0), {});
  CHECK(ListCheckpoints(f.disk, f.job.plan.checkpoint_folder).value().size() == 3);
  f.Remove(CheckpointId(0), {CheckpointId(2), CheckpointId(3)});
  REQUIRE_OK_AND_ASSIGN(const auto left, ListCheckpoints(f.disk, f.job.plan.checkpoint_folder));
  REQUIRE(left.size() == 2);
  const v1::CheckpointManifest& manifest = left[0].manifest;
  CHECK(manifest.checkpoint_id() == 3);
  CHECK(manifest.epoch() == 1);
  CHECK(manifest.untrained(1).begin() == 35);
  CHECK(manifest.results(0).test_accuracy() == 0.5);
  CHECK(manifest.saved_unix_ms() == 77);
  CHECK(manifest.tables(0).elements() == 170);
  // The rules of job files apply to the specification when a restored job is submitted.
  CHECK_FALSE(manifest.spec().training().has_slots());

  REQUIRE_OK_AND_ASSIGN(const RestoreFrom restore, FindRestore(f.disk, left[0].path, f.job));
  CHECK(restore.folder == left[0].path);
  CHECK(restore.at.untrained == std::vector<Range>{{20, 30}, {35, 40}});
  CHECK(restore.at.batches == 3);
  CHECK(restore.at.membership == Generation(9));
  CHECK(restore.at.incarnation == Incarnation(12));
  // These fields identify the owner's folder, even if the path is a link.
  CHECK(restore.id == CheckpointId(3));
  CHECK(restore.rests_on == CheckpointId(3));
  CHECK(restore.pinned_in == f.job.plan.folders.checkpoints);
  const std::string link = f.folder.path() + "/link";
  std::filesystem::create_directory_symlink(f.job.plan.checkpoint_folder, link);
  REQUIRE_OK_AND_ASSIGN(const RestoreFrom same,
                        FindRestore(f.disk, link + "/checkpoint-3/", f.job));
  CHECK(same.pinned_in == restore.pinned_in);
  CHECK(same.folder == link + "/checkpoint-3");
  CHECK(restore.shards == std::vector<ShardRange>{{{TableId(0), ShardId(0)}, {0, 170}}});
}

TEST_CASE("Job checkpoint: of one that was given up nothing is left, unless it is complete",
          "[scheduler]") {
  Fixture f;
  const CheckpointPublish half = f.Publish(1);
  std::ofstream(half.folder + "/table-0-shard-1.part.tmp") << "cut short";
  REQUIRE_OK(RemoveGivenUp(f.disk, half.folder));
  CHECK_FALSE(std::filesystem::exists(half.folder));
  REQUIRE_OK(RemoveGivenUp(f.disk, half.folder));  // It is gone already.
  REQUIRE_OK(f.disk.MakeFolder(half.folder));      // A late server creates it again.
  REQUIRE_OK(RemoveGivenUp(f.disk, half.folder));
  CHECK_FALSE(std::filesystem::exists(half.folder));

  const CheckpointPublish whole = f.Publish(2);
  REQUIRE_OK(PublishCheckpoint(f.disk, whole, f.job, 77));
  REQUIRE_OK(RemoveGivenUp(f.disk, whole.folder));
  REQUIRE_OK(FindRestore(f.disk, whole.folder, f.job).status());
}

TEST_CASE("Job checkpoint: a job in the folder of one before leaves that one's checkpoints alone",
          "[scheduler]") {
  Fixture f;
  for (uint64_t id = 1; id <= 3; ++id) {
    const CheckpointPublish publish = f.Publish(id, id == 1 ? "small-2" : f.job.plan.id);
    REQUIRE_OK(PublishCheckpoint(f.disk, publish, f.job, 77));
  }
  f.Remove(CheckpointId(1), {CheckpointId(3)});
  REQUIRE_OK_AND_ASSIGN(const auto left, ListCheckpoints(f.disk, f.job.plan.checkpoint_folder));
  REQUIRE(left.size() == 2);
  CHECK(left[0].id == CheckpointId(3));
  CHECK(left[1].id == CheckpointId(1));
}

TEST_CASE("Job checkpoint: parts name all that they rest on", "[scheduler]") {
  Fixture f;
  for (uint64_t id = 1; id <= 3; ++id) {
    CheckpointPublish publish = f.Publish(id);
    if (id > 1) publish.base = publish.parts.back().base = CheckpointId(id - 1);
    REQUIRE_OK(PublishCheckpoint(f.disk, publish, f.job, 77));
  }
  REQUIRE_OK_AND_ASSIGN(const auto left, ListCheckpoints(f.disk, f.job.plan.checkpoint_folder));
  REQUIRE(left.size() == 3);
  const v1::CheckpointPart& part = left[0].manifest.parts(0);
  REQUIRE(part.bases_size() == 2);
  CHECK(part.bases(0).checkpoint_id() == 1);
  CHECK(part.bases(0).bytes() == part.bytes());
  CHECK(part.bases(1).checkpoint_id() == 2);
  CHECK(part.bases(1).file() == "table-0-shard-0.part");
  CHECK(RestsOn(left[0].manifest) == CheckpointId(1));

  // A base without the shard or without a manifest is refused.
  CheckpointPublish next = f.Publish(4);
  next.base = next.parts.back().base = CheckpointId(3);
  next.parts.back().shard.shard = ShardId(1);
  CHECK_STATUS(PublishCheckpoint(f.disk, next, f.job, 77), absl::StatusCode::kDataLoss,
               "table 0 shard 1 rests on checkpoint 3, which has no such part");
  REQUIRE_OK(f.disk.Remove(left[0].path + "/manifest.pb"));
  CHECK_STATUS(PublishCheckpoint(f.disk, next, f.job, 77), absl::StatusCode::kNotFound,
               "checkpoint-3/manifest.pb");
}

TEST_CASE("Job checkpoint: a job that is another one is refused, with what differs",
          "[scheduler]") {
  Fixture f;
  const CheckpointPublish publish = f.Publish(1);
  REQUIRE_OK(PublishCheckpoint(f.disk, publish, f.job, 77));
  AdmittedJob other = f.job;
  other.spec.mutable_training()->set_batch_size(11);
  other.spec.mutable_training()->set_seed(99);
  other.spec.mutable_consistency()->mutable_asp();
  other.tables[0].set_elements(171);
  const auto refused = FindRestore(f.disk, publish.folder, other).status();
  for (const char* what : {"training.batch_size: 11, the checkpoint has 10", "training.seed",
                           "consistency", "its tables"}) {
    CHECK_STATUS(refused, absl::StatusCode::kInvalidArgument, what);
  }
  // The numbers of workers and servers may differ.
  AdmittedJob wider = f.job;
  wider.spec.mutable_resources()->set_workers(7);
  wider.spec.mutable_resources()->set_servers(5);
  REQUIRE_OK(FindRestore(f.disk, publish.folder, wider));
  CHECK_STATUS(FindRestore(f.disk, f.folder.path() + "/none", f.job), absl::StatusCode::kNotFound,
               "/none");
}

TEST_CASE("Job checkpoint: each field that the state rests on is refused by name, with the reason",
          "[scheduler]") {
  Fixture f;
  f.job.spec.mutable_optimizer()->mutable_rmsprop();
  f.job.spec.mutable_data()->mutable_examples()->set_hash_buckets(7);
  const CheckpointPublish publish = f.Publish(1);
  REQUIRE_OK(PublishCheckpoint(f.disk, publish, f.job, 77));
  const auto changed = [&](const std::function<void(v1::JobSpec&)>& change) {
    AdmittedJob other = f.job;
    change(other.spec);
    return FindRestore(f.disk, publish.folder, other).status();
  };
  const auto refused = [&](const std::string& what,
                           const std::function<void(v1::JobSpec&)>& change) {
    CHECK_STATUS(changed(change), absl::StatusCode::kInvalidArgument, what);
  };
  refused("training.epochs: 0, the checkpoint has trained 1: expected as many or more",
          [](v1::JobSpec& spec) { spec.mutable_training()->set_epochs(0); });
  refused("training.seed: 9, the checkpoint has 1: it orders the samples",
          [](v1::JobSpec& spec) { spec.mutable_training()->set_seed(9); });
  refused("consistency: bsp, the checkpoint has ssp: the modes do not count alike",
          [](v1::JobSpec& spec) { spec.mutable_consistency()->mutable_bsp(); });
  refused("optimizer: adam, the checkpoint has rmsprop: its state would not fit",
          [](v1::JobSpec& spec) { spec.mutable_optimizer()->mutable_adam(); });
  refused(
      "optimizer.rmsprop.momentum: 0.5, the checkpoint has 0: its state would not fit",
      [](v1::JobSpec& spec) { spec.mutable_optimizer()->mutable_rmsprop()->set_momentum(0.5f); });
  refused(
      "model: it differs from the checkpoint's (modified: zoo: \"softmax_regression\" -> \"mlp\")",
      [](v1::JobSpec& spec) { spec.mutable_model()->set_zoo("mlp"); });
  refused("data: it differs from the checkpoint's (modified: train.images: ",
          [](v1::JobSpec& spec) { spec.mutable_data()->mutable_train()->set_images("/other"); });
  refused("data: it differs from the checkpoint's (modified: examples.hash_buckets: 7 -> 8)",
          [](v1::JobSpec& spec) { spec.mutable_data()->mutable_examples()->set_hash_buckets(8); });
  REQUIRE_OK(changed([](v1::JobSpec& spec) {
    spec.mutable_training()->set_epochs(9);
    spec.mutable_optimizer()->set_learning_rate(0.001f);
    spec.mutable_optimizer()->mutable_schedule()->mutable_step()->set_every(5);
    spec.mutable_optimizer()->mutable_rmsprop()->set_alpha(0.5f);
    spec.mutable_consistency()->mutable_ssp()->set_staleness_bound(4);
    spec.mutable_data()->clear_test();
    spec.mutable_data()->mutable_examples()->set_max_bad_fraction(0.5);
    spec.mutable_resources()->set_replicas(1);
    spec.set_durability(v1::LOG);
  }));
}

TEST_CASE("Job checkpoint: another number of images is refused, if the checkpoint has one",
          "[scheduler]") {
  Fixture f;
  AdmittedJob older = f.job;  // Older schedulers wrote no number.
  older.spec.mutable_data()->mutable_train()->clear_block_examples();
  AdmittedJob other = f.job;
  other.spec.mutable_data()->mutable_train()->set_block_examples(0, 7);
  const CheckpointPublish publish = f.Publish(1), older_publish = f.Publish(2);
  REQUIRE_OK(PublishCheckpoint(f.disk, publish, f.job, 77));
  CHECK_STATUS(FindRestore(f.disk, publish.folder, other), absl::StatusCode::kInvalidArgument,
               "data: it differs from the checkpoint's (modified: train.block_examples[0]: ");
  REQUIRE_OK(PublishCheckpoint(f.disk, older_publish, older, 77));
  REQUIRE_OK(FindRestore(f.disk, older_publish.folder, other));
}

TEST_CASE("Job checkpoint: a rule of a plugin goes on only from the same file of the plugin",
          "[scheduler]") {
  Fixture f;
  v1::Plugin& plugin = *f.job.spec.mutable_optimizer()->mutable_plugin();
  plugin.set_rule("signum");
  plugin.set_digest("12ab");
  plugin.add_numbers(0.5);
  const CheckpointPublish publish = f.Publish(1);
  REQUIRE_OK(PublishCheckpoint(f.disk, publish, f.job, 77));
  AdmittedJob other = f.job;
  v1::Plugin& changed = *other.spec.mutable_optimizer()->mutable_plugin();
  changed.set_numbers(0, 0.25);
  REQUIRE_OK(FindRestore(f.disk, publish.folder, other));
  changed.set_digest("34cd");
  CHECK_STATUS(FindRestore(f.disk, publish.folder, other).status(),
               absl::StatusCode::kInvalidArgument,
               "optimizer.plugin.digest: 34cd, the checkpoint has 12ab: another file of the plugin "
               "may keep another state; start servers with that file");
  changed = plugin;
  changed.set_rule("prox");
  CHECK_STATUS(FindRestore(f.disk, publish.folder, other).status(),
               absl::StatusCode::kInvalidArgument,
               "optimizer.plugin.rule: prox, the checkpoint has signum: its state would not fit");
}

TEST_CASE("Job checkpoint: the number of backups may change, but not whether there are any",
          "[scheduler]") {
  Fixture f;
  f.job.plan.consistency = {.slots = 2, .backups = 1};
  f.job.spec.mutable_consistency()->mutable_bsp()->set_backups(1);
  CheckpointPublish publish = f.Publish(1);
  publish.at.iteration = Iteration(3);
  REQUIRE_OK(PublishCheckpoint(f.disk, publish, f.job, 77));
  AdmittedJob other = f.job;
  other.spec.mutable_consistency()->mutable_bsp()->set_backups(2);
  REQUIRE_OK(FindRestore(f.disk, publish.folder, other));
  other.spec.mutable_consistency()->mutable_bsp()->clear_backups();
  CHECK_STATUS(FindRestore(f.disk, publish.folder, other).status(),
               absl::StatusCode::kInvalidArgument,
               "consistency.bsp.backups: 0, the checkpoint has above 0: with backups an epoch ends "
               "with its last whole iteration");
}

TEST_CASE("Job checkpoint: none is made of a part that is not found whole, by name (issue 20)",
          "[scheduler]") {
  Fixture f;
  CheckpointPublish publish = f.Publish(1);
  publish.writers = {{"server-2", "10.0.0.2:7071", Incarnation(5)}};
  const std::string file = publish.folder + "/table-0-shard-0.part";
  const auto refused = [&](const std::string& what) {
    const absl::Status status = PublishCheckpoint(f.disk, publish, f.job, 77);
    CHECK_STATUS(
        status, absl::StatusCode::kDataLoss,
        "server-2 (10.0.0.2:7071) has written table-0-shard-0.part into " + publish.folder);
    CHECK_STATUS(status, absl::StatusCode::kDataLoss, what);
    CHECK_STATUS(status, absl::StatusCode::kDataLoss, "checkpoints.directory");  // The remedy.
    CHECK_STATUS(ReadManifest(f.disk, publish.folder), absl::StatusCode::kNotFound, "manifest.pb");
  };
  SECTION("its folder is the server's own") {
    REQUIRE_OK(f.disk.Remove(file));
    refused("No such file");
  }
  SECTION("it is shorter") {
    std::filesystem::resize_file(file, static_cast<uintmax_t>(publish.parts[0].bytes - 1));
    refused("ends at byte");
  }
  SECTION("it is another one") {
    publish.parts[0].version = Version(6);
    refused("expected job small-3, table 0, shard 0, elements [0, 170), version 6");
  }
  SECTION("its head is damaged") {
    std::fstream(file, std::ios::in | std::ios::out).seekp(30).put('x');
    refused("the header at byte 0 has the checksum");
  }
}

TEST_CASE("Job checkpoint: a manifest with a forged counter is refused, by its name (issue 20)",
          "[scheduler]") {
  Fixture f;
  const auto restore = [&f](const std::function<void(ResumePoint&)>& forge) {
    CheckpointPublish publish = f.Publish(1);
    forge(publish.at);
    REQUIRE_OK(PublishCheckpoint(f.disk, publish, f.job, 77));
    return FindRestore(f.disk, publish.folder, f.job).status();
  };
  constexpr uint64_t kLast = std::numeric_limits<uint64_t>::max();
  constexpr int64_t kTrained = testing::kSmallTrainCount;
  REQUIRE_OK(restore([](ResumePoint&) {}));
  const auto refuses = [&restore](const char* what,
                                  const std::function<void(ResumePoint&)>& forge) {
    CHECK_STATUS(restore(forge), absl::StatusCode::kDataLoss, what);
  };
  // The next incarnation, or the next membership, would be 0.
  refuses("incarnation: 18446744073709551615",
          [](ResumePoint& at) { at.incarnation = Incarnation(kLast); });
  refuses("membership: 18446744073709551615",
          [](ResumePoint& at) { at.membership = Generation(kLast); });
  refuses("epoch: -1", [](ResumePoint& at) { at.epoch = Epoch(-1); });
  refuses("iteration: -1", [](ResumePoint& at) { at.iteration = Iteration(-1); });
  refuses("batches: -1", [](ResumePoint& at) { at.batches = -1; });
  refuses("untrained[0]: [-1, 30)", [](ResumePoint& at) { at.untrained[0].begin = -1; });
  refuses("untrained[1]: [29, 40)", [](ResumePoint& at) { at.untrained[1].begin = 29; });
  refuses("untrained[1]: [41, 40)", [](ResumePoint& at) { at.untrained[1].begin = 41; });
  refuses("untrained[1]: [35, 41)", [](ResumePoint& at) { at.untrained[1].end = kTrained + 1; });
}

}  // namespace
}  // namespace capstan::scheduler::job_checkpoint_test
