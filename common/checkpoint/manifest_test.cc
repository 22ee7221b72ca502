#include "common/checkpoint/manifest.h"

#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "common/checkpoint/testing/test_checkpoint.h"
#include "common/storage/testing/sim_disk.h"
#include "common/testing/status_matchers.h"

namespace capstan::manifest_test {
namespace {

using testing::MakeManifest;

TEST_CASE("Manifest: what was written is read", "[common][checkpoint]") {
  SimDisk disk(1);
  REQUIRE_OK(disk.MakeFolder("c"));
  CHECK_STATUS(ReadManifest(disk, "c"), absl::StatusCode::kNotFound, "c/manifest.pb");
  REQUIRE_OK(WriteManifest(disk, "c", MakeManifest(3)));
  disk.Crash(SimDisk::Unsynced::kLost);
  REQUIRE_OK_AND_ASSIGN(const v1::CheckpointManifest manifest, ReadManifest(disk, "c"));
  CHECK(manifest.DebugString() == MakeManifest(3).DebugString());
}

TEST_CASE("Manifest: any flipped bit is found and named", "[common][checkpoint]") {
  SimDisk disk(1);
  REQUIRE_OK(disk.MakeFolder("c"));
  REQUIRE_OK(WriteManifest(disk, "c", MakeManifest(3)));
  for (int64_t bit = 0; bit < disk.bytes() * 8; ++bit) {
    disk.FlipBit("c/manifest.pb", bit);
    const absl::Status status = ReadManifest(disk, "c").status();
    INFO("bit " << bit << ": " << status);
    REQUIRE(status.code() == absl::StatusCode::kDataLoss);
    REQUIRE(std::string(status.message()).find("c/manifest.pb") == 0);
    disk.FlipBit("c/manifest.pb", bit);
  }
}

TEST_CASE("Manifest: one that cannot be is refused before it is written", "[common][checkpoint]") {
  const struct {
    std::string text;
    std::function<void(v1::CheckpointManifest&)> change;
  } cases[] = {
      {"format is 3, expected 2", [](auto& m) { m.set_format(3); }},
      {"job_id is empty", [](auto& m) { m.clear_job_id(); }},
      {"checkpoint_id is 0", [](auto& m) { m.set_checkpoint_id(0); }},
      {"tables[1] is table 2", [](auto& m) { m.mutable_tables(1)->set_table(2); }},
      {"expected table 0, shard 1, elements from 40",
       [](auto& m) { m.mutable_parts(1)->set_element_begin(39); }},
      {"expected table 0, shard 1, elements from 40",
       [](auto& m) { m.mutable_parts()->SwapElements(1, 2); }},
      {"expected table 0, shard 1, elements from 40",
       [](auto& m) { m.mutable_parts(1)->set_element_end(65); }},
      {"expected table 0, shard 0", [](auto& m) { m.mutable_parts()->DeleteSubrange(0, 1); }},
      {"the parts of table 1 end at element 0, expected 8",
       [](auto& m) { m.mutable_parts()->RemoveLast(); }},
      {"expected table 2, shard 0",
       [](auto& m) {
         *m.add_parts() = m.parts(2);
         m.mutable_parts(3)->set_shard(1);
       }},
      {"without '/'", [](auto& m) { m.mutable_parts(0)->set_file("../secret"); }},
      {"file '..' of 100 bytes, expected a file name",
       [](auto& m) {
         m.mutable_parts(0)->set_file("..");
         m.mutable_parts(0)->set_bytes(100);
       }},
      {"file '.'", [](auto& m) { m.mutable_parts(0)->set_file("."); }},
      {"file 'a\\x00z'", [](auto& m) { m.mutable_parts(0)->set_file(std::string("a\0z", 3)); }},
      {"file '" + std::string(256, 'a') + "'",
       [](auto& m) { m.mutable_parts(0)->set_file(std::string(256, 'a')); }},
      {"rests on checkpoint 2 at version 0, file '..'",
       [](auto& m) {
         v1::PartBase& base = *m.mutable_parts(0)->add_bases();
         base.set_checkpoint_id(2);
         base.set_file("..");
         base.set_bytes(1);
       }},
      {"at least 1 byte", [](auto& m) { m.mutable_parts(0)->set_bytes(0); }},
  };
  for (const auto& [text, change] : cases) {
    SimDisk disk(1);
    REQUIRE_OK(disk.MakeFolder("c"));
    v1::CheckpointManifest manifest = MakeManifest(3);
    change(manifest);
    CHECK_STATUS(WriteManifest(disk, "c", manifest), absl::StatusCode::kInvalidArgument, text);
    CHECK(disk.files().empty());
  }
}

TEST_CASE("Manifest: tables of no elements need no parts", "[common][checkpoint]") {
  v1::CheckpointManifest manifest = MakeManifest(3);
  manifest.mutable_tables(1)->set_elements(0);
  CHECK_STATUS(CheckManifest(manifest), absl::StatusCode::kInvalidArgument, "table 1");
  manifest.mutable_parts()->RemoveLast();
  REQUIRE_OK(CheckManifest(manifest));
}

}  // namespace
}  // namespace capstan::manifest_test
