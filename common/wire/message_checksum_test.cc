#include "common/wire/message_checksum.h"

#include <string>

#include "common/testing/status_matchers.h"
#include "proto/parameter_server.pb.h"

namespace capstan::message_checksum_test {
namespace {

constexpr auto kDataLoss = absl::StatusCode::kDataLoss;

v1::ReplicateRequest Records(size_t bytes_each) {
  v1::ReplicateRequest request;
  request.set_job_id("job-1");
  request.set_term(7);
  for (int i = 0; i < 3; ++i) {
    v1::ShardRecord* record = request.add_records();
    record->set_position(100 + i);
    record->mutable_update()->set_version(i);
    record->set_values(std::string(bytes_each, static_cast<char>('a' + i)));
  }
  return request;
}

TEST_CASE("Message checksum: a message passes, whatever its size", "[wire]") {
  for (const size_t size : {0, 1, 4000, 4096, 5000, 1 << 20}) {
    CAPTURE(size);
    v1::ReplicateRequest request = Records(size);
    Seal(&request);
    Seal(&request);  // Its own field does not count.
    v1::ReplicateRequest arrived;
    REQUIRE(arrived.ParseFromString(request.SerializeAsString()));
    REQUIRE_OK(CheckSeal(arrived, "replicate"));
  }
}

TEST_CASE("Message checksum: a message without one is refused by name", "[wire]") {
  CHECK_STATUS(CheckSeal(v1::ReplicateRequest(), "replicate"), kDataLoss,
               "replicate: it has no checksum");
}

TEST_CASE("Message checksum: every flipped bit is found", "[wire]") {
  v1::ReplicateRequest request = Records(40);
  Seal(&request);
  const std::string bytes = request.SerializeAsString();
  int found = 0;
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    v1::ReplicateRequest arrived;
    if (!arrived.ParseFromString(damaged)) continue;  // gRPC refuses it.
    const absl::Status status = CheckSeal(arrived, "replicate");
    CAPTURE(bit);
    REQUIRE(!status.ok());
    CHECK(absl::IsDataLoss(status));
    ++found;
  }
  CHECK(found > 500);
}

// The answer of a push as a newer server might send it: a pull's has the same fields and others, of
// the message and of its entries.
v1::PullResponse NewerPushResponse() {
  v1::PullResponse newer;
  v1::ShardValues* shard = newer.add_shards();
  shard->set_outcome(v1::ShardValues::VALUES);
  shard->set_version(3);
  shard->set_staleness(2);
  shard->set_values(std::string(5000, 'v'));
  newer.set_unknown_key_list(true);
  Seal(&newer);
  return newer;
}

TEST_CASE("Message checksum: a newer sender's fields are covered, wherever they are", "[wire]") {
  const std::string bytes = NewerPushResponse().SerializeAsString();
  v1::PushResponse arrived;
  REQUIRE(arrived.ParseFromString(bytes));
  CHECK(arrived.shards(0).version() == 3);
  REQUIRE(arrived.GetReflection()->GetUnknownFields(arrived).field_count() == 1);
  REQUIRE_OK(CheckSeal(arrived, "push"));
  int found = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
    if (!arrived.ParseFromString(damaged)) continue;
    CAPTURE(at);
    CHECK(absl::IsDataLoss(CheckSeal(arrived, "push")));
    ++found;
  }
  CHECK(found > 4900);
  // A field with a higher number than the checksum's.
  v1::ReplicateBatch batch;
  batch.add_messages()->set_term(7);
  batch.GetReflection()->MutableUnknownFields(&batch)->AddVarint(3, 1);
  Seal(&batch);
  v1::ReplicateBatch later;
  REQUIRE(later.ParseFromString(batch.SerializeAsString()));
  REQUIRE_OK(CheckSeal(later, "replicate"));
  later.GetReflection()->MutableUnknownFields(&later)->AddVarint(3, 1);
  CHECK(absl::IsDataLoss(CheckSeal(later, "replicate")));
}

TEST_CASE("Message checksum: both sums are named", "[wire]") {
  v1::InstallPart part;
  part.set_request("bytes");
  Seal(&part);
  part.set_request("bites");
  CHECK_STATUS(CheckSeal(part, "install"), kDataLoss, "install: its bytes have the checksum");
}

}  // namespace
}  // namespace capstan::message_checksum_test
