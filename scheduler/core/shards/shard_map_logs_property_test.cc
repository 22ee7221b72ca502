// Tests that a shard map never recovers from a log that lacks acknowledged updates. Primaries
// recover from their logs, lose their disks, get older ones, fill replicas, fail, die and come back
// in any order. A model knows the acknowledged updates and the content of each log.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/random/philox.h"
#include "scheduler/core/shards/shard_map.h"

namespace capstan::scheduler::shard_map_logs_property_test {
namespace {

constexpr int kServers = 3;
const ShardKey kShard{TableId(0), ShardId(0)};

class Dice {
 public:
  explicit Dice(uint64_t seed) : key_(seed) {}
  uint32_t Below(uint32_t bound) { return PhiloxWord(key_, next_++) % bound; }
  bool Chance(double probability) { return ToUnitFloat(PhiloxWord(key_, next_++)) < probability; }

 private:
  uint64_t key_;
  uint64_t next_ = 0;
};

struct Log {
  Term term;
  int64_t position = 0;
  Incarnation incarnation;
};

// A server name. `incarnation` is 0 while no process with that name runs.
struct Server {
  Incarnation incarnation;
  std::optional<Log> log;       // The log on its disk.
  std::optional<Log> copy;      // A copy of the log, made while no process ran.
  Routing applied;              // The table that this incarnation has applied.
  bool holds = false;           // The shard is in memory, up to the log's end.
  bool failed = false;          // This incarnation cannot use its log.
  std::vector<NodeId> in_sync;  // The replicas that count, if it is primary.
};

class World {
 public:
  explicit World(uint64_t seed) : dice_(seed), replicas_(static_cast<int>(dice_.Below(3))) {
    Routing routing{.job = "job-1", .generation = Generation(1), .shards = {}, .servers = {}};
    for (int i = 0; i <= replicas_; ++i) {
      const NodeId node = NameOf(i);
      servers_[node].incarnation = Incarnation(++incarnations_);
      routing.servers.push_back({node, node + ":1", servers_[node].incarnation});
    }
    ShardRoute route{.key = kShard, .elements = {0, 10}, .server = 0, .term = Term(1)};
    for (int i = 1; i <= replicas_; ++i) route.replicas.push_back({i, /*in_sync=*/false});
    routing.shards.push_back(route);
    map_.emplace(routing, ShardMap::Options{.replicas = replicas_});
    Server& primary = servers_[NameOf(0)];
    primary.holds = true;
    primary.applied = routing;
    primary.log = {Term(1), 0, primary.incarnation};
  }

  std::string Run() {
    for (int i = 0; i < 200 && error_.empty(); ++i) {
      Event();
      now_ = now_ + absl::Milliseconds(100);
      map_->Settle(now_);
      Recover();
    }
    return error_;
  }
  int recoveries() const { return recoveries_; }
  int disks_lost() const { return disks_lost_; }
  int older_disks() const { return older_disks_; }

 private:
  static NodeId NameOf(int number) { return absl::StrCat("server-", number); }
  static const ServerRef& PrimaryIn(const Routing& table) {
    return table.servers[static_cast<size_t>(table.shards[0].server)];
  }
  bool Lives(const ServerRef& ref) const {
    const auto server = servers_.find(ref.node);
    return server != servers_.end() && server->second.incarnation == ref.incarnation;
  }
  // Returns true if the server is primary by the table that it has applied.
  bool IsPrimary(const NodeId& node) const {
    const Server& server = servers_.at(node);
    return server.holds && !server.applied.shards.empty() &&
           PrimaryIn(server.applied) == ServerRef{node, node + ":1", server.incarnation};
  }

  void Event() {
    const NodeId node = NameOf(static_cast<int>(dice_.Below(kServers)));
    Server& server = servers_[node];
    if (server.incarnation == Incarnation(0)) return Start(node);
    switch (dice_.Below(12)) {
      case 0:
        // All die together, and the map learns of all deaths at once.
        if (dice_.Chance(0.4)) return KillAll();
        return Kill(node);
      case 1:
        if (dice_.Chance(0.3)) FailLog(node);
        return;
      case 2:
      case 3:
      case 4:
        return Apply(node);
      case 5:
      case 6:
        return Fill(node);
      case 7:
      case 8:
        return Push(node);
      default:
        return Report(node);
    }
  }

  void Start(const NodeId& node) {
    if (dice_.Chance(0.5)) return;
    Server& server = servers_[node];
    if (dice_.Chance(0.15) && server.log.has_value()) {
      server.log.reset();
      ++disks_lost_;
    } else if (dice_.Chance(0.1) && server.copy.has_value()) {
      server.log = server.copy;
      ++older_disks_;
    } else if (dice_.Chance(0.5)) {
      server.copy = server.log;
    }
    server = {.incarnation = Incarnation(++incarnations_), .log = server.log, .copy = server.copy};
    map_->SetServer({node, node + ":1", server.incarnation}, /*draining=*/false);
    std::vector<StoredShard> stored;
    if (const auto& log = server.log) {
      stored.push_back({"job-1", kShard, log->term, Position(static_cast<uint64_t>(log->position)),
                        "", log->incarnation});
    }
    map_->SetStored(node, stored);
  }
  void KillAll() {
    for (auto& [node, server] : servers_) {
      if (server.incarnation != Incarnation(0)) Kill(node);
    }
  }
  void Kill(const NodeId& node) {
    servers_[node].incarnation = Incarnation(0);
    map_->ServerDied(node, now_);
  }

  // Acts as the server's agent: a table names the shard's servers, and the source from which a new
  // primary reads it.
  void Apply(const NodeId& node) {
    Server& server = servers_[node];
    const Routing& table = map_->routing();
    const ServerRef self{node, node + ":1", server.incarnation};
    if (server.failed || map_->has_lost() || table.generation <= server.applied.generation) return;
    const ShardRoute& route = table.shards[0];
    const bool named =
        PrimaryIn(table) == self ||
        std::any_of(route.replicas.begin(), route.replicas.end(), [&](const ReplicaRef& replica) {
          return table.servers[static_cast<size_t>(replica.server)] == self;
        });
    if (!named) {
      if (server.holds) server.log.reset();  // Other logs stay on the disk for a grace time.
      server.holds = false;
      server.applied = {};
      return;
    }
    const Term known = server.applied.shards.empty() ? Term(0) : server.applied.shards[0].term;
    if (PrimaryIn(table) == self && route.term == map_->source().restore_term &&
        known < route.term) {
      server.log = {route.term, acknowledged_, server.incarnation};  // Restored from a checkpoint.
      server.holds = true;
    } else if (PrimaryIn(table) == self && !server.holds) {
      if (!server.log.has_value() || route.term != map_->source().log_term) return Refuse(node);
      server.log->term = route.term;
      server.log->incarnation = server.incarnation;
      server.holds = true;
    } else if (PrimaryIn(table) == self && server.log.has_value()) {
      server.log->term = route.term;  // The server was promoted.
    }
    server.in_sync.clear();
    for (const ReplicaRef& replica : route.replicas) {
      const ServerRef& ref = table.servers[static_cast<size_t>(replica.server)];
      if (replica.in_sync) server.in_sync.push_back(ref.node);
    }
    server.applied = table;
  }
  // The server reports that it cannot read its log. The report names no table.
  void Refuse(const NodeId& node) {
    servers_[node].failed = true;
    map_->NoteApplied(node, Generation(0));
    map_->ServerFailed(node, now_);
  }
  // The server's disk is full. It has applied a table, which the failure's report names.
  void FailLog(const NodeId& node) {
    Server& server = servers_[node];
    if (!IsPrimary(node)) return;
    server.failed = true;
    server.holds = false;
    map_->NoteApplied(node, server.applied.generation);
    map_->ServerFailed(node, now_);
  }

  void Fill(const NodeId& node) {
    if (!IsPrimary(node)) return;
    Server& primary = servers_[node];
    for (const ReplicaRef& replica : primary.applied.shards[0].replicas) {
      const ServerRef& ref = primary.applied.servers[static_cast<size_t>(replica.server)];
      if (!Lives(ref) || Counts(primary, ref.node)) continue;
      Server& other = servers_[ref.node];
      if (other.failed || other.applied.generation > primary.applied.generation) continue;
      other.holds = true;
      other.log = {primary.applied.shards[0].term, primary.log->position, other.incarnation};
      primary.in_sync.push_back(ref.node);
    }
  }
  static bool Counts(const Server& primary, const NodeId& node) {
    return std::find(primary.in_sync.begin(), primary.in_sync.end(), node) != primary.in_sync.end();
  }

  // Acknowledges a push when the log has it, and the logs of all replicas that count.
  void Push(const NodeId& node) {
    if (!IsPrimary(node) || servers_[node].failed) return;
    Server& primary = servers_[node];
    const ServerRef self{node, node + ":1", primary.incarnation};
    if (primary.applied.shards[0].awaits_log) return;
    // Replicas that know the new term fence off a deposed primary; here all replicas know it.
    if (PrimaryIn(map_->routing()) != self) return;
    std::vector<Server*> all = {&primary};
    for (const ReplicaRef& replica : primary.applied.shards[0].replicas) {
      const ServerRef& ref = primary.applied.servers[static_cast<size_t>(replica.server)];
      if (!Counts(primary, ref.node)) continue;
      if (!Lives(ref) || !servers_[ref.node].holds) return;
      all.push_back(&servers_[ref.node]);
    }
    acknowledged_ = primary.log->position + 1;
    for (Server* server : all) server->log->position = acknowledged_;
  }

  void Report(const NodeId& node) {
    Server& server = servers_[node];
    if (!server.holds || server.failed || server.applied.shards.empty()) return;
    TableReport report{"job-1", server.applied.generation, Generation(1), {}, {}};
    report.logs_begun = IsPrimary(node);
    const Term term = server.applied.shards[0].term;
    if (IsPrimary(node)) {
      for (const ReplicaRef& replica : server.applied.shards[0].replicas) {
        const ServerRef& ref = server.applied.servers[static_cast<size_t>(replica.server)];
        if (!Counts(server, ref.node)) continue;
        const bool lives = Lives(ref) && servers_[ref.node].holds;
        report.replicas.push_back(
            {kShard, term, ref.node, ref.incarnation,
             lives ? ReplicaReport::State::kFilled : ReplicaReport::State::kUnreachable});
      }
    }
    map_->OnTableReport(node, report);
  }

  void Recover() {
    if (!map_->has_lost()) return;
    if (map_->RecoverFromLog(now_)) {
      map_->Settle(now_);
      ++recoveries_;
      const ServerRef& primary = PrimaryIn(map_->routing());
      const auto& log = servers_[primary.node].log;
      if (!log.has_value()) {
        error_ = absl::StrCat(primary.node, " is to read a log that it does not have");
      } else if (log->position < acknowledged_) {
        error_ = absl::StrCat("the log of ", primary.node, " ends at ", log->position, ", and ",
                              acknowledged_, " was acknowledged");
      }
    } else if (dice_.Chance(0.02) && map_->PlaceAnew()) {
      map_->Settle(now_);
    }
  }

  Dice dice_;
  const int replicas_;
  std::optional<ShardMap> map_;
  std::map<NodeId, Server> servers_;
  uint64_t incarnations_ = 0;
  int64_t acknowledged_ = 0;  // The last position that was acknowledged to a worker.
  Instant now_ = Instant::FromOrigin(absl::Seconds(100));
  std::string error_;
  int recoveries_ = 0;
  int disks_lost_ = 0;
  int older_disks_ = 0;
};

TEST_CASE("Shard map: no log is taken that lacks what was acknowledged (issue 20)",
          "[scheduler][core]") {
  int recoveries = 0;
  int disks_lost = 0;
  int older_disks = 0;
  for (uint64_t seed = 1; seed <= 4000; ++seed) {
    World world(seed);
    const std::string error = world.Run();
    INFO("seed " << seed);
    REQUIRE(error == "");
    recoveries += world.recoveries();
    disks_lost += world.disks_lost();
    older_disks += world.older_disks();
  }
  CHECK(recoveries > 2000);
  CHECK(disks_lost > 2000);
  CHECK(older_disks > 2000);
}

}  // namespace
}  // namespace capstan::scheduler::shard_map_logs_property_test
