// The session's messages as protobuf and back: pure functions, without channels or threads.
//
// Arrays: one of fp32 a table, by table id: each as long as the table, or, of a sparse one, with a
// row for each key of the operation. Pushes lend them to their message, pulls copy values to their
// places. Thread safety: functions without state.
#ifndef CAPSTAN_WORKER_CLIENT_MESSAGE_CODEC_H_
#define CAPSTAN_WORKER_CLIENT_MESSAGE_CODEC_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/sparse/key_batch.h"
#include "common/sparse/wanted_keys.h"
#include "common/types/ids.h"
#include "common/wire/number_format.h"
#include "common/wire/tensor_message.h"
#include "proto/parameter_server.pb.h"
#include "worker/core/push_pull_session.h"

namespace capstan::worker {

using TableArrays = std::vector<std::vector<float>>;

// Arrays by table id of values that are halves on this side, too, in the format in which they
// travel (Formats): they are neither rounded nor widened here. An empty one, and those beyond:
// fp32, in TableArrays.
using HalfArrays = std::vector<std::vector<uint16_t>>;

// Where a pull writes. Snapshots are fp32: they go to `floats`, whatever there is of `halves`.
struct PullArrays {
  PullArrays(TableArrays* to) : floats(to) {}  // NOLINT: without halves.
  PullArrays(TableArrays* to, HalfArrays* to_halves) : floats(to), halves(to_halves) {}
  // Where a table's element is, in one or the other.
  char* PlaceOf(TableId table, int64_t element, bool half) const {
    const auto index = static_cast<size_t>(table.value());
    return half ? reinterpret_cast<char*>((*halves)[index].data() + element)
                : reinterpret_cast<char*>((*floats)[index].data() + element);
  }
  TableArrays* floats = nullptr;  // Null: there is no pull.
  HalfArrays* halves = nullptr;   // May be null.
};

// What an operation reads or writes of a sparse table: the rows of these keys.
struct TableKeys {
  std::shared_ptr<const KeyBatch> batch;  // Null: the table is dense.
  int64_t dim = 0;
  // A pull: those whose rows are to be sent; the others are in the array already. Null: all.
  std::shared_ptr<const WantedKeys> wanted = nullptr;
};
using AllTableKeys = std::vector<TableKeys>;  // By table id; tables beyond it are dense.

// How a message carries the keys of a shard. A pull that brings their name, too, lets the server
// keep them; then the name alone will do (proto/rows.proto, KeyListName).
enum class KeyForm : uint8_t { kKeys, kKeysAndName, kName };
using KeyForms = absl::Span<const KeyForm>;  // By shard of the message; none: all kKeys.

// Who calls.
struct CallerId {
  JobId job;
  Rank rank;
  Incarnation incarnation;
};

// How a table's numbers travel. Snapshots are fp32, whatever it says.
struct TableFormats {
  NumberFormat gradients = NumberFormat::kFp32;
  NumberFormat parameters = NumberFormat::kFp32;
};
using Formats = std::vector<TableFormats>;  // By table id; tables beyond it: fp32.

// Of a shard: how its values travel in this message, the keys of its table (without a batch: it is
// dense), and where the values are in its table's array.
NumberFormat FormatIn(const SendMessage& message, const SendMessage::Shard& shard,
                      const Formats& formats);
// Whether they are in an array of `halves`, which may be null.
bool IsHalf(const SendMessage& message, const SendMessage::Shard& shard, const Formats& formats,
            const HalfArrays* halves);
TableKeys KeysOf(const SendMessage::Shard& shard, const AllTableKeys& keys);
Range PartOf(const SendMessage::Shard& shard, const AllTableKeys& keys);

// What OnReply wants beside the status.
struct DecodedReply {
  std::vector<ShardReply> shards;
  std::vector<Waiting> waiting;
  // The server does not keep a list that the message names, and has done nothing: no shard is
  // ready, and all are to be asked for once more, with keys.
  bool unknown_key_list = false;
};

// Bytes of the values of each shard of a message, in its direction, with keys that stand in front
// of them.
std::vector<int64_t> ValueSizes(const SendMessage& message, const Formats& formats,
                                const AllTableKeys& keys = {}, KeyForms forms = {});

// Errors: kInvalidArgument  a shard names a server or a range that is not there.
absl::StatusOr<Routing> DecodeRouting(const v1::RoutingTable& routing);

// Values that travel as they are here are lent to the message, which keeps them alive; others are
// made. REQUIRES: the arrays of `gradient` cover the message's shards, and do not change any more
// there.
PushMessage EncodePush(const CallerId& caller, const SendMessage& message,
                       const std::shared_ptr<const TableArrays>& gradient,
                       const Formats& formats = {}, const AllTableKeys& keys = {},
                       KeyForms forms = {},
                       const std::shared_ptr<const HalfArrays>& halves = nullptr);
// `wait_limit`: longest time that the server holds the pull. REQUIRES: `request` is empty.
void EncodePull(const CallerId& caller, const SendMessage& message, absl::Duration wait_limit,
                v1::PullRequest* request, const Formats& formats = {},
                const AllTableKeys& keys = {}, KeyForms forms = {});

// Both check the response against the message that it answers.
// Errors: kInternal  another number of shards, an unknown outcome or value type, or values of
// another length than their shard's; `*destination` may hold the values of shards before it.
absl::StatusOr<DecodedReply> DecodePush(const SendMessage& message,
                                        const v1::PushResponse& response);
// Copies the values to their places in `destination`, whose arrays cover the message's shards.
// `formats`: those that were asked for; read only where there are halves.
absl::StatusOr<DecodedReply> DecodePull(const SendMessage& message, const PullAnswer& answer,
                                        const PullArrays& destination,
                                        const AllTableKeys& keys = {}, const Formats& formats = {});

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CLIENT_MESSAGE_CODEC_H_
