#include "tests/simulation/checkers/quiet_moment.h"

#include <variant>

#include "absl/strings/str_cat.h"

namespace capstan::sim {

void QuietMoment::PushSent(const ShardPush& push) {
  const Push sent(push.task_key, push.shard, push.batch.epoch, push.batch.positions.begin);
  under_way_.insert(sent);
  if (stands_) ExpectDead(sent);
}

void QuietMoment::PushAcknowledged(const TaskKey& task_key, ShardKey shard, const Batch& batch,
                                   Version) {
  under_way_.erase({task_key, shard, batch.epoch, batch.positions.begin});
}

void QuietMoment::PushAnswered(const std::string& server, const v1::PushRequest& request,
                               const v1::PushResponse& response) {
  const TaskKey task_key{"", Rank(request.caller().rank()),
                         Incarnation(request.caller().incarnation())};
  if (!stands_ || !at_once_ || history_.IsOld(task_key)) return;
  for (const v1::ShardPushResult& result : response.shards()) {
    if (result.outcome() != v1::ShardPushResult::RECORDED) continue;
    Fail(absl::StrCat("quiet moment: ", server, " recorded a push of task ",
                      request.caller().rank(), "/", request.caller().incarnation(),
                      " while the tables were copied"));
  }
}

void QuietMoment::Happened(const scheduler::Event& event) {
  Nothing nothing;
  history_.Happened(event, nothing);
  if (const auto* died = std::get_if<scheduler::TaskDied>(&event)) {
    dead_.insert(died->task);
  } else if (const auto* phase = std::get_if<scheduler::PhaseStarted>(&event)) {
    stands_ = phase->phase == scheduler::JobPhase::kCheckpointing;
    if (!stands_) return;
    for (const Push& push : under_way_) ExpectDead(push);
  }
}

void QuietMoment::ExpectDead(const Push& push) {
  const auto& [task_key, shard, epoch, position] = push;
  if (dead_.contains(task_key) || history_.IsOld(task_key)) return;
  Fail(absl::StrCat("quiet moment: a push of task ", task_key.rank.value(), "/",
                    task_key.incarnation.value(), ", position ", position, " of epoch ",
                    epoch.value(), ", to shard ", shard.shard.value(),
                    " was under way while the tables were copied"));
}

}  // namespace capstan::sim
