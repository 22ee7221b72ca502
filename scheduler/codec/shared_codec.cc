#include "scheduler/codec/shared_codec.h"

#include "absl/strings/str_cat.h"
#include "common/observability/utf8.h"

namespace capstan::scheduler {
namespace {

constexpr size_t kFailureBytesMax = 16 << 10;

}  // namespace

std::string Cut(const std::string& text, size_t bytes_max) {
  return ToValidUtf8(text.substr(0, bytes_max));
}

Failure DecodeFailure(const v1::Failure& failure) {
  const std::string message = Cut(failure.message(), kFailureBytesMax);
  switch (failure.reason()) {
    case v1::Failure::REASON_UNSPECIFIED:
      return {FailureReason::kNone, message};
    case v1::Failure::USER_ERROR:
      return {FailureReason::kUserError, message};
    case v1::Failure::BAD_DATA:
      return {FailureReason::kBadData, message};
    case v1::Failure::DIVERGED:
      return {FailureReason::kDiverged, message};
    case v1::Failure::OUT_OF_MEMORY:
      return {FailureReason::kOutOfMemory, message};
    case v1::Failure::NO_HEARTBEAT:
      return {FailureReason::kNoHeartbeat, message};
    case v1::Failure::TASK_CRASHED:
      return {FailureReason::kTaskCrashed, message};
    case v1::Failure::SERVER_LOST:
      return {FailureReason::kServerLost, message};
    case v1::Failure::HANG:
      return {FailureReason::kHang, message};
    case v1::Failure::OUTPUT_FAILED:
      return {FailureReason::kOutputFailed, message};
    case v1::Failure::DEVICE_LOST:
      return {FailureReason::kDeviceLost, message};
    default:
      return {FailureReason::kInternal, message};
  }
}

void EncodeFailure(const Failure& failure, v1::Failure& out) {
  out.set_message(ToValidUtf8(failure.message));  // Stored ones may have been cut.
  switch (failure.reason) {
    case FailureReason::kNone:
      out.set_reason(v1::Failure::REASON_UNSPECIFIED);
      break;
    case FailureReason::kUserError:
      out.set_reason(v1::Failure::USER_ERROR);
      break;
    case FailureReason::kBadData:
      out.set_reason(v1::Failure::BAD_DATA);
      break;
    case FailureReason::kDiverged:
      out.set_reason(v1::Failure::DIVERGED);
      break;
    case FailureReason::kOutOfMemory:
      out.set_reason(v1::Failure::OUT_OF_MEMORY);
      break;
    case FailureReason::kNoHeartbeat:
      out.set_reason(v1::Failure::NO_HEARTBEAT);
      break;
    case FailureReason::kTaskCrashed:
      out.set_reason(v1::Failure::TASK_CRASHED);
      break;
    case FailureReason::kServerLost:
      out.set_reason(v1::Failure::SERVER_LOST);
      break;
    case FailureReason::kHang:
      out.set_reason(v1::Failure::HANG);
      break;
    case FailureReason::kInternal:
      out.set_reason(v1::Failure::INTERNAL);
      break;
    case FailureReason::kDeviceLost:
      out.set_reason(v1::Failure::DEVICE_LOST);
      break;
    case FailureReason::kOutputFailed:
      out.set_reason(v1::Failure::OUTPUT_FAILED);
      break;
  }
}

void EncodeRouting(const Routing& routing, v1::RoutingTable& out) {
  out.set_job_id(routing.job);
  out.set_generation(routing.generation.value());
  for (const ShardRoute& shard : routing.shards) {
    v1::ShardRoute& route = *out.add_shards();
    route.set_table(shard.key.table.value());
    route.set_shard(shard.key.shard.value());
    route.set_element_begin(shard.elements.begin);
    route.set_element_end(shard.elements.end);
    route.set_server(shard.server);
    route.set_term(shard.term.value());
    route.set_hands_over(shard.hands_over);
    route.set_awaits_log(shard.awaits_log);
    for (const ReplicaRef& replica : shard.replicas) {
      v1::ShardReplica& out_replica = *route.add_replicas();
      out_replica.set_server(replica.server);
      out_replica.set_in_sync(replica.in_sync);
    }
  }
  for (const ServerRef& server : routing.servers) {
    v1::ServerAddress& address = *out.add_servers();
    address.set_node_id(server.node);
    address.set_address(server.address);
    address.set_incarnation(server.incarnation.value());
  }
}

CheckpointPart DecodePart(const v1::CheckpointPart& part) {
  return {.shard = {TableId(part.table()), ShardId(part.shard())},
          .elements = {part.element_begin(), part.element_end()},
          .version = Version(part.version()),
          .file = part.file(),
          .bytes = part.bytes(),
          .crc32c = part.crc32c(),
          .base = CheckpointId(part.base_id())};
}

void EncodePart(const CheckpointPart& part, v1::CheckpointPart& out) {
  out.set_table(part.shard.table.value());
  out.set_shard(part.shard.shard.value());
  out.set_element_begin(part.elements.begin);
  out.set_element_end(part.elements.end);
  out.set_version(part.version.value());
  out.set_file(part.file);
  out.set_bytes(part.bytes);
  out.set_crc32c(part.crc32c);
  out.set_base_id(part.base.value());
}

absl::Status CheckProtocolVersion(v1::ProtocolVersion version) {
  if (version == v1::PROTOCOL_VERSION_CURRENT) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "protocol version ", static_cast<int>(version), " meets a scheduler of version ",
      static_cast<int>(v1::PROTOCOL_VERSION_CURRENT), "; use programs of one Capstan release"));
}

}  // namespace capstan::scheduler
