#include "common/shared_memory/shared_values.h"

#include <cstring>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/shared_memory/range_allocator.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

void CopyOut(const absl::Cord& values, char* to) {
  for (const absl::string_view piece : values.Chunks()) {
    std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
}

absl::Status CheckRange(const SharedSegment& segment, int shard, const v1::SharedRange& range) {
  const auto size = static_cast<uint64_t>(segment.size());
  if (range.offset() <= size && range.bytes() <= size - range.offset()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("entry ", shard, " names ", range.bytes(), " bytes of shared memory at offset ",
                   range.offset(), ": expected a range within ", size, " bytes"));
}

// Moves one entry's values into shared memory and notes their place in `shard`.
template <typename Shard>
void PutOne(SharedSegment& segment, int64_t offset, Shard* shard, absl::Cord* values) {
  if (values->empty()) return;
  CopyOut(*values, segment.data() + offset);
  shard->mutable_shared()->set_offset(static_cast<uint64_t>(offset));
  shard->mutable_shared()->set_bytes(values->size());
  values->Clear();
}

template <typename Message>
absl::Status TakeAll(const std::shared_ptr<SharedSegment>& segment, Message* message) {
  for (int i = 0; i < message->head.shards_size(); ++i) {
    auto* shard = message->head.mutable_shards(i);
    if (!shard->has_shared()) continue;
    absl::Cord& values = message->values[static_cast<size_t>(i)];
    if (!values.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "entry ", i, " has values in the message and in shared memory: expected one of the two"));
    }
    CAPSTAN_RETURN_IF_ERROR(CheckRange(*segment, i, shard->shared()));
    const absl::string_view bytes(segment->data() + shard->shared().offset(),
                                  shard->shared().bytes());
    if (!bytes.empty()) values = absl::MakeCordFromExternal(bytes, [segment] {});
    shard->clear_shared();
  }
  return absl::OkStatus();
}

}  // namespace

int64_t RoomBytes(absl::Span<const int64_t> sizes) {
  int64_t bytes = 0;
  for (const int64_t size : sizes) bytes += RangeAllocator::RoundUp(size);
  return bytes;
}

void PutValues(const MessageRoom& room, PushMessage* push) {
  push->head.set_segment(room.name);
  int64_t offset = room.offset;
  for (int i = 0; i < push->head.shards_size(); ++i) {
    absl::Cord& values = push->values[static_cast<size_t>(i)];
    const auto size = static_cast<int64_t>(values.size());
    PutOne(*room.segment, offset, push->head.mutable_shards(i), &values);
    offset += RangeAllocator::RoundUp(size);
  }
}

void NameRoom(const MessageRoom& room, absl::Span<const int64_t> sizes, v1::PullRequest* request) {
  request->set_segment(room.name);
  int64_t offset = room.offset;
  for (int i = 0; i < request->shards_size(); ++i) {
    v1::SharedRange* range = request->mutable_shards(i)->mutable_room();
    range->set_offset(static_cast<uint64_t>(offset));
    range->set_bytes(static_cast<uint64_t>(sizes[static_cast<size_t>(i)]));
    offset += RangeAllocator::RoundUp(sizes[static_cast<size_t>(i)]);
  }
}

void PutValues(const std::shared_ptr<SharedSegment>& segment, const v1::PullRequest& request,
               PullAnswer* answer) {
  for (int i = 0; i < answer->head.shards_size(); ++i) {
    absl::Cord& values = answer->values[static_cast<size_t>(i)];
    const v1::SharedRange& room = request.shards(i).room();
    if (values.size() > room.bytes()) continue;
    PutOne(*segment, static_cast<int64_t>(room.offset()), answer->head.mutable_shards(i), &values);
  }
}

absl::Status TakeValues(const std::shared_ptr<SharedSegment>& segment, PushMessage* push) {
  return TakeAll(segment, push);
}

absl::Status TakeValues(const std::shared_ptr<SharedSegment>& segment, PullAnswer* answer) {
  return TakeAll(segment, answer);
}

absl::Status CheckRooms(const SharedSegment& segment, const v1::PullRequest& request) {
  for (int i = 0; i < request.shards_size(); ++i) {
    if (!request.shards(i).has_room()) continue;
    CAPSTAN_RETURN_IF_ERROR(CheckRange(segment, i, request.shards(i).room()));
  }
  return absl::OkStatus();
}

}  // namespace capstan
