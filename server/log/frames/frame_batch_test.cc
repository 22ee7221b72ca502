#include "server/log/frames/frame_batch.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "proto/parameter_server.pb.h"
#include "server/log/frames/record_file.h"

namespace capstan::server::frame_batch_test {
namespace {

// Remembers each write.
class Writes final : public WritableFile {
 public:
  absl::Status Append(absl::string_view bytes) override {
    pieces.push_back(bytes);
    all.append(bytes.data(), bytes.size());
    return pieces.size() == fail_at ? absl::UnavailableError("full") : absl::OkStatus();
  }
  absl::Status Sync() override { return absl::OkStatus(); }

  std::vector<absl::string_view> pieces;
  std::string all;
  size_t fail_at = 0;
};

v1::ShardSnapshot SnapshotOf(size_t value_bytes, size_t state_bytes) {
  v1::ShardSnapshot snapshot;
  snapshot.set_position(7);
  snapshot.mutable_state()->set_version(1'000'000);
  snapshot.set_values(std::string(value_bytes, 'v'));
  snapshot.add_optimizer_state(std::string(state_bytes, 'm'));
  snapshot.add_optimizer_state(std::string(state_bytes, 'n'));
  return snapshot;
}

TEST_CASE("FrameBatch: its bytes are those of frames with the serialized messages",
          "[server][storage]") {
  const size_t value_bytes = GENERATE(0, 1, 63, 64, 99, 100, 1000, 100'000);
  const size_t state_bytes = GENERATE(0, 100, 5000);
  const v1::ShardSnapshot snapshot = SnapshotOf(value_bytes, state_bytes);
  v1::ShardRecord record;
  record.set_position(8);
  record.mutable_push()->set_sequence(3);
  record.set_values(std::string(value_bytes, 'g'));
  std::string expected;
  AppendFrame({1, 0, 5}, "begin", &expected);
  AppendFrame({2, 1, 5}, "head" + snapshot.SerializeAsString(), &expected);
  AppendFrame({3, 2, 5}, record.SerializeAsString(), &expected);
  AppendFrame({4, 3, 5}, "", &expected);

  FrameBatch batch(/*lent_bytes_min=*/GENERATE(1, 100, 1 << 20));
  for (int again = 0; again < 2; ++again) {
    CHECK(batch.empty());
    batch.Append({1, 0, 5}, "begin", nullptr);
    batch.Append({2, 1, 5}, "head", &snapshot);
    batch.Append({3, 2, 5}, "", &record);
    batch.Append({4, 3, 5}, "", nullptr);
    Writes file;
    REQUIRE_OK(batch.WriteTo(file));
    CHECK(file.all == expected);
    CHECK(batch.bytes() == static_cast<int64_t>(expected.size()));
    CHECK_FALSE(batch.empty());
    batch.Clear();
    CHECK(batch.bytes() == 0);
  }
}

TEST_CASE("FrameBatch: a large field is written from where it lies", "[server][storage]") {
  const v1::ShardSnapshot snapshot = SnapshotOf(FrameBatch::kLentBytesMin, 10);
  FrameBatch batch;
  batch.Append({2, 0, 5}, "head", &snapshot);
  Writes file;
  REQUIRE_OK(batch.WriteTo(file));
  REQUIRE(file.pieces.size() == 3);
  CHECK(file.pieces[1].data() == snapshot.values().data());
}

TEST_CASE("FrameBatch: the first error of the file ends the writing", "[server][storage]") {
  const v1::ShardSnapshot snapshot = SnapshotOf(200, 200);
  FrameBatch batch(/*lent_bytes_min=*/200);
  batch.Append({2, 0, 5}, "head", &snapshot);
  Writes file;
  file.fail_at = 2;
  CHECK_STATUS(batch.WriteTo(file), absl::StatusCode::kUnavailable, "full");
  CHECK(file.pieces.size() == 2);
}

}  // namespace
}  // namespace capstan::server::frame_batch_test
