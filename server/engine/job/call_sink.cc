#include "server/engine/job/call_sink.h"

#include "common/planted/planted_bug.h"
#include "common/status/status_macros.h"
#include "server/engine/codec.h"

namespace capstan::server {

// The tables call these under the shard's lock, which the analysis cannot see. Other shards of the
// same pull may be answered at the same time.

void CallSink::OnPush(const ShardKey& key, const ReplyPush& reply) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  EncodePushReply(reply, push_);
  const ShardLink& link = state_->engines.at(key)->link;
  if (link.HoldsPush(reply.rests_on)) {
    state_->calls.HoldForVersion(push_call_, key, reply.rests_on);
  }
}

absl::Status CallSink::OnPull(const ShardKey& key, const ReplyPull& reply,
                              const ShardStore& store) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  const WaitingCalls::Part part = state_->calls.PartOf(reply.token);
  v1::ShardValues* head = part.answer->head.mutable_shards(part.index);
  EncodePullReply(reply, head);
  // The type that was asked for is in the answer already.
  const NumberFormat format = FormatOf(head->value_type()).value_or(NumberFormat::kFp32);
  head->clear_value_type();
  if (reply.outcome == PullOutcome::kValues) {
    head->set_value_type(TypeOf(format));
    CAPSTAN_ASSIGN_OR_RETURN(part.answer->values[static_cast<size_t>(part.index)],
                             store.Lend(reply.read_from, part.keys, format));
  }
  if (reply.outcome == PullOutcome::kNotReady) {
    absl::MutexLock lock(&state_->waiting_on_mutex);
    EncodeWaitingOn(key, reply.waiting_on, part.answer->head.add_waiting_on());
  } else {
    HoldRead(key, part.call, reply.rests_on());
  }
  state_->calls.TakePart(reply.token, ended_);
  return absl::OkStatus();
}

void CallSink::HoldRead(const ShardKey& key, CallId call,
                        Version version) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  HoldVersion(key, call, version);
  const ShardLink& link = state_->engines.at(key)->link;
  if (link.holds_replies() && NeedsBarrier(link)) {
    state_->calls.Open(call);
    barriers_.emplace_back(key, call);
  }
}

void CallSink::HoldVersion(const ShardKey& key, CallId call,
                           Version version) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  const ShardLink& link = state_->engines.at(key)->link;
  if (link.holds_replies() && version > link.replication().primary().committed_version()) {
    state_->calls.HoldForVersion(call, key, version);
  }
}

void CallSink::OnRecord(const ShardKey& key, const MakeRecord& made,
                        const Gradient& gradient) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  ShardLink& link = state_->engines.at(key)->link;
  if (!link.holds_replies()) return;
  link.OnRecord(made, gradient);
  Touch(key);
}

// A primary that hands over, or whose read lease has run out, may have been replaced: what it shows
// must first be confirmed by the replicas, one of which would be the new one.
bool CallSink::NeedsBarrier(const ShardLink& link) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (!link.replication().primary().HasCountedFollowers()) return false;
  if (Planted(PlantedBug::kReadWithoutLease)) return false;
  if (link.replication().primary().hands_over() && !Planted(PlantedBug::kReadWhileHandingOver))
    return true;
  if (!now_.has_value()) now_ = state_->options.clock->Now();
  return !state_->routing.HasReadLease(*now_);
}

}  // namespace capstan::server
