#include "common/checkpoint/checkpoint_part.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/row_delta.h"
#include "common/checkpoint/shard_file.h"
#include "common/sparse/key_hash.h"
#include "common/storage/testing/sim_disk.h"
#include "common/testing/status_matchers.h"

namespace capstan::checkpoint_part_test {
namespace {

using Keys = std::vector<uint64_t>;

void Put(const void* data, size_t bytes, std::string* to) {
  to->append(static_cast<const char*>(data), bytes);
}

// Rows of two floats, one of state, a count: all as the key's version says. Keys by hash.
class Bucket {
 public:
  void Write(const Keys& keys, uint32_t version) {
    for (const uint64_t key : keys) rows_[KeyHash(key)] = version;
  }
  void Remove(const Keys& keys) {
    for (const uint64_t key : keys) rows_.erase(KeyHash(key));
  }
  // A snapshot of the rows that were written at `from` or later.
  v1::ShardSnapshot Snapshot(int64_t version, uint32_t from = 0) const {
    v1::ShardSnapshot snapshot;
    snapshot.set_elements(1);
    snapshot.set_position(version);
    snapshot.mutable_state()->set_version(version);
    snapshot.set_previous(absl::StrCat("previous ", version));
    snapshot.mutable_bucket()->set_admission(absl::StrCat("filter ", version));
    std::string weights;
    std::string* state = snapshot.add_optimizer_state();
    std::string counts;
    for (const auto& [hash, written] : rows_) {
      if (written < from) continue;
      const uint64_t key = KeyOfHash(hash);
      const float row[] = {static_cast<float>(key), static_cast<float>(written)};
      Put(&key, sizeof(key), snapshot.mutable_values());
      Put(row, sizeof(row), &weights);
      Put(&row[1], sizeof(float), state);
      Put(&written, sizeof(written), &counts);
      Put(&written, sizeof(written), snapshot.mutable_bucket()->mutable_stamps());
    }
    snapshot.mutable_values()->append(weights);
    *snapshot.add_optimizer_state() = counts;
    return snapshot;
  }
  v1::ShardSnapshot Delta(int64_t version, uint64_t base, int64_t since, Keys removed) const {
    v1::ShardSnapshot delta = Snapshot(version, static_cast<uint32_t>(since) + 1);
    delta.mutable_since()->set_checkpoint_id(base);
    delta.mutable_since()->set_version(since);
    std::sort(removed.begin(), removed.end(),
              [](uint64_t a, uint64_t b) { return KeyHash(a) < KeyHash(b); });
    for (const uint64_t key : removed) {
      Put(&key, sizeof(key), delta.mutable_since()->mutable_removed());
    }
    return delta;
  }

 private:
  std::map<uint64_t, uint32_t> rows_;  // The version that wrote each row, keyed by hash.
};

std::string Text(const v1::ShardSnapshot& snapshot) { return snapshot.SerializeAsString(); }

TEST_CASE("RowDelta: base and delta are the whole snapshot, bit by bit", "[common][checkpoint]") {
  Bucket bucket;
  bucket.Write({1, 2, 3, 4, 5, 6, 7, 8}, 3);
  v1::ShardSnapshot base = bucket.Snapshot(3);
  SECTION("rows come, change and leave") {
    bucket.Write({2, 5, 100, 200}, 4);
    bucket.Remove({1, 8, 5});
    const auto delta = bucket.Delta(4, 1, 3, {8, 1, 5, 77});  // 77 came and left in between.
    REQUIRE_OK(ApplyRowDelta(delta, &base));
  }
  SECTION("one leaves and comes back") {
    bucket.Write({4}, 9);
    REQUIRE_OK(ApplyRowDelta(bucket.Delta(9, 1, 3, {4}), &base));
  }
  SECTION("all leave") {
    bucket.Remove({1, 2, 3, 4, 5, 6, 7, 8});
    REQUIRE_OK(ApplyRowDelta(bucket.Delta(5, 1, 3, {1, 2, 3, 4, 5, 6, 7, 8}), &base));
    CHECK(base.values().empty());
  }
  SECTION("nothing happens") { REQUIRE_OK(ApplyRowDelta(bucket.Delta(3, 1, 3, {}), &base)); }
  SECTION("the base is empty") {
    base = Bucket().Snapshot(3);
    bucket.Write({1, 2, 3, 4, 5, 6, 7, 8}, 4);
    REQUIRE_OK(ApplyRowDelta(bucket.Delta(4, 1, 3, {}), &base));
  }
  CHECK(Text(base) == Text(bucket.Snapshot(base.state().version())));
}

TEST_CASE("RowDelta: what does not follow is refused, and changes nothing",
          "[common][checkpoint]") {
  Bucket bucket;
  bucket.Write({1, 2, 3}, 3);
  v1::ShardSnapshot base = bucket.Snapshot(3);
  v1::ShardSnapshot delta = bucket.Delta(5, 1, 3, {});
  std::string expected = "since version 4";
  SECTION("of another version") { delta.mutable_since()->set_version(4); }
  SECTION("half a key") {
    *delta.mutable_since()->mutable_removed() = "1234";
    expected = "4 bytes";
  }
  SECTION("no delta") {
    delta.clear_since();
    expected = "since version 0";
  }
  SECTION("half a row") {
    bucket.Write({1}, 5);
    delta = bucket.Delta(5, 1, 3, {});
    delta.mutable_values()->pop_back();
    delta.mutable_bucket()->mutable_stamps()->append("12345678");
    expected = "12 bytes of stamps";
  }
  SECTION("rows of another rule") {
    delta.mutable_optimizer_state()->RemoveLast();
    expected = "rows of 0 and 0 bytes";
  }
  const std::string before = Text(base);
  CHECK_STATUS(ApplyRowDelta(delta, &base), absl::StatusCode::kDataLoss, expected);
  CHECK(Text(base) == before);
}

// Checkpoints 1, 2 and 4 of one bucket: all rows, then what changed.
struct Chain {
  Chain() {
    bucket.Write({1, 2, 3, 4}, 10);
    Add(1, bucket.Snapshot(10));
    bucket.Write({3, 5}, 20);
    bucket.Remove({1});
    Add(2, bucket.Delta(20, 1, 10, {1}));
    bucket.Write({1, 9}, 30);
    Add(4, bucket.Delta(30, 2, 20, {}));
  }

  void Add(uint64_t id, const v1::ShardSnapshot& snapshot) {
    const std::string folder = CheckpointPath("f", CheckpointId(id));
    REQUIRE_OK(disk.MakeFolder(folder));
    REQUIRE_OK_AND_ASSIGN(
        v1::CheckpointPart part,
        WriteShardFile(disk, folder, "job-1", {TableId(0), ShardId(0)}, {0, 1}, snapshot));
    *part.mutable_bases() = {bases.begin(), bases.end()};
    manifest.Clear();
    manifest.set_format(kManifestFormat);
    manifest.set_job_id("job-1");
    manifest.set_checkpoint_id(id);
    manifest.add_tables()->set_elements(1);
    *manifest.add_parts() = part;
    REQUIRE_OK(WriteManifest(disk, folder, manifest));
    v1::PartBase& base = bases.emplace_back();
    base.set_checkpoint_id(id);
    base.set_version(part.version());
    base.set_file(part.file());
    base.set_bytes(part.bytes());
    base.set_crc32c(part.crc32c());
  }
  absl::StatusOr<v1::ShardSnapshot> Read() {
    return ReadPart(disk, "f/checkpoint-4", "job-1", manifest.parts(0));
  }

  SimDisk disk{1};
  Bucket bucket;
  std::vector<v1::PartBase> bases;
  v1::CheckpointManifest manifest;  // The manifest of the last checkpoint.
};

TEST_CASE("CheckpointPart: what changed is read with all that it rests on",
          "[common][checkpoint]") {
  Chain chain;
  REQUIRE_OK_AND_ASSIGN(const v1::ShardSnapshot read, chain.Read());
  CHECK(Text(read) == Text(chain.bucket.Snapshot(30)));
  CHECK(RestsOn(chain.manifest) == CheckpointId(1));
  REQUIRE_OK(VerifyCheckpoint(chain.disk, "f/checkpoint-4"));
  // The manifests before are not needed.
  REQUIRE_OK(chain.disk.Remove("f/checkpoint-2/manifest.pb"));
  REQUIRE_OK(chain.Read());
}

TEST_CASE("CheckpointPart: a damaged link is named, and the checkpoint before is found",
          "[common][checkpoint]") {
  Chain chain;
  const std::string file = "/table-0-shard-0.part";
  SECTION("the newest") {
    chain.disk.FlipBit("f/checkpoint-4" + file, 900);
    CHECK_STATUS(chain.Read(), absl::StatusCode::kDataLoss, "f/checkpoint-4" + file);
    REQUIRE_OK_AND_ASSIGN(const FoundCheckpoint found, NewestComplete(chain.disk, "f"));
    CHECK(found.path == "f/checkpoint-2");
  }
  SECTION("one between") {
    chain.disk.FlipBit("f/checkpoint-2" + file, 900);
    CHECK_STATUS(chain.Read(), absl::StatusCode::kDataLoss, "f/checkpoint-2" + file);
    REQUIRE_OK_AND_ASSIGN(const FoundCheckpoint found, NewestComplete(chain.disk, "f"));
    CHECK(found.path == "f/checkpoint-1");
    CHECK(found.passed_over.size() == 2);
  }
  SECTION("the first is missing") {
    REQUIRE_OK(RemoveCheckpoint(chain.disk, "f/checkpoint-1"));
    CHECK_STATUS(chain.Read(), absl::StatusCode::kDataLoss, "f/checkpoint-1" + file);
    CHECK_STATUS(NewestComplete(chain.disk, "f"), absl::StatusCode::kNotFound, "passed over");
  }
  SECTION("a file that has all rows stands where what changed is expected") {
    v1::CheckpointPart part = chain.manifest.parts(0);
    part.mutable_bases()->DeleteSubrange(0, 1);
    CHECK_STATUS(ReadPart(chain.disk, "f/checkpoint-4", "job-1", part), absl::StatusCode::kDataLoss,
                 "the file rests on checkpoint 1, the manifest says 0");
  }
}

TEST_CASE("CheckpointPart: a manifest whose links cannot be is refused", "[common][checkpoint]") {
  Chain chain;
  v1::CheckpointPart& part = *chain.manifest.mutable_parts(0);
  SECTION("another base than its files end with") { part.set_base_id(1); }
  SECTION("out of order") { part.mutable_bases()->SwapElements(0, 1); }
  SECTION("versions that go back") { part.mutable_bases(0)->set_version(21); }
  SECTION("of itself") { part.mutable_bases(1)->set_checkpoint_id(4); }
  SECTION("in another folder") { part.mutable_bases(1)->set_file("../x"); }
  CHECK_STATUS(CheckManifest(chain.manifest), absl::StatusCode::kInvalidArgument,
               "rests on checkpoint");
}

}  // namespace
}  // namespace capstan::checkpoint_part_test
