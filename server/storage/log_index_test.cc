#include "server/storage/log_index.h"

#include <catch2/catch.hpp>

#include "common/testing/status_matchers.h"

namespace capstan::server {
namespace {

const ShardKey kShard{TableId(0), ShardId(3)};

LogFrame Base(uint64_t base, int64_t position, uint64_t segment, int64_t bytes) {
  return {.type = LogFrameType::kBase,
          .shard = kShard,
          .base = base,
          .term = Term(5),
          .position = Position(position),
          .segment = segment,
          .bytes = bytes};
}

LogFrame Record(uint64_t base, int64_t position, uint64_t segment, int64_t bytes) {
  LogFrame frame = Base(base, position, segment, bytes);
  frame.type = LogFrameType::kRecord;
  return frame;
}

TEST_CASE("LogIndex: the highest base and its records count, in any order", "[server][storage]") {
  LogIndex index;
  index.Add(Record(2, 12, 1, 10));  // Its base was copied behind it.
  index.Add(Record(1, 9, 1, 1));    // Of a base that is replaced already.
  CHECK_STATUS(index.Check(), absl::StatusCode::kDataLoss, "shard 3 of table 0: there are records");
  index.Add(Base(2, 10, 3, 100));
  CHECK_STATUS(index.Check(), absl::StatusCode::kDataLoss,
               "position 12, term 5, expected position 11, term 5");
  index.Add(Record(2, 11, 3, 20));
  REQUIRE_OK(index.Check());
  CHECK(index.live_bytes() == 130);
  CHECK(index.segments().at(1).live == 10);

  index.Add(Record(2, 12, 3, 10));  // A copy, from segment 1 to 3.
  CHECK(index.live_bytes() == 130);
  CHECK(index.segments().at(1).live == 0);
  CHECK(index.segments().at(3).live == 130);
  CHECK(index.LiveIn(1).empty());
  CHECK(index.LiveIn(3).size() == 3);
  index.RemoveSegment(1);

  index.Add(Base(4, 3, 4, 7));
  CHECK(index.live_bytes() == 7);
  CHECK(index.base_max() == 4);
  CHECK(index.segments().at(3).live == 0);
  REQUIRE_OK(index.Check());
}

TEST_CASE("LogIndex: heads of frames and segments survive a round trip", "[server][storage]") {
  const LogFrame frame = Record(1ull << 60, 1ll << 50, 1, 2);
  std::string payload;
  EncodeLogFrame(frame, &payload);
  CHECK(payload.size() == kLogFrameHeadBytes);
  LogFrame read;
  DecodeLogFrame(payload, &read);
  CHECK(read.shard == frame.shard);
  CHECK(read.base == frame.base);
  CHECK(read.term == frame.term);
  CHECK(read.position == frame.position);

  SegmentHead head{.number = 9};
  head.before = {{3, 77}, {8, -1}};
  REQUIRE_OK_AND_ASSIGN(const SegmentHead again, DecodeSegmentHead(EncodeSegmentHead(head)));
  CHECK(again.number == 9);
  CHECK(again.before == head.before);
  CHECK_STATUS(DecodeSegmentHead("abc"), absl::StatusCode::kDataLoss, "3 bytes");
}

}  // namespace
}  // namespace capstan::server
