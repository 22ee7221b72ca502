// Converts the session's messages to protobuf and back: pure functions, no channels or threads.
//
// TableArrays has one fp32 array per table, by table id. It is as long as the table; for a sparse
// table it has a row for each key of the operation. Pushes lend their arrays to the message; pulls
// copy values to their places. Thread safety: the functions have no state.
#ifndef CAPSTAN_WORKER_CLIENT_MESSAGES_MESSAGE_CODEC_H_
#define CAPSTAN_WORKER_CLIENT_MESSAGES_MESSAGE_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
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

// Arrays by table id of values that this side, too, keeps in the 16-bit format in which they travel
// (Formats): they are neither rounded nor widened here. Tables whose array is empty or missing are
// fp32, in TableArrays.
using HalfArrays = std::vector<std::vector<uint16_t>>;

// The fp32 values that a push reads: of all tables, or of one.
struct PushArrays {
  PushArrays(std::nullptr_t = nullptr) {}             // NOLINT: there is no push.
  PushArrays(std::shared_ptr<const TableArrays> all)  // NOLINT: what most pushes read.
      : tables(all.get()), owner(std::move(all)) {}
  // `values` stay as they are while `kept` has owners.
  PushArrays(TableId table, absl::Span<const float> values, std::shared_ptr<const void> kept)
      : lone_table(table), lone(values), owner(std::move(kept)) {}
  // Empty: it has none of this table.
  absl::Span<const float> Of(TableId table) const {
    const auto index = static_cast<size_t>(table.value());
    if (tables == nullptr) return table == lone_table ? lone : absl::Span<const float>();
    return index < tables->size() ? absl::MakeConstSpan((*tables)[index])
                                  : absl::Span<const float>();
  }
  const TableArrays* tables = nullptr;  // Null: only `lone`.
  TableId lone_table;
  absl::Span<const float> lone;
  std::shared_ptr<const void> owner;  // Keeps the values alive and unchanged.
};

// The arrays that a pull writes: of all tables, or of one. Snapshots are fp32 and go to `floats`,
// even if there are `halves`.
struct PullArrays {
  PullArrays(TableArrays* to) : floats(to) {}  // NOLINT: without halves.
  PullArrays(TableArrays* to, HalfArrays* to_halves) : floats(to), halves(to_halves) {}
  PullArrays(TableId table, absl::Span<float> values) : lone_table(table), lone(values) {}
  // Empty: it has none of this table.
  absl::Span<float> FloatsOf(TableId table) const {
    const auto index = static_cast<size_t>(table.value());
    if (floats == nullptr) return table == lone_table ? lone : absl::Span<float>();
    return index < floats->size() ? absl::MakeSpan((*floats)[index]) : absl::Span<float>();
  }
  // The address of a table's element: in `halves` if `half`, else in its floats.
  char* PlaceOf(TableId table, int64_t element, bool half) const {
    return half ? reinterpret_cast<char*>((*halves)[static_cast<size_t>(table.value())].data() +
                                          element)
                : reinterpret_cast<char*>(FloatsOf(table).data() + element);
  }
  bool IsPull() const { return floats != nullptr || lone.data() != nullptr; }
  TableArrays* floats = nullptr;  // Null: only `lone`.
  HalfArrays* halves = nullptr;   // May be null.
  TableId lone_table;
  absl::Span<float> lone;
};

// The keys whose rows of a sparse table an operation reads or writes.
struct TableKeys {
  std::shared_ptr<const KeyBatch> batch;  // Null: the table is dense.
  int64_t dim = 0;
  // Pull: the keys whose rows must be sent; the other rows are in the array already. Null: all.
  std::shared_ptr<const WantedKeys> wanted = nullptr;
};
using AllTableKeys = std::vector<TableKeys>;  // Indexed by table id; missing tables are dense.

// How a message carries the keys of a shard. A pull that sends keys with their name lets the server
// keep the list; later messages send the name alone (proto/rows.proto, KeyListName).
enum class KeyForm : uint8_t { kKeys, kKeysAndName, kName };
using KeyForms = absl::Span<const KeyForm>;  // One for each shard; empty: all kKeys.

// Identifies the calling task.
struct CallerId {
  JobId job;
  Rank rank;
  Incarnation incarnation;
};

// How a table's numbers travel, except in snapshots, which are always fp32.
struct TableFormats {
  NumberFormat gradients = NumberFormat::kFp32;
  NumberFormat parameters = NumberFormat::kFp32;
};
using Formats = std::vector<TableFormats>;  // Indexed by table id; missing tables are fp32.

// The format in which a shard's values travel in this message.
NumberFormat FormatIn(const SendMessage& message, const SendMessage::Shard& shard,
                      const Formats& formats);
// True if the shard's values are in an array of `halves`, which may be null.
bool IsHalf(const SendMessage& message, const SendMessage::Shard& shard, const Formats& formats,
            const HalfArrays* halves);
// The keys of the shard's table. No batch: the table is dense.
TableKeys KeysOf(const SendMessage::Shard& shard, const AllTableKeys& keys);
// The range of the shard's values in its table's array.
Range PartOf(const SendMessage::Shard& shard, const AllTableKeys& keys);

// The arguments of PushPullSession::OnReply beside the status.
struct DecodedReply {
  std::vector<ShardReply> shards;
  std::vector<Waiting> waiting;
  // The server does not have a list that the message names, and has done nothing: no shard is
  // ready, and the message must be sent again, with keys.
  bool unknown_key_list = false;
};

// The bytes of each shard's values, in the direction in which the message carries values. In pushes
// they include the keys in front of the values.
std::vector<int64_t> ValueSizes(const SendMessage& message, const Formats& formats,
                                const AllTableKeys& keys = {}, KeyForms forms = {});

// Errors: kInvalidArgument  a shard names a server or a range that is not there.
absl::StatusOr<Routing> DecodeRouting(const v1::RoutingTable& routing);

// Values that travel in the format that they have here are lent to the message, which keeps their
// array alive; others are converted. REQUIRES: the arrays of `gradient` cover the message's shards,
// whose elements do not change any more.
PushMessage EncodePush(const CallerId& caller, const SendMessage& message,
                       const PushArrays& gradient, const Formats& formats = {},
                       const AllTableKeys& keys = {}, KeyForms forms = {},
                       const std::shared_ptr<const HalfArrays>& halves = nullptr);
// `wait_limit`: the longest time that the server holds the pull. REQUIRES: `request` is empty.
void EncodePull(const CallerId& caller, const SendMessage& message, absl::Duration wait_limit,
                v1::PullRequest* request, const Formats& formats = {},
                const AllTableKeys& keys = {}, KeyForms forms = {});

// DecodePush and DecodePull check the response against the message that it answers.
// Errors: kInternal  another number of shards, an unknown outcome or value type, or values of
// another length than their shard's; `destination` may have the values of earlier shards then.
absl::StatusOr<DecodedReply> DecodePush(const SendMessage& message,
                                        const v1::PushResponse& response);
// Copies the values to their places in `destination`, whose arrays cover the message's shards.
// `formats`: the formats that were asked for; used only for tables that have halves.
absl::StatusOr<DecodedReply> DecodePull(const SendMessage& message, const PullAnswer& answer,
                                        const PullArrays& destination,
                                        const AllTableKeys& keys = {}, const Formats& formats = {});

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CLIENT_MESSAGES_MESSAGE_CODEC_H_
