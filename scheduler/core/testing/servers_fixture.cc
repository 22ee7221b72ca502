#include "scheduler/core/testing/servers_fixture.h"

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "scheduler/core/job/view_of_job.h"

namespace capstan::scheduler {

ServersFixture::ServersFixture(int replicas, bool log, int server_count, Tables tables) {
  plan.id = "job-1";
  plan.unique_id = "cc-1";
  plan.consistency.mode = ConsistencyMode::kSsp;
  plan.workers = 1;
  plan.replicas = replicas;
  plan.log = log;
  plan.server_wait = absl::Seconds(60);
  plan.epochs = 1;
  plan.batch_size = 10;
  plan.train_count = 8000;
  plan.tables = {300'000};
  plan.export_path = "/out";
  std::vector<ServerRef> refs;
  for (int i = 1; i <= server_count; ++i) refs.push_back(NextIncarnation(i));
  auto routing = std::make_shared<const Routing>(
      PlaceShards(plan.id, Generation(1), plan.tables, refs, replicas));
  run = std::make_unique<JobRun>(plan, routing, JobRun::Options{}, now);
  run->PlaceTask(Rank(0), Incarnation(100), "worker-1", "w:1", now, events);
  if (tables == Tables::kNotMade) return;
  Send();
  ApplyAll();
  if (tables == Tables::kMade) return;
  samples = 10;
  Send();
}

ServerRef ServersFixture::NextIncarnation(int number) {
  const NodeId name = absl::StrCat("server-", number);
  written_by[name] = Incarnation(incarnation + 1);
  servers[name] = {name, name + ":1", Incarnation(++incarnation)};
  return servers[name];
}

void ServersFixture::Send(bool idle) {
  TaskReport report;
  report.task = {"job-1", Rank(0), Incarnation(100)};
  report.assignment_seen = Of().generation;
  report.idle = idle;
  report.totals.samples = samples;
  REQUIRE_OK(run->OnTaskReport(report, now, events));
}

const Assignment& ServersFixture::Of() const { return run->parts().tasks.at(Rank(0)).assignment; }

void ServersFixture::ApplyAll() {
  for (int i = 0; i < 6; ++i) {
    for (const auto& [name, ref] : servers) Apply(name);
  }
}

void ServersFixture::Apply(const NodeId& name) {
  const Routing& table = *run->parts().routing;
  TableReport report{
      "job-1", table.generation, run->parts().members.membership().generation, {}, {}};
  report.logs_begun = logs_begun;
  const auto at = [&](int index) { return table.servers[static_cast<size_t>(index)]; };
  for (const ShardRoute& route : table.shards) {
    for (const ReplicaRef& replica : route.replicas) {
      const ServerRef ref = at(replica.server);
      if (at(route.server) != servers.at(name)) continue;
      report.replicas.push_back(
          {route.key, route.term, ref.node, ref.incarnation, ReplicaReport::State::kFilled});
    }
  }
  run->OnTableReport(name, report, now, events);
}

void ServersFixture::Kill(const std::vector<NodeId>& names, absl::Duration fence) {
  std::vector<JobRun::DeadNode> dead;
  for (const NodeId& name : names) {
    servers.erase(name);
    dead.push_back({name, "no sync for 3s", now + fence});
  }
  run->OnNodesDied(dead, now, events);
}

void ServersFixture::Start(int number, const std::vector<int>& logged,
                           const std::string& unique_id) {
  std::vector<StoredShard> stored;
  const Incarnation writer = written_by[absl::StrCat("server-", number)];
  for (const int shard : logged) {
    stored.push_back(
        {"job-1", {TableId(0), ShardId(shard)}, Term(1), Position(5), unique_id, writer});
  }
  run->OnServerJoined(NextIncarnation(number), stored, /*draining=*/false, now, events);
}

void ServersFixture::Pass(absl::Duration step) {
  now = now + step;
  run->Tick(now, events);
}

std::vector<int> ServersFixture::ShardsOf(const NodeId& name) const {
  std::vector<int> shards;
  for (const ShardRoute& route : run->parts().routing->shards) {
    if (Primary(route).node == name) shards.push_back(route.key.shard.value());
  }
  return shards;
}

const ServerRef& ServersFixture::Primary(const ShardRoute& route) const {
  return run->parts().routing->servers[static_cast<size_t>(route.server)];
}

JobView ServersFixture::View() const { return ViewOf(run->parts(), now); }

}  // namespace capstan::scheduler
