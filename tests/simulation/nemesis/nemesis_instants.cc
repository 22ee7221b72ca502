// Faults that are aimed at one instant of the first job. Messages of the scheduler and the servers
// tell when it has come.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/simulation/nemesis/nemesis.h"
#include "tests/simulation/world/checker.h"

namespace capstan::sim {
namespace {

constexpr absl::Duration kUnheard = absl::Milliseconds(2800);  // Less than the lease of a task.
constexpr absl::Duration kReadEvery = absl::Milliseconds(20);
// A primary answers by itself for less than this.
constexpr absl::Duration kReadLease = absl::Milliseconds(600);
constexpr absl::Duration kSuccessorDown = absl::Milliseconds(300);

// Hears what all checkers of a job hear, and judges nothing.
class Lookout final : public Checker {
 public:
  std::function<void(const scheduler::Assignment&)> on_assigned;
  std::function<void(int64_t version)> on_version;
  std::function<void(const scheduler::RoutingChanged&)> on_table;
  std::function<void(const scheduler::Routing&)> on_routing;

  void Assigned(const TaskKey&, const scheduler::Assignment& assignment) override {
    if (on_assigned) on_assigned(assignment);
  }
  void PushAnswered(const std::string&, const v1::PushRequest&,
                    const v1::PushResponse& response) override {
    if (!on_version) return;
    for (const v1::ShardPushResult& shard : response.shards()) on_version(shard.version());
  }
  void Happened(const scheduler::Event& event) override {
    const auto* table = std::get_if<scheduler::RoutingChanged>(&event);
    if (on_table && table != nullptr) on_table(*table);
  }
  void RoutingSent(const scheduler::Routing& routing) override {
    if (on_routing) on_routing(routing);
  }
};

}  // namespace

void Nemesis::StartInstants() {
  const ChaosOptions& chaos = world_->options.chaos;
  if (!chaos.overrun_by_one && !chaos.strand_former_primary && !chaos.lose_successor) return;
  auto lookout = std::make_unique<Lookout>();
  if (chaos.overrun_by_one) {
    lookout->on_assigned = [this](const auto& assignment) { TellMoment(assignment); };
    lookout->on_version = [this](int64_t version) { TellVersion(version); };
  }
  if (chaos.strand_former_primary) {
    lookout->on_table = [this](const auto& changed) { StrandFormerPrimary(changed); };
  }
  if (chaos.lose_successor) {
    lookout->on_routing = [this](const auto& routing) { LoseSuccessor(routing); };
  }
  world_->first_job().checkers.push_back(std::move(lookout));
}

// ---------------------------------------------------------------- a moment

// Tasks do not hear where the moment is to be, and once the scheduler has said it, they are not
// heard either. When a shard has one iteration more than the moment they die: their successors come
// to the moment, and stop there, as that is the oldest iteration that can be read everywhere.
void Nemesis::OverrunByOne() {
  if (unheard_ || instants_left_ == 0) return;
  --instants_left_;
  unheard_ = true;
  moment_.reset();
  Narrate("lets no worker hear the scheduler, until a shard is beyond the moment");
  CutUnheard(/*to_scheduler=*/false);
  world_->loop.After(kUnheard, [this] { unheard_ = false; });
}

void Nemesis::CutUnheard(bool to_scheduler) {
  for (int i = 0; i < world_->options.workers; ++i) {
    const int host = 1 + world_->options.servers + i;
    unheard_cuts_.push_back(undo_.size());
    CutOneWay(to_scheduler ? host : 0, to_scheduler ? 0 : host, kUnheard);
  }
}

void Nemesis::TellMoment(const scheduler::Assignment& assignment) {
  if (!unheard_ || moment_ || assignment.slots.empty()) return;
  moment_ = assignment.slots.front().end;
  CutUnheard(/*to_scheduler=*/true);
}

void Nemesis::TellVersion(int64_t version) {
  if (!unheard_ || !moment_ || version <= moment_->value()) return;
  moment_.reset();
  instants_left_ = 0;  // The rest of the run is not to be disturbed.
  ++world_->faults[Fault::kMomentOverrunByOne];
  Narrate(absl::StrCat("kills the tasks, at version ", version));
  // The server's answer must not be cut in two, so the tasks are killed after it.
  world_->loop.After(absl::ZeroDuration(), [this] {
    if (healed_) return;
    KillTasks();
    // The sooner they are replaced, the less comes in between.
    for (const size_t cut : unheard_cuts_) {
      if (undo_[cut]) std::exchange(undo_[cut], nullptr)();
    }
  });
}

void Nemesis::KillTasks() {
  for (const auto& worker : cluster_->workers()) {
    for (Process* task : worker->TaskProcesses()) worker->KillTask(task);
  }
}

// ---------------------------------------------------------------- a former primary

// It hears nothing of its successor, and neither does the reader, which goes on asking it. What
// others push to the successor meanwhile the former one does not have.
void Nemesis::StrandFormerPrimary(const scheduler::RoutingChanged& changed) {
  if (healed_ || instants_left_ == 0) return;
  for (const scheduler::PrimaryMove& move : changed.moves) {
    if (!move.from_lives || move.shards == move.swapped) continue;
    for (const auto& server : cluster_->servers()) {
      if (server->process().name() != move.from) continue;
      --instants_left_;
      ++world_->faults[Fault::kFormerPrimaryStranded];
      const absl::Duration time = instants_prng_.Between(absl::Seconds(1), absl::Seconds(2));
      Narrate(absl::StrCat("cuts off ", move.from, ", which has handed over, with the reader for ",
                           absl::FormatDuration(time)));
      CutOffTogether({server->host(), cluster_->hosts() - 1}, time);
      return ReadOften(world_->loop.Now() + kReadLease);
    }
  }
}

void Nemesis::ReadOften(Instant until) {
  if (healed_ || world_->loop.Now() > until) return;
  cluster_->reader()->ReadAll();
  world_->loop.After(kReadEvery, [this, until] { ReadOften(until); });
}

// ---------------------------------------------------------------- a successor

// The server has just been given its shards back, by the table of their term. What it acknowledges
// from now on is not on the disk that it comes back with, and the scheduler does not hear that it
// has begun another log. (Until a lost shard has a successor, tables name its former primary, with
// `awaits_log`, too. If that one is only cut off it may acknowledge pushes, which an older copy of
// its disk lacks: server/log/README.md.)
void Nemesis::LoseSuccessor(const scheduler::Routing& routing) {
  if (healed_ || instants_left_ == 0) return;
  for (const scheduler::ShardRoute& shard : routing.shards) {
    const scheduler::ServerRef primary = routing.servers[static_cast<size_t>(shard.server)];
    const bool given_back = Generation(shard.term.value()) == routing.generation;
    if (!shard.awaits_log || !given_back) continue;
    if (!successors_.insert(primary.incarnation).second) continue;
    for (const auto& server : cluster_->servers()) {
      if (server->process().name() != primary.node || !server->process().alive()) continue;
      --instants_left_;
      server->KeepCopyOfDisk();
      const absl::Duration time = instants_prng_.Between(absl::Milliseconds(500), absl::Seconds(2));
      CutOneWay(server->host(), 0, time + absl::Milliseconds(10));
      world_->loop.After(time, [this, server = server.get(),
                                incarnation = server->process().incarnation()] {
        if (healed_ || !server->process().alive() || server->process().incarnation() != incarnation)
          return;
        ++world_->faults[Fault::kSuccessorUnheard];
        Narrate(absl::StrCat("kills ", server->process().name(),
                             ", which has taken over unheard, and gives it its disk of before"));
        server->Kill(SimServer::DiskFate::kLost);
        world_->DiskSuffered(server->process().name());
        world_->TroubleFor(kSuccessorDown);
        world_->loop.After(kSuccessorDown, [server] {
          if (!server->process().alive()) server->Start();
        });
      });
    }
  }
}

}  // namespace capstan::sim
