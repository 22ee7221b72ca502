// Random failovers against a ledger: one shard, k copies, a scheduler that promotes, adds and takes
// away copies, and a network that loses, doubles and overtakes messages. What a primary called
// committed must be in every later primary. A failing case prints its seed, which replays it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "common/random/philox.h"
#include "server/core/replication/shard_replication.h"

namespace capstan::server::shard_replication_property_test {
namespace {

class Dice {
 public:
  explicit Dice(uint64_t seed) : key_(MixKey(0x5EC0, seed)) {}
  int64_t Below(int64_t n) { return PhiloxWord(key_, next_++) % n; }
  bool OneIn(int64_t n) { return Below(n) == 0; }

 private:
  uint64_t key_;
  uint64_t next_ = 0;
};

struct Copy {  // An entry of a routing table.
  FollowerKey key;
  bool in_sync = false;
};

struct Table {
  Generation generation{1};
  Term term{1};
  FollowerKey primary;
  std::vector<Copy> replicas;
};

// One process. The shard's state is the list of values that its records brought; the version is
// their count.
struct Process {
  FollowerKey key;
  std::unique_ptr<ShardReplication> replication = std::make_unique<ShardReplication>(false);
  Generation generation;  // The generation of the routing table it has.
  bool ever_held = false;
  std::vector<int64_t> values;
};

struct Letter {
  FollowerKey from;
  FollowerKey to;
  MessageId id;
  ReplicateHead head;
  std::vector<int64_t> values;  // The values of the snapshot, or of the records.
};

struct Answer {
  FollowerKey from;
  FollowerKey to;
  MessageId id;
  ReplicaAnswer answer;
};

class World {
 public:
  explicit World(uint64_t seed) : dice_(seed), process_count_(2 + dice_.Below(3)) {
    for (int64_t i = 0; i < process_count_; ++i) StartProcess(i);
    table_.primary = processes_[0].key;
    tables_.push_back(table_);
    TakeTable(processes_[0]);
  }

  void Run() {
    for (int step = 0; step < 1000; ++step) Step();
    Heal();
    CHECK(promotions_ >= 0);
  }
  int64_t promotions() const { return promotions_; }
  int64_t committed() const { return static_cast<int64_t>(ledger_.size()); }
  int64_t filled() const { return filled_; }

 private:
  void Step() {
    now_ = now_ + absl::Milliseconds(dice_.Below(60));
    Process& process = processes_[dice_.Below(process_count_)];
    switch (dice_.Below(12)) {
      case 0:
      case 1:
        TakeTable(process);
        break;
      case 2:
      case 3:
        Write(process);
        break;
      case 4:
      case 5:
      case 6:
        DeliverLetter();
        break;
      case 7:
      case 8:
        DeliverAnswer();
        break;
      case 9:
        Schedule();
        break;
      case 10:
        if (dice_.OneIn(6)) Crash(process);
        break;
      default:
        process.replication->primary().Tick(now_);
        break;
    }
    for (Process& each : processes_) Pump(each);
  }

  void StartProcess(int64_t index) {
    Process process;
    process.key = {.node = std::to_string(index), .incarnation = Incarnation(++incarnations_)};
    if (static_cast<int64_t>(processes_.size()) <= index) processes_.resize(index + 1);
    processes_[index] = std::move(process);
  }
  Process* Find(const FollowerKey& key) {
    for (Process& each : processes_) {
      if (each.key == key) return &each;
    }
    return nullptr;
  }

  // A table travels at its own pace: any that is newer than the last one may come next.
  void TakeTable(Process& process) {
    const int64_t have = static_cast<int64_t>(process.generation.value());
    const int64_t newer = static_cast<int64_t>(tables_.size()) - have;
    if (newer > 0) Take(process, tables_[have + dice_.Below(newer)]);
  }

  void Take(Process& process, const Table& table) {
    process.generation = table.generation;
    RoleRoute route{.generation = table.generation, .term = table.term, .followers = {}};
    if (table.primary == process.key) {
      route.role = ShardRole::kPrimary;
      for (const Copy& copy : table.replicas) {
        route.followers.push_back({.key = copy.key, .in_sync = copy.in_sync});
      }
    }
    for (const Copy& copy : table.replicas) {
      if (copy.key == process.key) route.role = ShardRole::kReplica;
    }
    if (route.role == ShardRole::kPrimary && process.replication->role() != ShardRole::kPrimary) {
      if (table.term > Term(1)) REQUIRE(process.replication->held_term() > Term(0));
      for (const auto& [position, value] : ledger_) {  // Nothing committed is lost.
        REQUIRE(position <= static_cast<int64_t>(process.values.size()));
        REQUIRE(process.values[position - 1] == value);
      }
    }
    process.replication->SetRole(route, PositionOf(process), VersionOf(process));
    if (route.role == ShardRole::kNone) process.values.clear();
    Note(process);
  }

  static Position PositionOf(const Process& process) {
    return Position(static_cast<int64_t>(process.values.size()));
  }
  static Version VersionOf(const Process& process) { return Version(PositionOf(process).value()); }

  void Write(Process& process) {
    if (process.replication->role() != ShardRole::kPrimary) return;
    if (process.replication->primary().deposed()) return;
    process.values.push_back(++next_value_);
    process.replication->primary().Append(PositionOf(process), VersionOf(process),
                                          dice_.Below(1 << 20));
    Note(process);
  }

  // Holds a primary to what it calls committed.
  void Note(const Process& process) {
    const ShardReplication& replication = *process.replication;
    if (replication.role() != ShardRole::kPrimary) return;
    REQUIRE(replication.primary().committed_position().value() ==
            replication.primary().committed_version().value());
    const int64_t committed = replication.primary().committed_position().value();
    for (int64_t position = 1; position <= committed; ++position) {
      const int64_t value = process.values[position - 1];
      REQUIRE(ledger_.insert({position, value}).first->second == value);
    }
  }

  void Pump(Process& process) {
    ShardReplication& replication = *process.replication;
    const auto next = [&] {
      const bool may_install = !dice_.OneIn(4);
      return replication.primary().NextMessage(now_,
                                               [=](const FollowerKey&) { return may_install; });
    };
    while (const auto message = next()) {
      Letter letter{.from = process.key,
                    .to = message->to,
                    .id = message->id,
                    .head = {.generation = process.generation,
                             .term = replication.term(),
                             .install = {},
                             .begin = message->begin,
                             .records = message->end.value() - message->begin.value()},
                    .values = process.values};
      if (message->install) {
        letter.head.install = PositionOf(process);
      } else {
        REQUIRE(message->end <= PositionOf(process).Next());
        if (letter.head.records > 0) REQUIRE(message->begin >= replication.primary().oldest_kept());
        letter.values.assign(process.values.begin() + message->begin.value() - 1,
                             process.values.begin() + message->end.value() - 1);
      }
      letters_.push_back(std::move(letter));
    }
  }

  void DeliverLetter() {
    if (letters_.empty()) return;
    const int64_t chosen = dice_.Below(static_cast<int64_t>(letters_.size()));
    const Letter letter = letters_[chosen];
    const bool stays = dice_.OneIn(8);  // It comes once more.
    if (!stays) letters_.erase(letters_.begin() + chosen);
    Answer answer{.from = letter.to, .to = letter.from, .id = letter.id, .answer = {}};
    Process* to = Find(letter.to);
    if (to != nullptr && (healed_ || !dice_.OneIn(6))) answer.answer = Receive(*to, letter);
    if (!healed_ && dice_.OneIn(6)) answer.answer.kind = ReplicaAnswer::Kind::kFailed;
    answers_.push_back(answer);
  }

  ReplicaAnswer Receive(Process& process, const Letter& letter) {
    using Kind = ReplicaVerdict::Kind;
    ShardReplication& replication = *process.replication;
    const ReplicaVerdict verdict = replication.Consider(letter.head, PositionOf(process));
    if (verdict.kind == Kind::kFenced) return {.kind = ReplicaAnswer::Kind::kFenced};
    if (verdict.kind == Kind::kNotYet) return {.kind = ReplicaAnswer::Kind::kNotYet};
    if (verdict.kind == Kind::kInstall) {
      process.values = letter.values;
      replication.TookInstall(letter.head.term);
    }
    if (verdict.kind == Kind::kReplay) {
      process.values.insert(process.values.end(), letter.values.begin() + verdict.skip,
                            letter.values.end());
    }
    return {.kind = ReplicaAnswer::Kind::kHolds,
            .term = replication.held_term(),
            .position = PositionOf(process)};
  }

  void DeliverAnswer() {
    if (answers_.empty()) return;
    const int64_t chosen = dice_.Below(static_cast<int64_t>(answers_.size()));
    const Answer answer = answers_[chosen];
    if (!dice_.OneIn(8)) answers_.erase(answers_.begin() + chosen);
    Process* to = Find(answer.to);
    if (to == nullptr) return;
    to->replication->primary().OnAnswer(answer.from, answer.id, answer.answer, now_);
    Note(*to);
  }

  void Publish() {
    table_.generation = table_.generation.Next();
    tables_.push_back(table_);
  }

  void Promote() {
    for (auto copy = table_.replicas.begin(); copy != table_.replicas.end(); ++copy) {
      if (!copy->in_sync || Find(copy->key) == nullptr) continue;
      table_.primary = copy->key;
      table_.replicas.erase(copy);
      table_.term = Term(table_.generation.value() + 1);
      Publish();
      ++promotions_;
      return;
    }
  }
  bool HasHeir() {
    return std::any_of(table_.replicas.begin(), table_.replicas.end(),
                       [&](const Copy& copy) { return copy.in_sync && Find(copy.key) != nullptr; });
  }

  // One step that the scheduler takes unasked: it hears reports, then may add a copy, take one away
  // or replace the primary.
  void Schedule() {
    HearReports();
    if (healed_) return;
    if (dice_.OneIn(10) && HasHeir()) return Promote();
    if (dice_.OneIn(8) && !table_.replicas.empty()) {
      table_.replicas.erase(table_.replicas.begin());
      return Publish();
    }
    AddCopy();
  }

  void AddCopy() {
    const FollowerKey key = processes_[dice_.Below(process_count_)].key;
    if (key == table_.primary || IsCopy(key)) return;
    table_.replicas.push_back({.key = key});
    Publish();
  }
  bool IsCopy(const FollowerKey& key) const {
    return std::any_of(table_.replicas.begin(), table_.replicas.end(),
                       [&](const Copy& copy) { return copy.key == key; });
  }

  void HearReports() {
    const Process* primary = Find(table_.primary);
    if (primary == nullptr || primary->generation != table_.generation) return;
    bool changed = false;
    for (const ReplicaReport& report : primary->replication->primary().Reports()) {
      for (auto copy = table_.replicas.begin(); copy != table_.replicas.end();) {
        if (copy->key == report.replica && !report.filled) {
          copy = table_.replicas.erase(copy);
          changed = true;
          continue;
        }
        if (copy->key == report.replica && report.filled && !copy->in_sync) {
          copy->in_sync = true;
          ++filled_;
          changed = true;
        }
        ++copy;
      }
    }
    if (changed) Publish();
  }

  // A process is lost with all it has, unless it holds the last copy.
  void Crash(Process& process) {
    if (process.key == table_.primary && !HasHeir()) return;
    const FollowerKey lost = process.key;
    const int64_t index = &process - processes_.data();
    StartProcess(index);
    if (lost == table_.primary) Promote();
    const size_t before = table_.replicas.size();
    std::erase_if(table_.replicas, [&](const Copy& copy) { return copy.key == lost; });
    if (table_.replicas.size() != before) Publish();
  }

  // No more faults: everybody hears everything, and all copies become equal.
  void Heal() {
    healed_ = true;
    for (int round = 0; round < 300; ++round) {
      now_ = now_ + absl::Milliseconds(50);
      HearReports();
      for (Process& each : processes_) {
        if (each.generation < table_.generation) Take(each, table_);
        each.replication->primary().Tick(now_);
        Pump(each);
      }
      for (size_t left = letters_.size(); left > 0 && !letters_.empty(); --left) DeliverLetter();
      for (size_t left = answers_.size(); left > 0 && !answers_.empty(); --left) DeliverAnswer();
    }
    const Process* primary = Find(table_.primary);
    REQUIRE(primary != nullptr);
    CHECK(primary->replication->primary().committed_position() == PositionOf(*primary));
    for (const Copy& copy : table_.replicas) {
      INFO("replica " << copy.key.node);
      CHECK(copy.in_sync);
      CHECK(Find(copy.key)->values == primary->values);
    }
  }

  Dice dice_;
  const int64_t process_count_;
  Instant now_;
  bool healed_ = false;
  uint64_t incarnations_ = 0;
  int64_t next_value_ = 0;
  int64_t promotions_ = 0;
  int64_t filled_ = 0;
  std::vector<Process> processes_;
  Table table_;
  std::vector<Table> tables_;  // Ordered by generation, from 1.
  std::vector<Letter> letters_;
  std::vector<Answer> answers_;
  std::map<int64_t, int64_t> ledger_;  // Position -> the value that some primary called committed.
};

TEST_CASE("Shard replication: nothing committed is lost, whatever fails", "[server][core]") {
  int64_t promotions = 0, committed = 0, filled = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    INFO("seed " << seed);
    World world(seed);
    world.Run();
    promotions += world.promotions();
    committed += world.committed();
    filled += world.filled();
  }
  CHECK(promotions > 2000);  // The worlds do what they are for.
  CHECK(committed > 20'000);
  CHECK(filled > 5000);
}

}  // namespace
}  // namespace capstan::server::shard_replication_property_test
