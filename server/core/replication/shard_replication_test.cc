#include "server/core/replication/shard_replication.h"

#include <catch2/catch.hpp>

#include "common/types/message_limits.h"

namespace capstan::server::shard_replication_test {
namespace {

// The follower may be sent a whole shard.
bool Always(const FollowerKey&) { return true; }
bool Never(const FollowerKey&) { return false; }

const FollowerKey kFirst{.node = "server-2", .incarnation = Incarnation(2)};
const FollowerKey kSecond{.node = "server-3", .incarnation = Incarnation(3)};

// A primary of term 5 whose shard is at position 7, version 7.
class Primary {
 public:
  explicit Primary(std::vector<FollowerRoute> followers, bool logged = false)
      : replication(logged) {
    Route(5, std::move(followers));
  }
  void Route(uint64_t generation, std::vector<FollowerRoute> followers, bool awaits_log = false) {
    replication.SetRole({.generation = Generation(generation),
                         .role = ShardRole::kPrimary,
                         .term = Term(5),
                         .followers = std::move(followers),
                         .awaits_log = awaits_log},
                        Position(position_), Version(position_));
  }
  void Write(int64_t bytes = 100) {
    ++position_;
    replication.primary().Append(Position(position_), Version(position_), bytes);
  }
  std::optional<ReplicaMessage> Next() { return replication.primary().NextMessage(now, Always); }
  void Answer(const ReplicaMessage& message, uint64_t term, int64_t position) {
    replication.primary().OnAnswer(
        message.to, message.id,
        {.kind = ReplicaAnswer::Kind::kHolds, .term = Term(term), .position = Position(position)},
        now);
  }
  void Fail(const ReplicaMessage& message, ReplicaAnswer::Kind kind) {
    replication.primary().OnAnswer(message.to, message.id, {.kind = kind}, now);
  }
  // Asks and installs the one follower.
  void Fill() {
    auto message = Next();
    REQUIRE(message.has_value());
    Answer(*message, 0, 0);
    message = Next();
    REQUIRE(message.has_value());
    REQUIRE(message->install);
    Answer(*message, 5, position_);
  }
  int64_t committed() const { return replication.primary().committed_position().value(); }

  ShardReplication replication;
  Instant now = Instant() + absl::Seconds(100);

 private:
  int64_t position_ = 7;
};

TEST_CASE("Shard replication: without followers and log everything is committed at once",
          "[server][core]") {
  Primary primary({});
  CHECK(primary.committed() == 7);
  CHECK_FALSE(primary.replication.primary().keeps_records());
  primary.Write();
  CHECK(primary.replication.primary().committed_version() == Version(8));
  CHECK_FALSE(primary.Next().has_value());
  CHECK(primary.replication.primary().NextDeadline(Always) == Instant::InfiniteFuture());
}

TEST_CASE("Shard replication: a new primary commits nothing before its replicas in sync hold it",
          "[server][core]") {
  Primary primary({{.key = kFirst, .in_sync = true}});
  CHECK(primary.committed() == -1);
  primary.Write();
  primary.Fill();  // It includes what was written meanwhile.
  CHECK(primary.committed() == 8);
  primary.Write();
  CHECK(primary.committed() == 8);
  const auto message = primary.Next();
  REQUIRE(message.has_value());
  CHECK_FALSE(message->install);
  CHECK(message->begin == Position(9));
  CHECK(message->end == Position(10));
  primary.Write();
  CHECK_FALSE(primary.Next().has_value());  // One message in flight.
  primary.Answer(*message, 5, 9);
  CHECK(primary.committed() == 9);
  CHECK(primary.Next()->begin == Position(10));
}

TEST_CASE("Shard replication: a barrier is unsent before any follower holds the shard",
          "[server][core]") {
  Primary primary({{.key = kFirst, .in_sync = true}});
  ShardPrimary& shard = primary.replication.primary();
  CHECK_FALSE(shard.UnsentBarrier().has_value());
  shard.AppendBarrier(Position(8), 0);
  CHECK(shard.UnsentBarrier() == Position(8));
  primary.Next();
  CHECK_FALSE(shard.UnsentBarrier().has_value());
}

TEST_CASE("Shard replication: a follower being filled counts from its first answer on",
          "[server][core]") {
  Primary primary({{.key = kFirst}});
  CHECK(primary.committed() == 7);
  primary.Answer(*primary.Next(), 0, 0);
  const auto install = primary.Next();
  REQUIRE(install.has_value());
  CHECK(install->install);
  primary.Write();
  CHECK(primary.committed() == 8);  // It does not count yet.
  primary.Answer(*install, 5, 7);
  CHECK(primary.replication.primary().Reports().empty());  // It lacks what is committed.
  primary.Write();
  CHECK(primary.committed() == 8);  // It counts.
  const auto records = primary.Next();
  CHECK(records->begin == Position(8));
  primary.Answer(*records, 5, 9);
  CHECK(primary.committed() == 9);
  CHECK(primary.replication.primary().Reports() ==
        std::vector<ReplicaReport>{{.replica = kFirst, .filled = true}});
  CHECK(primary.replication.primary().oldest_kept() == Position(10));
}

TEST_CASE("Shard replication: a whole shard that leaves slowly is neither silence nor lost",
          "[server][core]") {
  constexpr int64_t kPiece = 1 << 20;
  Primary primary({{.key = kFirst}});
  primary.Answer(*primary.Next(), 0, 0);
  const auto install = primary.Next();
  REQUIRE(install.has_value());
  REQUIRE(install->install);
  for (int piece = 0; piece < 64; ++piece) {
    primary.now = primary.now + absl::Seconds(5);
    primary.replication.primary().OnProgress(kFirst, install->id, kPiece, primary.now);
    primary.replication.primary().Tick(primary.now);
    for (int i = 0; i < 40; ++i) primary.Write(50'000);  // Beyond what is kept otherwise.
  }
  CHECK(primary.replication.primary().Reports().empty());
  SECTION("what was written meanwhile is there when it has arrived, until it is caught up with") {
    primary.Answer(*install, 5, 7);
    for (int64_t held = 7; held < 7 + 64 * 40;) {
      const auto records = primary.Next();
      REQUIRE(records.has_value());
      REQUIRE_FALSE(records->install);
      REQUIRE(records->begin == Position(held + 1));
      held = records->end.value() - 1;
      primary.Answer(*records, 5, held);
    }
    CHECK(primary.committed() == 7 + 64 * 40);
  }
  SECTION("what has left may take its time to be taken in") {
    primary.now = primary.now + absl::Seconds(13);  // 10 s, and 4 s for 64 MiB.
    primary.replication.primary().Tick(primary.now);
    CHECK(primary.replication.primary().Reports().empty());
    primary.now = primary.now + absl::Seconds(2);
    primary.replication.primary().Tick(primary.now);
    CHECK(primary.replication.primary().Reports() ==
          std::vector<ReplicaReport>{{.replica = kFirst, .filled = false}});
    primary.Answer(*install, 5, 7);
    CHECK(primary.replication.primary().Reports().empty());
  }
}

TEST_CASE("Shard replication: attempts that move and come to nothing are silence",
          "[server][core]") {
  Primary primary({{.key = kFirst, .in_sync = true}});
  primary.Answer(*primary.Next(), 0, 0);
  for (int attempt = 0; attempt < 11; ++attempt) {
    const auto install = primary.Next();
    REQUIRE(install.has_value());
    REQUIRE(install->install);
    primary.now = primary.now + absl::Seconds(1);
    primary.replication.primary().OnProgress(kFirst, install->id, 1000, primary.now);
    primary.replication.primary().Tick(primary.now);
    primary.Fail(*install, ReplicaAnswer::Kind::kFailed);
    primary.now = primary.now + ShardPrimary::kBackOffMax;
    primary.replication.primary().Tick(primary.now);
  }
  CHECK(primary.replication.primary().Reports() ==
        std::vector<ReplicaReport>{{.replica = kFirst, .filled = false}});
}

TEST_CASE("Shard replication: a record too large for a message is brought by a whole shard",
          "[server][core]") {
  Primary primary({{.key = kFirst, .in_sync = true}});
  primary.Fill();
  primary.Write(kShardBytesMax);
  auto message = primary.Next();
  REQUIRE(message.has_value());
  CHECK_FALSE(message->install);
  primary.Answer(*message, 5, 8);
  primary.Write(kShardBytesMax + 1);
  message = primary.Next();
  REQUIRE(message.has_value());
  CHECK(message->install);
  primary.Answer(*message, 5, 9);
  CHECK(primary.committed() == 9);
  primary.Write();
  CHECK_FALSE(primary.Next()->install);
}

TEST_CASE("Shard replication: FILLED is said anew in each generation, after an answer of it",
          "[server][core]") {
  Primary primary({{.key = kFirst}});
  primary.Fill();
  CHECK(primary.replication.primary().Reports().size() == 1);
  primary.Route(6, {{.key = kFirst}});
  CHECK(primary.replication.primary().Reports().empty());
  const auto question = primary.Next();
  REQUIRE(question.has_value());
  CHECK_FALSE(question->install);
  CHECK(question->begin == question->end);
  SECTION("it still holds the shard") {
    primary.Answer(*question, 5, 7);
    CHECK(primary.replication.primary().Reports().size() == 1);
  }
  SECTION("it had been taken away in between, and dropped everything") {
    primary.Answer(*question, 0, 0);
    CHECK(primary.replication.primary().Reports().empty());
    CHECK(primary.Next()->install);
  }
}

TEST_CASE("Shard replication: one taken from in sync is filled anew", "[server][core]") {
  Primary primary({{.key = kFirst, .in_sync = true}});
  primary.Fill();
  primary.Route(6, {{.key = kFirst, .in_sync = false}});
  primary.Write();
  CHECK(primary.committed() == 8);
  primary.Fill();
}

TEST_CASE("Shard replication: retries back off from 20 ms to 500 ms, and an answer ends it",
          "[server][core]") {
  Primary primary({{.key = kFirst, .in_sync = true}});
  primary.Fill();
  primary.Write();
  for (const int64_t delay : {20, 40, 80, 160, 320, 500, 500}) {
    const auto message = primary.Next();
    REQUIRE(message.has_value());
    primary.Fail(*message, ReplicaAnswer::Kind::kFailed);
    CHECK_FALSE(primary.Next().has_value());
    if (!primary.replication.primary().Reports().empty()) {
      CHECK(delay == 500);
    }
    CHECK(primary.replication.primary().NextDeadline(Always) <=
          primary.now + absl::Milliseconds(delay));
    primary.now = primary.now + absl::Milliseconds(delay);
    primary.replication.primary().Tick(primary.now);
  }
  CHECK(primary.replication.primary().Reports() ==
        std::vector<ReplicaReport>{{.replica = kFirst, .filled = false}});
  CHECK(primary.committed() == 7);  // It is not dropped.
  primary.Answer(*primary.Next(), 5, 8);
  CHECK(primary.replication.primary().Reports().empty());
  CHECK(primary.committed() == 8);
}

TEST_CASE("Shard replication: silence is reported after exactly one second", "[server][core]") {
  Primary primary({{.key = kFirst, .in_sync = true}});
  primary.Fill();
  primary.Write();
  REQUIRE(primary.Next().has_value());
  CHECK(primary.replication.primary().NextDeadline(Always) == primary.now + absl::Seconds(1));
  primary.replication.primary().Tick(primary.now + absl::Milliseconds(999));
  CHECK(primary.replication.primary().Reports().empty());
  primary.replication.primary().Tick(primary.now + absl::Seconds(1));
  CHECK(primary.replication.primary().Reports().size() == 1);
}

TEST_CASE("Shard replication: a fenced primary sends and commits nothing more", "[server][core]") {
  Primary primary({{.key = kFirst, .in_sync = true}, {.key = kSecond, .in_sync = true}});
  const auto message = primary.Next();
  primary.Fail(*message, ReplicaAnswer::Kind::kFenced);
  CHECK(primary.replication.primary().deposed());
  CHECK_FALSE(primary.Next().has_value());
  CHECK(primary.committed() == -1);
  CHECK(primary.replication.primary().NextDeadline(Always) == Instant::InfiniteFuture());
}

TEST_CASE("Shard replication: a logged record waits for the log too", "[server][core]") {
  Primary primary({{.key = kFirst, .in_sync = true}}, /*logged=*/true);
  primary.Fill();
  CHECK(primary.committed() == -1);
  primary.replication.OnLogged(Term(4), Position(7));  // It was logged in an earlier term.
  CHECK(primary.committed() == -1);
  primary.replication.OnLogged(Term(5), Position(7));
  CHECK(primary.committed() == 7);
  primary.Write();
  primary.Answer(*primary.Next(), 5, 8);
  CHECK(primary.committed() == 7);
  primary.replication.OnLogged(Term(5), Position(8));
  CHECK(primary.committed() == 8);
}

TEST_CASE("Shard replication: nothing is committed before the scheduler knows of the log",
          "[server][core]") {
  Primary primary({}, /*logged=*/true);
  primary.Route(6, {}, /*awaits_log=*/true);
  primary.replication.OnLogged(Term(5), Position(7));
  primary.Write();
  primary.replication.OnLogged(Term(5), Position(8));
  CHECK(primary.committed() == -1);
  CHECK(primary.replication.logged() == Position(8));
  primary.Route(7, {});
  CHECK(primary.committed() == 8);
}

TEST_CASE("Shard replication: who lags too far gets the whole shard again", "[server][core]") {
  Primary primary({{.key = kFirst}});
  primary.Fill();
  SECTION("too many bytes") {
    for (int i = 0; i < 9; ++i) primary.Write(ShardPrimary::kKeptBytesMax / 8);
  }
  SECTION("too many records") {
    for (size_t i = 0; i <= ShardPrimary::kKeptRecordsMax; ++i) primary.Write(1);
  }
  CHECK(primary.replication.primary().oldest_kept() == Position(9));
  CHECK(primary.Next()->install);
}

TEST_CASE("Shard replication: four records are kept, however large they are", "[server][core]") {
  Primary primary({{.key = kFirst}});
  primary.Fill();
  for (int i = 0; i < 4; ++i) primary.Write(ShardPrimary::kKeptBytesMax / 2);
  CHECK(primary.replication.primary().oldest_kept() == Position(8));
  CHECK_FALSE(primary.Next()->install);
  primary.Write(ShardPrimary::kKeptBytesMax / 2);
  CHECK(primary.replication.primary().oldest_kept() == Position(9));
}

TEST_CASE("Shard replication: a message holds at most 64 records or 8 MiB", "[server][core]") {
  Primary primary({{.key = kFirst}});
  primary.Fill();
  SECTION("records") {
    for (int i = 0; i < 100; ++i) primary.Write(1);
    CHECK(primary.Next()->end == Position(8 + 64));
  }
  SECTION("bytes") {
    for (int i = 0; i < 4; ++i) primary.Write(3 << 20);
    CHECK(primary.Next()->end == Position(8 + 2));
  }
  SECTION("one large record") {
    primary.Write(9 << 20);
    primary.Write(1);
    CHECK(primary.Next()->end == Position(9));
  }
}

TEST_CASE("Shard replication: a barrier is shared until a message carries it", "[server][core]") {
  Primary primary({{.key = kFirst, .in_sync = true}});
  primary.Fill();
  CHECK_FALSE(primary.replication.primary().UnsentBarrier().has_value());
  primary.replication.primary().AppendBarrier(Position(8), 0);
  CHECK(primary.replication.primary().UnsentBarrier() == Position(8));
  const auto message = primary.Next();
  CHECK_FALSE(primary.replication.primary().UnsentBarrier().has_value());
  primary.Answer(*message, 5, 8);
  CHECK(primary.committed() == 8);
  CHECK(primary.replication.primary().committed_version() == Version(7));
}

TEST_CASE("Shard replication: what a replica does with a message", "[server][core]") {
  using Kind = ReplicaVerdict::Kind;
  ShardReplication replica(false);
  const auto route = [&](uint64_t generation, uint64_t term) {
    replica.SetRole({.generation = Generation(generation),
                     .role = ShardRole::kReplica,
                     .term = Term(term),
                     .followers = {}},
                    Position(0), Version(0));
  };
  route(3, 3);
  const ReplicateHead install{
      .generation = Generation(3), .term = Term(3), .install = Position(5), .begin = {}};
  const ReplicateHead records{.generation = Generation(3),
                              .term = Term(3),
                              .install = {},
                              .begin = Position(6),
                              .records = 3};
  CHECK(replica.Consider(records, Position(0)).kind == Kind::kNothing);  // Nothing is held.
  CHECK(replica.Consider(install, Position(0)).kind == Kind::kInstall);
  replica.TookInstall(Term(3));
  CHECK(replica.Consider(install, Position(5)).kind == Kind::kNothing);  // A late repetition.
  CHECK(replica.Consider(install, Position(9)).kind == Kind::kNothing);
  CHECK(replica.Consider(install, Position(4)).kind == Kind::kInstall);
  CHECK(replica.Consider(records, Position(5)).kind == Kind::kReplay);
  CHECK(replica.Consider(records, Position(7)).skip == 2);
  CHECK(replica.Consider(records, Position(8)).kind == Kind::kNothing);  // Held already.
  CHECK(replica.Consider(records, Position(4)).kind == Kind::kNothing);  // A gap.

  ReplicateHead old = records;
  old.term = Term(2);
  CHECK(replica.Consider(old, Position(5)).kind == Kind::kFenced);
  ReplicateHead newer = records;
  newer.generation = Generation(4);
  CHECK(replica.Consider(newer, Position(5)).kind == Kind::kNotYet);

  route(4, 4);  // Another primary.
  CHECK(replica.Consider(records, Position(5)).kind == Kind::kFenced);
  CHECK(replica.held_term() == Term(3));
  ReplicateHead next = records;
  next.generation = Generation(4);
  next.term = Term(4);
  CHECK(replica.Consider(next, Position(5)).kind == Kind::kNothing);  // It must be installed.
}

TEST_CASE("Shard replication: an install that must wait for another is no deadline",
          "[server][core]") {
  Primary primary({{.key = kFirst, .in_sync = false}});
  const auto question = primary.Next();
  REQUIRE(question.has_value());
  primary.Answer(*question, 0, 0);  // It holds nothing: an install is due.
  CHECK_FALSE(primary.replication.primary().NextMessage(primary.now, Never).has_value());
  CHECK(primary.replication.primary().NextDeadline(Always) <= primary.now);
  CHECK(primary.replication.primary().NextDeadline(Never) > primary.now);
}

}  // namespace
}  // namespace capstan::server::shard_replication_test
