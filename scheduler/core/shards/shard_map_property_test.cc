// Tests a ShardMap with random deaths, joins, drains, fills and late reports. The servers commit as
// the replication protocol allows. Every promoted copy must have all committed updates.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/random/philox.h"
#include "scheduler/core/shards/shard_map.h"

namespace capstan::scheduler::shard_map_property_test {
namespace {

constexpr absl::Duration kFence = absl::Milliseconds(500);

class Dice {
 public:
  explicit Dice(uint64_t seed) : key_(seed) {}
  uint32_t Below(uint32_t bound) { return PhiloxWord(key_, next_++) % bound; }
  bool Chance(double probability) { return ToUnitFloat(PhiloxWord(key_, next_++)) < probability; }

 private:
  uint64_t key_;
  uint64_t next_ = 0;
};

// Copies on certain incarnations of servers.
using Replicas = std::set<std::pair<ShardKey, Incarnation>>;

// One incarnation of a server.
struct FakeServer {
  ServerRef ref;
  bool draining = false;
  Routing applied;
  std::map<ShardKey, int64_t> held;  // Position of each copy.
  // The filled replicas of shards whose primary is this server by its applied table.
  Replicas filled;
  Replicas silent;  // Replicas that do not answer.
};

class World {
 public:
  explicit World(uint64_t seed)
      : dice_(seed),
        replicas_(static_cast<int>(dice_.Below(3))),
        limited_(dice_.Chance(0.4)),
        names_(replicas_ + 1 + static_cast<int>(dice_.Below(4))) {
    std::vector<ServerRef> servers;
    const int at_start = replicas_ + 1 + static_cast<int>(dice_.Below(2));
    for (int i = 0; i < std::min(at_start, names_); ++i) servers.push_back(NewIncarnation(i));
    const std::vector<TableSize> tables = {1 + dice_.Below(2'000'000), dice_.Below(200)};
    options_.replicas = replicas_;
    options_.servers = limited_ ? static_cast<int>(servers.size()) : 0;
    const Routing routing = PlaceShards("job-1", Generation(1), tables, servers, replicas_);
    map_.emplace(routing, options_);
    before_ = routing;
    for (auto& [name, server] : servers_) Apply(server, /*initial=*/true);
  }

  std::string Run() {
    for (int i = 0; i < 400 && error_.empty(); ++i) {
      Event();
      now_ = now_ + absl::Milliseconds(dice_.Below(200));
      Settle();
    }
    Heal();
    return error_;
  }
  int promotions() const { return promotions_; }
  int losses() const { return losses_; }
  int recoveries() const { return recoveries_; }
  int moves() const { return moves_; }
  int swaps() const { return swaps_; }

 private:
  ServerRef NewIncarnation(int number) {
    const NodeId name = absl::StrCat("server-", number);
    const ServerRef ref{name, name + ":1", Incarnation(++incarnation_)};
    servers_[name] = {.ref = ref};
    return ref;
  }
  void Fail(const std::string& what) {
    if (error_.empty()) error_ = what;
  }
  bool Lives(const ServerRef& ref) const {
    const auto it = servers_.find(ref.node);
    return it != servers_.end() && it->second.ref == ref;
  }
  static const ServerRef& At(const Routing& routing, int index) {
    return routing.servers[static_cast<size_t>(index)];
  }

  // ---- servers
  void Apply(FakeServer& server, bool initial = false) {
    const Routing& table = map_->routing();
    std::map<ShardKey, int64_t> held;
    Replicas filled;
    for (const ShardRoute& route : table.shards) {
      const bool primary = At(table, route.server) == server.ref;
      bool listed = primary;
      for (const ReplicaRef& replica : route.replicas) {
        const ServerRef& ref = At(table, replica.server);
        listed = listed || ref == server.ref;
        const auto was = std::make_pair(route.key, ref.incarnation);
        if (primary && server.filled.contains(was)) filled.insert(was);
      }
      const auto copy = server.held.find(route.key);
      if (listed && copy != server.held.end()) held[route.key] = copy->second;
      if (primary && initial) held[route.key] = 0;
      // In this term the shard is read again, even if a copy of an earlier term is held.
      const bool restored = primary && route.term == map_->source().restore_term;
      if (restored && TermKnown(server, route.key) < route.term) {
        held[route.key] = committed_[route.key];
      }
    }
    server.held = std::move(held);
    server.filled = std::move(filled);
    server.applied = table;
  }
  static Term TermKnown(const FakeServer& server, const ShardKey& key) {
    for (const ShardRoute& route : server.applied.shards) {
      if (route.key == key) return route.term;
    }
    return Term(0);
  }
  // Calls `f` for the routes of which this server is primary by its applied table.
  template <typename F>
  void ForOwn(FakeServer& server, F f) {
    for (const ShardRoute& route : server.applied.shards) {
      if (At(server.applied, route.server) == server.ref) f(route);
    }
  }
  void Fill(FakeServer& server) {
    ForOwn(server, [&](const ShardRoute& route) {
      for (const ReplicaRef& replica : route.replicas) {
        const ServerRef& ref = At(server.applied, replica.server);
        if (replica.in_sync || !Lives(ref) || dice_.Chance(0.5)) continue;
        FakeServer& target = servers_.at(ref.node);
        if (target.applied.generation < server.applied.generation) continue;
        if (TermKnown(target, route.key) > route.term) continue;  // The sender is deposed.
        target.held[route.key] = server.held[route.key];
        server.filled.insert({route.key, ref.incarnation});
      }
    });
  }
  void Commit(FakeServer& server) {
    ForOwn(server, [&](const ShardRoute& route) {
      // Replicas that know the new term fence off a deposed primary; here all replicas know it.
      const ShardRoute& now = Current(route.key);
      if (now.term != route.term || dice_.Chance(0.3)) return;
      std::vector<FakeServer*> counted;
      for (const ReplicaRef& replica : route.replicas) {
        const ServerRef& ref = At(server.applied, replica.server);
        if (!replica.in_sync && !server.filled.contains({route.key, ref.incarnation})) continue;
        if (!Lives(ref)) return;  // The dead replica blocks the commit.
        counted.push_back(&servers_.at(ref.node));
      }
      const int64_t position = ++server.held[route.key];
      for (FakeServer* replica : counted) replica->held[route.key] = position;
      committed_[route.key] = position;
    });
  }
  const ShardRoute& Current(const ShardKey& key) const {
    const auto& shards = map_->routing().shards;
    return *std::find_if(shards.begin(), shards.end(),
                         [&key](const ShardRoute& route) { return route.key == key; });
  }
  TableReport MakeReport(FakeServer& server) {
    TableReport report{"job-1", server.applied.generation, Generation(1), {}, {}};
    ForOwn(server, [&](const ShardRoute& route) {
      for (const ReplicaRef& replica : route.replicas) {
        const ServerRef& ref = At(server.applied, replica.server);
        const auto which = std::make_pair(route.key, ref.incarnation);
        if (server.filled.contains(which)) {
          report.replicas.push_back(
              {route.key, route.term, ref.node, ref.incarnation, ReplicaReport::State::kFilled});
        }
        if (replica.in_sync && (!Lives(ref) || server.silent.contains(which))) {
          report.replicas.push_back({route.key, route.term, ref.node, ref.incarnation,
                                     ReplicaReport::State::kUnreachable});
        }
      }
    });
    return report;
  }

  // ---- faults
  FakeServer* AnyServer() {
    if (servers_.empty()) return nullptr;
    auto it = servers_.begin();
    std::advance(it, dice_.Below(static_cast<uint32_t>(servers_.size())));
    return &it->second;
  }
  void Kill(FakeServer& server) {
    const ServerRef ref = server.ref;
    logs_[ref.node] = server.held;
    for (const auto& [key, position] : server.held) log_terms_[ref.node][key] = Current(key).term;
    log_incarnations_[ref.node] = ref.incarnation;
    servers_.erase(ref.node);
    std::erase_if(late_, [&](const auto& entry) { return entry.first == ref.node; });
    const Instant fenced_at = now_ + (dice_.Chance(0.5) ? absl::ZeroDuration() : kFence);
    for (const ShardRoute& route : map_->routing().shards) {
      if (At(map_->routing(), route.server) == ref) fenced_[route.key] = fenced_at;
    }
    map_->ServerDied(ref.node, fenced_at);
  }
  void Start(int number) {
    const ServerRef ref = NewIncarnation(number);
    map_->SetServer(ref, false);
    if (!dice_.Chance(0.5)) return;
    std::vector<StoredShard> stored;
    for (const auto& [key, position] : logs_[ref.node]) {
      stored.push_back({"job-1", key, log_terms_[ref.node][key], Position(position), "",
                        log_incarnations_[ref.node]});
      stored.push_back({"job-2", key, Term(9), Position(9)});
    }
    map_->SetStored(ref.node, stored);
  }
  void Recover() {
    if (!map_->has_lost()) return;
    std::vector<ShardMap::Lost> lost = map_->LostShards();
    if (map_->RecoverFromLog(now_)) {
      ++recoveries_;
      recovered_ = true;
      Settle();
      for (const ShardMap::Lost& each : lost) {
        const ServerRef& ref = At(map_->routing(), Current(each.key).server);
        const auto holder = std::find(each.holders.begin(), each.holders.end(), ref.node);
        if (holder == each.holders.end()) return Fail("recovered from a log that was not the last");
        servers_.at(ref.node).held[each.key] = logs_[ref.node][each.key];
        if (logs_[ref.node][each.key] < committed_[each.key])
          Fail("the log misses what was committed");
      }
    } else if (dice_.Chance(0.2) && map_->PlaceAnew()) {
      recovered_ = true;
      Settle();
    }
  }
  void Event() {
    FakeServer* server = AnyServer();
    const uint32_t kind = dice_.Below(24);
    if (kind == 0 && server != nullptr) return Kill(*server);
    if (kind <= 2) {
      const int number = static_cast<int>(dice_.Below(static_cast<uint32_t>(names_)));
      if (!servers_.contains(absl::StrCat("server-", number))) Start(number);
      return;
    }
    if (kind == 3) return Recover();
    if (server == nullptr) return;
    if (kind == 4) {
      server->draining = !server->draining;
      map_->SetServer(server->ref, server->draining);
    } else if (kind == 5) {
      ForOwn(*server, [&](const ShardRoute& route) {
        for (const ReplicaRef& replica : route.replicas) {
          const ServerRef& ref = At(server->applied, replica.server);
          if (dice_.Chance(0.2)) server->silent.insert({route.key, ref.incarnation});
        }
      });
    } else if (kind == 6) {
      server->silent.clear();
    } else if (kind <= 9) {
      Apply(*server);
    } else if (kind <= 12) {
      Fill(*server);
    } else if (kind <= 15) {
      Commit(*server);
    } else if (kind <= 20) {
      const TableReport report = MakeReport(*server);
      if (dice_.Chance(0.3)) late_.push_back({server->ref.node, report});
      map_->OnTableReport(server->ref.node, report);
    } else if (!late_.empty()) {  // A report arrives again, late.
      const auto& [node, report] = late_[dice_.Below(static_cast<uint32_t>(late_.size()))];
      map_->OnTableReport(node, report);
    }
  }

  // ---- checks
  void Settle() {
    const bool had_lost = map_->has_lost();
    const bool changed = map_->Settle(now_);
    const Routing& after = map_->routing();
    if (after.generation.value() != before_.generation.value() + (changed ? 1 : 0)) {
      Fail("a batch of changes is one generation");
    }
    if (map_->NextDeadline() <= now_) Fail("a deadline that has passed is left");
    std::set<ShardKey> lost;
    for (const ShardMap::Lost& each : map_->LostShards()) lost.insert(each.key);
    if (!had_lost && !lost.empty()) ++losses_;
    std::map<NodeId, int> filling;
    for (size_t i = 0; i < after.shards.size(); ++i) {
      CheckRoute(before_, before_.shards[i], after, after.shards[i], lost, filling);
    }
    before_ = after;
    recovered_ = false;
  }
  // Returns true if, by its applied table, the server is primary and answers reads by its read
  // lease alone.
  static bool ReadsAlone(const FakeServer& server, const ShardKey& key) {
    return std::any_of(server.applied.shards.begin(), server.applied.shards.end(),
                       [&](const ShardRoute& route) {
                         return route.key == key && !route.hands_over &&
                                At(server.applied, route.server) == server.ref;
                       });
  }
  static bool InSync(const Routing& table, const ShardRoute& route, const ServerRef& server) {
    return std::any_of(route.replicas.begin(), route.replicas.end(),
                       [&](const ReplicaRef& replica) {
                         return replica.in_sync && At(table, replica.server) == server;
                       });
  }
  void CheckRoute(const Routing& old, const ShardRoute& was, const Routing& table,
                  const ShardRoute& is, const std::set<ShardKey>& lost,
                  std::map<NodeId, int>& filling) {
    const ServerRef& primary = At(table, is.server);
    std::set<NodeId> nodes = {primary.node};
    bool lives = Lives(primary);
    for (const ReplicaRef& replica : is.replicas) {
      const ServerRef& ref = At(table, replica.server);
      if (!nodes.insert(ref.node).second) Fail("two copies on a server");
      lives = lives || (replica.in_sync && Lives(ref));
      if (!lost.contains(is.key) && !Lives(ref)) Fail("a dead server is still listed");
      CheckNewReplica(old, was, ref, replica, filling);
    }
    if (lives == lost.contains(is.key)) Fail("lost is said of what lives, or not of what does not");
    if (is.term < was.term) Fail("a term decreased");
    if (recovered_) return;
    const bool moved = primary != At(old, was.server);
    if (moved != (is.term != was.term)) Fail("the term changes with the primary, and only then");
    if (!moved) return;
    ++promotions_;
    if (is.term != Term(table.generation.value())) Fail("the term is not the generation");
    CheckFormerPrimary(At(old, was.server), table, is);
    const bool was_in_sync = InSync(old, was, primary);
    // A report in the same batch may have made the replica in sync.
    const bool filled_now =
        servers_.contains(primary.node) && servers_.at(primary.node).held.contains(is.key);
    if (!was_in_sync && !filled_now) Fail("a server that was not in sync became primary");
    if (servers_.at(primary.node).held[is.key] < committed_[is.key]) {
      Fail("the new primary misses what was committed");
    }
  }
  void CheckFormerPrimary(const ServerRef& former, const Routing& table, const ShardRoute& is) {
    if (!Lives(former)) {
      if (now_ < fenced_[is.key]) Fail("promoted before the fence");
      return;
    }
    ++moves_;
    if (InSync(table, is, former)) {
      ++swaps_;  // The next primary commits nothing without it.
    } else if (ReadsAlone(servers_.at(former.node), is.key)) {
      Fail("a primary that lives and reads alone was replaced");
    }
  }
  void CheckNewReplica(const Routing& old, const ShardRoute& was, const ServerRef& ref,
                       const ReplicaRef& replica, std::map<NodeId, int>& filling) {
    const bool known = At(old, was.server) == ref ||
                       std::any_of(was.replicas.begin(), was.replicas.end(),
                                   [&](const ReplicaRef& r) { return At(old, r.server) == ref; });
    if (known || !Lives(ref)) return;
    if (replica.in_sync) Fail("a new replica cannot be in sync");
    if (servers_.at(ref.node).draining) Fail("a drained server gets a replica");
    if (++filling[ref.node] > options_.filling_max) Fail("too many replicas at a time");
  }

  // Ends all faults.
  void Heal() {
    late_.clear();
    for (int i = 0; i < names_; ++i) {
      if (!servers_.contains(absl::StrCat("server-", i))) Start(i);
    }
    int drained = 0;
    for (auto& [name, server] : servers_) {
      if (server.draining && names_ - ++drained < replicas_ + 1) {
        server.draining = false;
        map_->SetServer(server.ref, false);
      }
    }
    for (auto& [name, server] : servers_) server.silent.clear();
    int calm = 0;
    for (int round = 0; round < 2000 && calm < 3 && error_.empty(); ++round) {
      now_ = now_ + absl::Milliseconds(200);
      Settle();
      if (map_->has_lost()) Recover();
      const Generation generation = map_->routing().generation;
      for (auto& [name, server] : servers_) {
        Apply(server);
        Fill(server);
        Commit(server);
      }
      for (auto& [name, server] : servers_) map_->OnTableReport(name, MakeReport(server));
      Settle();
      const bool still = generation == map_->routing().generation && map_->complete() &&
                         map_->NextDeadline() == Instant::InfiniteFuture();
      calm = still ? calm + 1 : 0;
    }
    if (calm < 3) Fail("does not come to rest");
    CheckHealed();
  }
  void CheckHealed() {
    if (!error_.empty()) return;
    std::map<NodeId, int64_t> load;
    int64_t largest = 0;
    int64_t total = 0;
    for (const auto& [name, server] : servers_) {
      if (server.draining && map_->CopiesOn(name) > 0) Fail("a drained server keeps something");
      if (!server.draining && (!limited_ || map_->routing().Names(name))) load[name] = 0;
    }
    for (const ShardRoute& route : map_->routing().shards) {
      if (static_cast<int>(route.replicas.size()) != replicas_) Fail("replicas are missing");
      for (const ReplicaRef& replica : route.replicas) {
        if (!replica.in_sync) Fail("a replica is not in sync");
      }
      load[At(map_->routing(), route.server).node] += PlacementWeight(route.elements);
      largest = std::max(largest, PlacementWeight(route.elements));
      total += PlacementWeight(route.elements);
    }
    int64_t least = total;
    int64_t most = 0;
    for (const auto& [name, elements] : load) {
      least = std::min(least, elements);
      most = std::max(most, elements);
    }
    const int64_t servers = static_cast<int64_t>(load.size());
    if (most - least > std::max(largest, total / (4 * servers))) Fail("out of balance");
  }

  Dice dice_;
  const int replicas_;
  const bool limited_;
  const int names_;
  ShardMap::Options options_;
  uint64_t incarnation_ = 0;
  std::map<NodeId, FakeServer> servers_;
  std::optional<ShardMap> map_;
  Instant now_ = Instant::FromOrigin(absl::Seconds(100));
  Routing before_;
  bool recovered_ = false;
  std::map<ShardKey, int64_t> committed_;
  std::map<ShardKey, Instant> fenced_;
  std::map<NodeId, std::map<ShardKey, int64_t>> logs_;    // Dead incarnations' logs.
  std::map<NodeId, std::map<ShardKey, Term>> log_terms_;  // Terms of these logs.
  std::map<NodeId, Incarnation> log_incarnations_;
  std::vector<std::pair<NodeId, TableReport>> late_;
  std::string error_;
  int promotions_ = 0;
  int losses_ = 0;
  int recoveries_ = 0;
  int moves_ = 0;
  int swaps_ = 0;  // Moves whose former primary became a replica.
};

TEST_CASE("Shard map: a log of before the job went back to a checkpoint is not read",
          "[scheduler][core]") {
  const ShardKey key{TableId(0), ShardId(0)};
  const ServerRef first{.node = "server-1", .incarnation = Incarnation(1)};
  Routing routing{.job = "job-1", .generation = Generation(1), .shards = {}, .servers = {first}};
  routing.shards.push_back({.key = key, .elements = {0, 10}});
  ShardMap map(routing, {});
  const Instant now = Instant() + absl::Seconds(1);
  const auto restart = [&](uint64_t incarnation, Term stored) {
    map.ServerDied("server-1", now);
    map.Settle(now);
    REQUIRE(map.has_lost());
    map.SetServer({.node = "server-1", .incarnation = Incarnation(incarnation)}, false);
    const StoredShard log{"job-1", key, stored, Position(100), "", Incarnation(incarnation - 1)};
    map.SetStored("server-1", {&log, 1});
    map.Settle(now);
  };
  restart(2, Term(1));
  REQUIRE(map.PlaceAnew());  // Another shard's log did not come back.
  map.Settle(now);
  const Term anew = map.source().restore_term;
  CHECK(anew == map.routing().shards[0].term);
  SECTION("it had begun no new one when it died again") {
    restart(3, Term(1));
    CHECK_FALSE(map.RecoverFromLog(now));
  }
  SECTION("it had") {
    restart(3, anew);
    CHECK(map.RecoverFromLog(now));
  }
}

TEST_CASE("Shard map: whatever dies, joins, drains or reports late, what was committed survives",
          "[scheduler][core]") {
  int promotions = 0;
  int losses = 0;
  int recoveries = 0;
  int moves = 0;
  int swaps = 0;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    World world(seed);
    const std::string error = world.Run();
    INFO("seed " << seed);
    REQUIRE(error == "");
    promotions += world.promotions();
    losses += world.losses();
    recoveries += world.recoveries();
    moves += world.moves();
    swaps += world.swaps();
  }
  CHECK(promotions > 1000);
  CHECK(losses > 100);
  CHECK(recoveries > 100);
  CHECK(moves > 1000);
  CHECK(swaps > 100);
}

}  // namespace
}  // namespace capstan::scheduler::shard_map_property_test
