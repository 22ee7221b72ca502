#include "worker/core/overlap_scheduler.h"

#include <algorithm>
#include <cassert>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace capstan::worker {

OverlapScheduler::OverlapScheduler(std::vector<Range> shards, const Options& options)
    : options_(options) {
  for (const Range& range : shards) {
    assert(range.begin == elements() && range.size() > 0);
    shards_.push_back({.range = range});
  }
}

const char* OverlapScheduler::Name(State state) {
  switch (state) {
    case State::kComputing:
      return "its gradient is being computed";
    case State::kReady:
      return "it waits to be pushed";
    case State::kPushing:
      return "it is being pushed";
    case State::kPushed:
      return "it waits to be pulled";
    case State::kPulling:
      return "it is being pulled";
    case State::kHere:
      return "it is here";
  }
  return "";
}

absl::Status OverlapScheduler::BeginStep() {
  for (size_t i = 0; i < shards_.size(); ++i) {
    if (shards_[i].state == State::kHere) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("a step begins, and shard ", i, " is not here yet: ", Name(shards_[i].state)));
  }
  for (Shard& shard : shards_) shard.state = State::kComputing;
  final_from_ = elements();
  return absl::OkStatus();
}

absl::Status OverlapScheduler::GradientReady(int64_t first, Actions* actions) {
  if (first < 0 || first > final_from_) {
    return absl::InvalidArgumentError(absl::StrCat("gradients are final from element ", first,
                                                   " on, expected 0 to ", final_from_));
  }
  final_from_ = first;
  for (Shard& shard : shards_) {
    if (shard.state == State::kComputing && shard.range.begin >= first) shard.state = State::kReady;
  }
  Fill(State::kReady, State::kPushing, &actions->push);
  return absl::OkStatus();
}

absl::Status OverlapScheduler::Move(int shard, State from, State to, Actions* actions) {
  if (shard < 0 || shard >= static_cast<int>(shards_.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard ", shard, ", expected one below ", shards_.size()));
  }
  State& state = shards_[static_cast<size_t>(shard)].state;
  if (state != from) {
    return absl::FailedPreconditionError(
        absl::StrCat("shard ", shard, ": ", Name(state), ", expected that ", Name(from)));
  }
  state = to;
  Fill(State::kReady, State::kPushing, &actions->push);
  Fill(State::kPushed, State::kPulling, &actions->pull);
  return absl::OkStatus();
}

absl::Status OverlapScheduler::Pushed(int shard, Actions* actions) {
  return Move(shard, State::kPushing, State::kPushed, actions);
}

absl::Status OverlapScheduler::Arrived(int shard, Actions* actions) {
  return Move(shard, State::kPulling, State::kHere, actions);
}

absl::Status OverlapScheduler::Lost(int shard, Actions* actions) {
  const bool pulling = shard >= 0 && shard < static_cast<int>(shards_.size()) &&
                       shards_[static_cast<size_t>(shard)].state == State::kPulling;
  return pulling ? Move(shard, State::kPulling, State::kPushed, actions)
                 : Move(shard, State::kPushing, State::kReady, actions);
}

void OverlapScheduler::Fill(State from, State to, std::vector<int>* sent) {
  int64_t under_way = 0;
  for (const Shard& shard : shards_) {
    if (shard.state == to) under_way += shard.range.size();
  }
  for (size_t i = 0; i < shards_.size(); ++i) {
    Shard& shard = shards_[i];
    if (shard.state != from) continue;
    // The next one is not passed by a smaller one: it is what will be needed first.
    if (under_way > 0 && under_way + shard.range.size() > options_.window_elements) return;
    under_way += shard.range.size();
    shard.state = to;
    sent->push_back(static_cast<int>(i));
  }
}

int64_t OverlapScheduler::arrived_end() const {
  for (const Shard& shard : shards_) {
    if (shard.state != State::kHere) return shard.range.begin;
  }
  return elements();
}

}  // namespace capstan::worker
