// Values of messages that lie in shared memory instead of the messages.
//
//   push:  caller PutValues(room, &push) -- head names ranges --> server TakeValues(segment, &push)
//   pull:  caller NameRoom(room, sizes, &request) --> server CheckRooms, PutValues(..., &answer)
//                                                 <-- caller TakeValues(segment, &answer)
//
// TakeValues gives Cords of the shared memory itself: values are copied once, by PutValues.
// Thread safety: functions without state.
#ifndef CAPSTAN_COMMON_SHARED_MEMORY_SHARED_VALUES_H_
#define CAPSTAN_COMMON_SHARED_MEMORY_SHARED_VALUES_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/shared_memory/shared_segment.h"
#include "common/wire/tensor_message.h"
#include "proto/parameter_server.pb.h"

namespace capstan {

// Memory for the values of one message.
struct MessageRoom {
  std::shared_ptr<SharedSegment> segment;
  uint64_t name = 0;   // The segment's name, which the server has given.
  int64_t offset = 0;  // A multiple of RangeAllocator's alignment.
  int64_t bytes = 0;
};

// Bytes of room that values of these sizes take: each begins aligned.
int64_t RoomBytes(absl::Span<const int64_t> sizes);

// Moves the values to the room. REQUIRES: they fit.
void PutValues(const MessageRoom& room, PushMessage* push);
// Gives each shard of the request room for as many bytes. REQUIRES: they fit; as many sizes as
// shards.
void NameRoom(const MessageRoom& room, absl::Span<const int64_t> sizes, v1::PullRequest* request);
// Moves values to the rooms that the request gives them; values larger than their room stay.
// REQUIRES: CheckRooms(*segment, request) is OK.
void PutValues(const std::shared_ptr<SharedSegment>& segment, const v1::PullRequest& request,
               PullAnswer* answer);

// Errors: kInvalidArgument  a range beyond the segment, or values in both places; names it.
absl::Status TakeValues(const std::shared_ptr<SharedSegment>& segment, PushMessage* push);
absl::Status TakeValues(const std::shared_ptr<SharedSegment>& segment, PullAnswer* answer);
absl::Status CheckRooms(const SharedSegment& segment, const v1::PullRequest& request);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SHARED_MEMORY_SHARED_VALUES_H_
