#include "server/log/log_index.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "server/core/messages/shard_record.h"

namespace capstan::server::log_index_test {
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
  index.Add(Record(1, 9, 1, 1));    // Its base is replaced already.
  CHECK_STATUS(index.Check(), absl::StatusCode::kDataLoss, "table 0 shard 3: there are records");
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

TEST_CASE("LogIndex: a shard goes on in later terms, and each record is of its own",
          "[server][storage]") {
  const auto at = [](LogFrame frame, uint64_t term) {
    frame.term = Term(term);
    return frame;
  };
  const auto begin_term = [&](int64_t position, uint64_t term, uint64_t segment) {
    LogFrame frame = at(Base(2, position, segment, 3), term);
    frame.type = LogFrameType::kTerm;
    return frame;
  };
  LogIndex index;
  index.Add(Base(2, 10, 1, 100));
  index.Add(Record(2, 11, 1, 20));
  index.Add(begin_term(11, 6, 1));  // The term of a primary that made no record.
  index.Add(begin_term(11, 8, 1));
  index.Add(at(Record(2, 12, 2, 20), 8));
  index.Add(begin_term(12, 9, 2));
  REQUIRE_OK(index.Check());
  CHECK(index.shards().at(kShard).term() == Term(9));
  CHECK(index.shards().at(kShard).position() == Position(12));
  CHECK(index.live_bytes() == 146);
  index.Add(begin_term(11, 8, 3));  // A copy.
  index.Add(begin_term(11, 6, 3));  // One of what does not count any more.
  CHECK(index.live_bytes() == 146);
  CHECK(index.segments().at(1).live == 120);
  CHECK(index.LiveIn(3).size() == 1);
  SECTION("a record of the term before counts no more") {
    index.Add(Record(2, 13, 2, 20));
    CHECK(index.live_bytes() == 146);
  }
  SECTION("a record of a term that has not begun") {
    index.Add(at(Record(2, 13, 2, 20), 11));
    CHECK_STATUS(index.Check(), absl::StatusCode::kDataLoss,
                 "the record of position 13, term 11, expected position 13, term 9");
  }
  SECTION("a record is missing before it") {
    index.Add(begin_term(14, 10, 2));
    CHECK_STATUS(index.Check(), absl::StatusCode::kDataLoss,
                 "table 0 shard 3: term 10 begins behind position 14, which is not there");
  }
  SECTION("a term that begins earlier ends what lies behind it, in any order") {
    index.Add(begin_term(10, 12, 2));
    CHECK(index.live_bytes() == 103);
    index.Add(at(Record(2, 12, 4, 20), 8));
    index.Add(at(Record(2, 11, 4, 50), 12));
    index.Add(Record(2, 11, 4, 20));
    CHECK(index.live_bytes() == 153);
    CHECK(index.shards().at(kShard).position() == Position(11));
    REQUIRE_OK(index.Check());
  }
  SECTION("a later base ends them") {
    index.Add(at(Base(3, 40, 3, 7), 9));
    CHECK(index.live_bytes() == 7);
    REQUIRE_OK(index.Check());
  }
}

TEST_CASE("LogIndex: numbers that leave no room for those that follow are refused",
          "[server][storage]") {
  LogIndex index;
  SECTION("a position") {
    const int64_t position = GENERATE(INT64_MIN, -1, kPositionMax.value() + 1, INT64_MAX);
    index.Add(Base(1, position, 1, 10));
    // The record that would follow INT64_MAX if positions wrapped.
    if (position == INT64_MAX) index.Add(Record(1, INT64_MIN, 1, 10));
    CHECK_STATUS(index.Check(), absl::StatusCode::kDataLoss,
                 absl::StrCat("table 0 shard 3: its state is of position ", position,
                              ", expected 0 to 4611686018427387904"));
  }
  SECTION("a base") {
    index.Add(Base(UINT64_MAX, 1, 1, 10));
    CHECK_STATUS(index.Check(), absl::StatusCode::kDataLoss,
                 "base 18446744073709551615, expected a number up to 4611686018427387904");
  }
  SECTION("the largest that are accepted") {
    index.Add(Base(kLogNumberMax, kPositionMax.value(), 1, 10));
    index.Add(Record(kLogNumberMax, kPositionMax.value() + 1, 1, 10));
    REQUIRE_OK(index.Check());
  }
}

TEST_CASE("LogIndex: heads of frames and segments survive a round trip", "[server][storage]") {
  LogFrame frame = Record(1ull << 60, 1ll << 50, 1, 2);
  frame.incarnation = Incarnation(1ull << 40);
  frame.seen = {.scheduler = 1ull << 63, .count = 1ull << 33};
  std::string payload;
  EncodeLogFrame(frame, &payload);
  CHECK(payload.size() == kLogFrameHeadBytes);
  LogFrame read;
  DecodeLogFrame(payload, &read);
  CHECK(read.shard == frame.shard);
  CHECK(read.base == frame.base);
  CHECK(read.term == frame.term);
  CHECK(read.position == frame.position);
  CHECK(read.incarnation == frame.incarnation);
  CHECK(read.seen == frame.seen);

  SegmentHead head{.number = 9};
  head.before = {{3, 77}, {8, -1}};
  REQUIRE_OK_AND_ASSIGN(const SegmentHead again, DecodeSegmentHead(EncodeSegmentHead(head)));
  CHECK(again.number == 9);
  CHECK(again.before == head.before);
  CHECK_STATUS(DecodeSegmentHead("abc"), absl::StatusCode::kDataLoss, "3 bytes");
}

}  // namespace
}  // namespace capstan::server::log_index_test
