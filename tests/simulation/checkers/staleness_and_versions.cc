#include "tests/simulation/checkers/staleness_and_versions.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace capstan::sim {
void StalenessAndVersions::PushSent(const ShardPush& push) {
  Iteration& next = pushed_[push.shard][push.task_key];
  next = std::max(next, push.batch.iteration.Next());
}

void StalenessAndVersions::PushAcknowledged(const TaskKey& task_key, ShardKey shard, const Batch&,
                                            Version version) {
  if (job_.mode == ConsistencyMode::kBsp) return;  // Slots may be recomputed after their iteration.
  if (history_.IsOld(task_key)) return;
  if (!job_.early_pulls()) {
    Version& seen = seen_[{task_key, shard}];
    seen = std::max(seen, version);
  }
  Version& newest = acknowledged_[shard];
  newest = std::max(newest, version);
}

// A version that a reader was shown must not get lost, just as one that was acknowledged.
void StalenessAndVersions::SnapshotShown(ShardKey shard, Version version) {
  Version& newest = acknowledged_[shard];
  newest = std::max(newest, version);
}

void StalenessAndVersions::PullSent(const TaskKey& task_key, ShardKey shard, Iteration iteration) {
  if (job_.mode == ConsistencyMode::kBsp) return;
  // A task that the job has left behind may still have servers that it has left behind, too.
  if (task_key.rank.value() >= 0 && history_.IsOld(task_key)) return;
  at_least_[{task_key, shard}] = acknowledged_[shard];
  Asked& asked = asked_[{task_key, shard}];
  if (asked.iteration == iteration) return;
  asked.iteration = iteration;
  asked.acknowledged = acknowledged_[shard];
  std::set<TaskKey>& working = asked.working[iteration];
  working.clear();
  for (const scheduler::Member& member : membership_.members) {
    const TaskKey other{task_key.job, member.rank, member.incarnation};
    const auto work = work_.find(other);
    if (member.active && work != work_.end() && work->second.leases > 0) {
      working.insert(other);
    }
  }
}

void StalenessAndVersions::ReadDone(const ShardRead& read) {
  if (job_.mode == ConsistencyMode::kBsp) {
    if (read.snapshot || read.version.value() == read.iteration.value()) return;
    return Fail(absl::StrCat("versions: ", NameOf(read.task_key), " read version ",
                             read.version.value(), " of ", NameOf(read.shard), " at iteration ",
                             read.iteration.value()));
  }
  Version& seen = seen_[{read.task_key, read.shard}];
  if (read.version < seen) {
    Fail(absl::StrCat("versions: ", NameOf(read.task_key), " read version ", read.version.value(),
                      " of ", NameOf(read.shard), " after ", seen.value()));
  }
  seen = read.version;
  CheckSees(at_least_[{read.task_key, read.shard}], read.task_key, read.shard, read.version);
}

void StalenessAndVersions::CheckSees(Version needed, const TaskKey& task_key, const ShardKey& shard,
                                     Version version) {
  if (version >= needed) return;
  Fail(absl::StrCat("versions: ", NameOf(task_key), " read version ", version.value(), " of ",
                    NameOf(shard), " though version ", needed.value(),
                    " was acknowledged to somebody before it asked"));
}

void StalenessAndVersions::WorkChanged(const TaskKey& task_key, Iteration start, int leases) {
  work_[task_key] = {.start = start, .leases = leases};
}

void StalenessAndVersions::MembershipSent(const JobId&,
                                          const scheduler::JobMembership& membership) {
  if (membership.generation > membership_.generation) membership_ = membership;
}

void StalenessAndVersions::PullAnswered(const std::string& server, const v1::PullRequest& request,
                                        const v1::PullResponse& response) {
  if (job_.mode == ConsistencyMode::kBsp) return;
  const v1::Caller& caller = request.caller();
  const TaskKey task_key{caller.job_id(), Rank(caller.rank()), Incarnation(caller.incarnation())};
  // A reader, having no incarnation, counts as old: it may have given this pull up and sent another
  // one, so it is judged by what it takes in.
  if (history_.IsOld(task_key)) return;
  for (int i = 0; i < response.shards_size(); ++i) {
    const v1::ShardValues::Outcome outcome = response.shards(i).outcome();
    if (outcome != v1::ShardValues::VALUES && outcome != v1::ShardValues::UNCHANGED) continue;
    const ShardKey shard{TableId(request.shards(i).table()), ShardId(request.shards(i).shard())};
    // The answer may be to a pull that was given up meanwhile, or to the first of several tries.
    const Asked& asked = asked_[{task_key, shard}];
    if (asked.iteration.value() == request.iteration()) {
      CheckSees(asked.acknowledged, task_key, shard, Version(response.shards(i).version()));
    }
    if (job_.mode != ConsistencyMode::kSsp || request.snapshot()) continue;
    answered_[{task_key, shard}] = pushed_[shard];
    CheckStaleness(absl::StrCat(server, " let ", NameOf(task_key), " read ", NameOf(shard)),
                   task_key, request.iteration(), shard, pushed_[shard]);
  }
}

void StalenessAndVersions::RowsUsed(const RowsUse& use) {
  if (history_.IsOld(use.task_key)) return;
  const int64_t dim = job_.sparse_dim;
  const auto row_at = [&](int64_t place) {
    return use.rows.subspan(static_cast<size_t>(place * dim), static_cast<size_t>(dim));
  };
  for (int64_t place = use.places.begin; place < use.places.end; ++place) {
    Kept& kept = kept_[{use.task_key, place}];
    const auto row = row_at(place);
    if (std::binary_search(use.asked.begin(), use.asked.end(), static_cast<uint32_t>(place))) {
      kept = {use.iteration, answered_[{use.task_key, use.shard}], {row.begin(), row.end()}};
      continue;
    }
    const std::string what =
        absl::StrCat(NameOf(use.task_key), " used a row of ", NameOf(use.shard),
                     " that it had pulled for ", kept.iteration.value());
    if (!std::equal(row.begin(), row.end(), kept.row.begin(), kept.row.end())) {
      return Fail(absl::StrCat("staleness: ", what, ", and which is another"));
    }
    const int64_t age = use.iteration.value() - kept.iteration.value();
    if (job_.mode == ConsistencyMode::kAsp && age > job_.cached_iterations) {
      return Fail(absl::StrCat("staleness: ", what, " at ", use.iteration.value(), "; it may for ",
                               job_.cached_iterations));
    }
    if (job_.mode != ConsistencyMode::kSsp) continue;
    CheckStaleness(what, use.task_key, use.iteration.value(), use.shard, kept.pushed);
  }
}

void StalenessAndVersions::CheckStaleness(const std::string& what, const TaskKey& reader,
                                          int64_t iteration, const ShardKey& shard,
                                          const Pushed& pushed) {
  const auto& asked = asked_[{reader, shard}].working;
  const auto working = asked.find(Iteration(iteration));
  for (const scheduler::Member& member : membership_.members) {
    // Where a worker reads its writes, its own pushes are before its pull.
    const bool own = member.rank == reader.rank;
    if (!member.active || (own && !job_.early_pulls())) continue;
    const TaskKey task_key{reader.job, member.rank, member.incarnation};
    const auto work = work_.find(task_key);
    if (work == work_.end() || work->second.leases == 0) continue;
    if (working != asked.end() && !working->second.contains(task_key)) continue;
    Iteration next = work->second.start;
    if (const auto found = pushed.find(task_key); found != pushed.end()) {
      next = std::max(next, found->second);
    }
    if (next.value() >= iteration - job_.staleness_bound) continue;
    return Fail(absl::StrCat("staleness: ", what, " at iteration ", iteration, " while ",
                             NameOf(task_key), " has pushed ", next.value(),
                             " iterations; the bound is ", job_.staleness_bound));
  }
}

}  // namespace capstan::sim
