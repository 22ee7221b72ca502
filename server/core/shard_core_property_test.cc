// Random schedules against a ledger: a failing case prints its seed, which replays it exactly.
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "common/random/philox.h"
#include "common/testing/status_matchers.h"
#include "server/core/shard_core.h"
#include "server/core/testing/shard_fixture.h"

namespace capstan::server::shard_core_property_test {
namespace {

class Dice {
 public:
  explicit Dice(uint64_t seed) : key_(MixKey(0xCA95, seed)) {}
  int64_t Below(int64_t n) { return PhiloxWord(key_, next_++) % n; }
  bool OneIn(int64_t n) { return Below(n) == 0; }

 private:
  uint64_t key_;
  uint64_t next_ = 0;
};

// The gradient of a slot or batch: integers whose sums tell every set of gradients apart well
// enough.
int64_t GradientOf(int64_t iteration, int64_t slot) {
  return static_cast<int64_t>(
      PhiloxWord(static_cast<uint64_t>(iteration), static_cast<uint64_t>(slot)));
}

// A push that travels: it may be delivered late, twice, or after its sender's death.
struct Letter {
  PushHead head;
  int64_t gradient = 0;
};

// A copy that was made of a shard at some moment and has replayed its records since: its values,
// clocks and marks are the shard's. Fences that came with a pull or a slot are in no record.
class Replica {
 public:
  Replica(const ConsistencyRule& config, const ShardFixture& primary) : fixture_(config, primary) {}

  void Catch(const ShardFixture& primary) {
    fixture_.Replay(primary);
    REQUIRE(fixture_.value() == primary.value());
    ShardCoreState mine = fixture_.core().Save(), other = primary.core().Save();
    CHECK(mine.position == other.position);
    CHECK(mine.version == other.version);
    CHECK(mine.membership_generation == other.membership_generation);
    CHECK(mine.members_known == other.members_known);
    CHECK(mine.members == other.members);
    CHECK(mine.early == other.early);
    for (const PushMarks& marks : mine.push_marks) {
      const auto same = std::find_if(other.push_marks.begin(), other.push_marks.end(),
                                     [&](const auto& each) { return each.rank == marks.rank; });
      REQUIRE(same != other.push_marks.end());
      if (same->incarnation == marks.incarnation) CHECK(*same == marks);
    }
  }

 private:
  ShardFixture fixture_;
};

// Workers of a BSP job: any rank pushes any node of the current iteration; letters arrive late,
// twice, or after the death of their sender.
class SlotWorld {
 public:
  explicit SlotWorld(uint64_t seed) : dice_(seed), slots_(1 + Int(9)), shard_(Bsp(slots_)) {
    model_ = {0};
    for (int64_t c = 0, end = 1 + dice_.Below(8); c < end; ++c) {
      model_.push_back(model_.back() + SumOf(c, 0, slots_));
    }
    TellMembers();
  }

  void Run() {
    const int64_t iterations = static_cast<int64_t>(model_.size()) - 1;
    std::vector<Replica> replicas;
    for (int step = 0; Now() < iterations; ++step) {
      if (dice_.OneIn(10)) replicas.emplace_back(Bsp(slots_), shard_);
      REQUIRE(step < 100'000);
      Deliver(dice_.OneIn(3) && !letters_.empty() ? Any(letters_) : Write());
      REQUIRE(shard_.value() == model_[Now()]);
      Read(std::max<int64_t>(0, Now() - dice_.Below(3)));
      if (dice_.OneIn(4)) waiting_.push_back({Now() + 1, shard_.Pull(Now() + 1, 9)});
      if (dice_.OneIn(15)) Kill(Int(kRanks));
    }
    for (const auto& [asked, pull] : waiting_) {
      if (asked > iterations) continue;  // Nobody trains that far.
      REQUIRE(shard_.AnswerTo(pull).has_value());
      REQUIRE(shard_.AnswerTo(pull)->value == model_[asked]);
    }
    for (Replica& replica : replicas) replica.Catch(shard_);
    CHECK(shard_.gradients_kept() == 0);
    CHECK(recorded_ == shard_.core().pushes_recorded());
  }

 private:
  static constexpr int32_t kRanks = 4;

  int32_t Int(int32_t n) { return static_cast<int32_t>(dice_.Below(n)); }
  const Letter& Any(const std::vector<Letter>& letters) {
    return letters[dice_.Below(static_cast<int64_t>(letters.size()))];
  }
  int64_t Now() const { return shard_.core().version().value(); }
  static int64_t SumOf(int64_t iteration, int32_t begin, int32_t end) {
    int64_t sum = 0;
    for (int32_t slot = begin; slot < end; ++slot) sum += GradientOf(iteration, slot);
    return sum;
  }

  Letter Write() {
    const int32_t rank = Int(kRanks), size = 1 << Int(3), begin = Int(slots_) / size * size;
    Letter letter{SlotPush(Now(), begin, rank, incarnations_[rank]), 0};
    if (begin + size <= slots_) letter.head.slot_end = begin + size;
    letter.gradient = SumOf(Now(), begin, letter.head.slot_end);
    letters_.push_back(letter);
    return letter;
  }

  void Deliver(const Letter& letter) {
    const int64_t before = Now(), duplicates = shard_.core().pushes_duplicate();
    const absl::Status status = shard_.TryPush(letter.head, letter.gradient);
    if (letter.head.incarnation.value() != incarnations_[letter.head.rank.value()]) {
      REQUIRE(status.code() == absl::StatusCode::kAborted);
      return;
    }
    REQUIRE_OK(status);
    const bool duplicate = shard_.core().pushes_duplicate() > duplicates;
    if (letter.head.iteration.value() < before) REQUIRE(duplicate);
    if (!duplicate) ++recorded_;
  }

  void Read(int64_t asked) {
    const auto answer = shard_.AnswerTo(shard_.Pull(asked, 9));
    REQUIRE(answer.has_value());
    if (answer->reply.outcome == PullOutcome::kValues) {
      REQUIRE(answer->reply.version == Version(asked));
      REQUIRE(answer->value == model_[asked]);
    } else {
      REQUIRE(answer->reply.outcome == PullOutcome::kPast);
      REQUIRE(answer->reply.version.value() > asked);
    }
  }

  void Kill(int32_t rank) {
    incarnations_[rank] += kRanks;
    TellMembers();
  }

  void TellMembers() {
    std::vector<Member> members;
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      members.push_back(ActiveMember(rank, incarnations_[rank]));
    }
    members.push_back(RestingMember(/*rank=*/9, /*incarnation=*/1));  // The worker that reads.
    shard_.SetMembers(members);
  }

  Dice dice_;
  int32_t slots_;
  ShardFixture shard_;
  std::vector<int64_t> model_;  // [c]: the value at version c.
  uint64_t incarnations_[kRanks] = {1, 2, 3, 4};
  std::vector<Letter> letters_;
  std::vector<std::pair<int64_t, PullToken>> waiting_;
  int64_t recorded_ = 0;
};

// Workers of a BSP job with backups: slots of the present and of earlier iterations arrive in any
// order, once or twice.
void RunBackups(uint64_t seed) {
  Dice dice(seed);
  const auto slots = static_cast<int32_t>(2 + dice.Below(8));
  const auto backups = static_cast<int32_t>(1 + dice.Below(slots - 1));
  ShardFixture shard(Bsp(slots, backups));
  Replica replica(Bsp(slots, backups), shard);
  std::set<std::pair<int64_t, int32_t>> came;  // Iteration and slot.
  int64_t value = 0, sum = 0, in = 0, late = 0;
  for (int step = 0; step < 200; ++step) {
    const int64_t now = shard.core().version().value();
    const int64_t iteration = std::max<int64_t>(0, now - (dice.OneIn(3) ? dice.Below(3) : 0));
    const auto slot = static_cast<int32_t>(dice.Below(slots));
    const int64_t gradient = GradientOf(iteration, slot);
    const ReplyPush reply = shard.Push(SlotPush(iteration, slot), gradient);
    // A slot that has come for a later iteration has come for the earlier ones, too: its worker
    // has left them behind.
    const auto later = came.lower_bound({iteration, 0});
    const bool known =
        std::any_of(later, came.end(), [&](const auto& one) { return one.second == slot; });
    came.insert({iteration, slot});
    if (known) {
      REQUIRE(reply.outcome == PushOutcome::kDuplicate);
    } else if (iteration < now) {
      REQUIRE(reply.outcome == PushOutcome::kLate);
      ++late;
    } else {
      REQUIRE(reply.outcome == PushOutcome::kRecorded);
      sum += gradient;
      if (++in == slots - backups) {
        value += sum;
        sum = in = 0;
        REQUIRE(shard.core().version() == Version(now + 1));
      }
    }
    REQUIRE(shard.value() == value);
    REQUIRE(shard.core().pushes_late() == late);
  }
  replica.Catch(shard);
}

TEST_CASE("Property: BSP with backups applies the slots that come first, and no others",
          "[server][core]") {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    RunBackups(seed);
  }
}

TEST_CASE("Property: BSP applies each slot once and reads the exact sums, under any schedule",
          "[server][core]") {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    SlotWorld(seed).Run();
  }
}

// Workers of a job without slots: each sends batches with sequence numbers, retries, dies, comes
// back.
struct WorkerState {
  uint64_t incarnation = 0;
  int64_t iteration = 0;
  uint64_t sequence = 0;
  std::set<uint64_t> unanswered;
};

class BatchWorld {
 public:
  BatchWorld(const ConsistencyRule& config, uint64_t seed)
      : dice_(seed),
        config_(config),
        bound_(config.staleness_bound),
        mode_(config.mode),
        shard_(config) {
    ranks_ = 1 + static_cast<int32_t>(dice_.Below(4));
    for (int32_t rank = 0; rank < ranks_; ++rank) StartWorker(rank, 0);
    TellMembers();
  }

  void Run(int steps) {
    std::vector<Replica> replicas;
    for (int step = 0; step < steps; ++step) {
      if (dice_.OneIn(40)) replicas.emplace_back(config_, shard_);
      const int64_t choice = dice_.Below(100);
      if (choice < 40)
        SendNew();
      else if (choice < 75)
        Deliver();
      else if (choice < 97)
        Read();
      else
        KillOne();
      CheckLedger();
    }
    while (!letters_.empty()) Deliver();
    CheckLedger();
    for (Replica& replica : replicas) replica.Catch(shard_);
  }

 private:
  void StartWorker(int32_t rank, int64_t start) {
    workers_[rank] = WorkerState{.incarnation = next_incarnation_++, .iteration = start};
    starts_[rank] = start;
    finished_[rank] = start;
  }

  void TellMembers() {
    std::vector<Member> members;
    for (const auto& [rank, worker] : workers_) {
      members.push_back(ActiveMember(rank, worker.incarnation, starts_[rank]));
    }
    shard_.SetMembers(members);
  }

  void SendNew() {
    const int32_t rank = static_cast<int32_t>(dice_.Below(ranks_));
    WorkerState& worker = workers_[rank];
    if (worker.unanswered.size() > 8) return;
    PushHead head = BatchPush(rank, worker.incarnation, worker.iteration++, ++worker.sequence);
    worker.unanswered.insert(worker.sequence);
    head.sequence_low_water = Sequence(*worker.unanswered.begin());
    letters_.push_back(
        {head, GradientOf(static_cast<int64_t>(worker.incarnation), head.iteration.value())});
  }

  void Deliver() {
    if (letters_.empty()) return;
    const int64_t index = dice_.Below(static_cast<int64_t>(letters_.size()));
    const Letter letter = letters_[index];
    if (!dice_.OneIn(4)) letters_.erase(letters_.begin() + index);  // If not, it comes again.
    const auto worker = workers_.find(letter.head.rank.value());
    const bool alive = worker->second.incarnation == letter.head.incarnation.value();
    const auto id = std::pair(letter.head.incarnation, letter.head.sequence);
    const absl::Status status = shard_.TryPush(letter.head, letter.gradient);
    if (!alive) {
      REQUIRE(status.code() == absl::StatusCode::kAborted);
      return;
    }
    REQUIRE_OK(status);
    ledger_[id] = letter.gradient;
    int64_t& finished = finished_[letter.head.rank.value()];
    finished = std::max(finished, letter.head.iteration.value() + 1);
    if (!dice_.OneIn(5))
      worker->second.unanswered.erase(letter.head.sequence.value());  // Reply not lost.
  }

  void Read() {
    const int32_t rank = static_cast<int32_t>(dice_.Below(ranks_));
    const WorkerState& worker = workers_[rank];
    const int64_t iteration = worker.iteration;
    int64_t slowest = finished_.begin()->second;
    for (const auto& [unused, count] : finished_) slowest = std::min(slowest, count);
    const PullToken pull = shard_.Pull(iteration, rank, worker.incarnation);
    const bool may_read = mode_ == ConsistencyMode::kAsp || slowest >= iteration - bound_;
    REQUIRE(shard_.Waits(pull) == !may_read);
    if (!may_read) return;
    CHECK(shard_.AnswerTo(pull)->value == shard_.value());
    const int64_t staleness = shard_.AnswerTo(pull)->reply.staleness;
    CHECK(staleness == std::max<int64_t>(0, iteration - slowest));
    if (mode_ == ConsistencyMode::kSsp) CHECK(staleness <= bound_);
  }

  void KillOne() {
    const int32_t rank = static_cast<int32_t>(dice_.Below(ranks_));
    int64_t start = 0;
    for (const auto& [unused, count] : finished_) start = std::max(start, count);
    StartWorker(rank, start);
    TellMembers();
  }

  void CheckLedger() {
    int64_t sum = 0;
    for (const auto& [id, gradient] : ledger_) sum += gradient;
    REQUIRE(shard_.value() == sum);
    REQUIRE(shard_.core().version() == Version(static_cast<int64_t>(ledger_.size())));
  }

  Dice dice_;
  ConsistencyRule config_;
  int64_t bound_;
  ConsistencyMode mode_;
  ShardFixture shard_;
  int32_t ranks_ = 0;
  uint64_t next_incarnation_ = 1;
  std::map<int32_t, WorkerState> workers_;
  std::map<int32_t, int64_t> starts_, finished_;
  std::vector<Letter> letters_;
  std::map<std::pair<Incarnation, Sequence>, int64_t> ledger_;  // Acknowledged pushes.
};

TEST_CASE("Property: SSP applies each acknowledged push once and never reads beyond the bound",
          "[server][core]") {
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    CAPTURE(seed);
    BatchWorld(Ssp(static_cast<int32_t>(seed % 4)), seed).Run(150);
  }
}

TEST_CASE("Property: ASP applies each acknowledged push once and never waits", "[server][core]") {
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    CAPTURE(seed);
    BatchWorld(Asp(), seed).Run(150);
  }
}

TEST_CASE("Property: SSP(0) waits exactly where BSP waits", "[server][core]") {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    const int32_t workers = 1 + static_cast<int32_t>(dice.Below(6));
    ShardFixture bsp(Bsp(workers)), ssp(Ssp(0));
    std::vector<Member> members;
    for (int32_t rank = 0; rank < workers; ++rank) members.push_back(ActiveMember(rank, rank + 1));
    bsp.SetMembers(members);
    ssp.SetMembers(members);
    // Each worker alternates: pull its iteration, and once both have answered push it.
    struct Worker {
      int64_t iteration = 0;
      bool pulling = false;
      PullToken in_bsp, in_ssp;
    };
    std::vector<Worker> all(workers);
    for (int step = 0; step < 200; ++step) {
      const int32_t rank = static_cast<int32_t>(dice.Below(workers));
      Worker& worker = all[rank];
      if (!worker.pulling) {
        worker.in_bsp = bsp.Pull(worker.iteration, rank, rank + 1);
        worker.in_ssp = ssp.Pull(worker.iteration, rank, rank + 1);
        worker.pulling = true;
      } else if (!bsp.Waits(worker.in_bsp)) {
        const int64_t gradient = GradientOf(worker.iteration, rank);
        bsp.Push(SlotPush(worker.iteration, rank, rank, rank + 1), gradient);
        ssp.Push(BatchPush(rank, rank + 1, worker.iteration, worker.iteration + 1), gradient);
        ++worker.iteration;
        worker.pulling = false;
      }
      for (const Worker& each : all) {
        if (each.pulling) REQUIRE(bsp.Waits(each.in_bsp) == ssp.Waits(each.in_ssp));
      }
    }
    REQUIRE(bsp.core().version().value() * workers <= ssp.core().version().value());
  }
}

}  // namespace
}  // namespace capstan::server::shard_core_property_test
