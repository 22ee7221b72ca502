// Batches of records from a primary, as bytes, through the checks and the state codec of a replica:
// what is decoded encodes to a message that is decoded to the same.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/wire/message_checksum.h"
#include "proto/parameter_server.pb.h"
#include "server/replication/replica_checks.h"
#include "server/store/gradient.h"
#include "server/store/state_codec.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {
namespace {

void CheckRecord(const v1::ShardRecord& record) {
  const absl::StatusOr<server::ShardRecord> decoded = server::DecodeRecord(record);
  if (!decoded.ok()) return;
  const v1::ShardRecord encoded = server::EncodeRecord(*decoded, server::Gradient());
  const absl::StatusOr<server::ShardRecord> again = server::DecodeRecord(encoded);
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(server::EncodeRecord(*again, server::Gradient()).SerializeAsString() ==
             encoded.SerializeAsString());
}

void CheckState(const v1::ShardSnapshot& snapshot) {
  const auto decoded = server::DecodeState(snapshot.state(), snapshot.position());
  if (!decoded.ok()) return;
  const v1::ShardState encoded = server::EncodeState(*decoded);
  const auto again = server::DecodeState(encoded, snapshot.position());
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(server::EncodeState(*again).SerializeAsString() == encoded.SerializeAsString());
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  v1::ReplicateBatch batch;
  if (!batch.ParseFromArray(data, static_cast<int>(size))) return 0;
  for (const v1::ReplicateRequest& message : batch.messages()) {
    for (const v1::ShardRecord& record : message.records()) CheckRecord(record);
    if (message.has_install()) CheckState(message.install());
  }
  if (batch.messages_size() > 0) {
    FUZZ_CHECK(server::JobOf(batch) == batch.messages(0).job_id());
  }
  server::CheckArrived(batch).IgnoreError();
  batch.DiscardUnknownFields();  // They would come behind the checksum.
  Seal(&batch);
  FUZZ_CHECK(server::CheckArrived(batch).ok());
  return 0;
}

}  // namespace capstan::fuzz
