#include "scheduler/core/checkpoints/checkpoints.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace capstan::scheduler {
namespace {

// Limits for the servers to capture, and to write.
constexpr absl::Duration kCaptureLimit = absl::Seconds(60);
constexpr absl::Duration kWriteLimit = absl::Minutes(30);

absl::string_view PrimaryOf(const Routing& routing, const ShardRoute& route) {
  return routing.servers[static_cast<size_t>(route.server)].node;
}

std::string Name(const ShardKey& key) {
  return absl::StrCat("table ", key.table.value(), " shard ", key.shard.value());
}

}  // namespace

Checkpoints::Checkpoints(const JobPlan& plan)
    : job_(plan.id),
      bsp_(plan.consistency.synchronous()),
      folder_(plan.checkpoint_folder),
      clock_(plan),
      complete_(plan),
      last_begun_(plan.checkpoint_floor) {}

bool Checkpoints::IsDue(int64_t steps, Instant now) const {
  return state_ == State::kIdle && (clock_.IsSnapshotDue() || clock_.IsCheckpointDue(steps, now));
}

// ---------------------------------------------------------------- the present one

void Checkpoints::SkipTo(CheckpointId floor) {
  if (floor <= last_begun_ || state_ != State::kIdle) return;
  last_begun_ = floor;
  ++changes_;
}

Instant Checkpoints::Limit() const { return IsAwaited() ? deadline_ : Instant::InfiniteFuture(); }

void Checkpoints::Begin(const Routing& routing, ResumePoint at, int64_t steps, Instant now) {
  writes_ = clock_.IsCheckpointDue(steps, now) || !clock_.IsSnapshotDue();
  if (writes_) clock_.Begun(steps, now);
  base_ = writes_ ? complete_.NextBase() : CheckpointId(0);
  readers_ = clock_.TakeReaders();
  not_kept_.clear();
  publish_taken_ = false;
  ++last_begun_;
  state_ = State::kCapturing;
  deadline_ = now + kCaptureLimit;
  routing_ = routing;
  at_ = std::move(at);
  parts_.clear();
  progress_.clear();
  for (const ShardRoute& route : routing_.shards) {
    progress_[NodeId(PrimaryOf(routing_, route))] = Progress::kNone;
  }
  ++changes_;
  if (!progress_.empty()) return;
  AllCaptured(now);  // There are no shards.
  if (writes_) state_ = State::kPublishing;
}

void Checkpoints::AllCaptured(Instant now) {
  TellSnapshot(not_kept_);
  state_ = writes_ ? State::kWriting : State::kIdle;
  deadline_ = now + kWriteLimit;
  ++changes_;
}

void Checkpoints::TellSnapshot(const std::string& why) {
  if (!readers_.empty()) ends_.snapshots.push_back({job_, last_begun_, at_.iteration.value(), why});
}

bool Checkpoints::AllAtLeast(Progress progress) const {
  return std::all_of(progress_.begin(), progress_.end(),
                     [progress](const auto& entry) { return entry.second >= progress; });
}

void Checkpoints::OnReport(const NodeId& server, const CheckpointReport& report, Instant now) {
  const auto known = progress_.find(server);
  if (!IsAwaited() || report.id != last_begun_ || known == progress_.end()) return;
  if (known->second == Progress::kWritten) return;
  if (not_kept_.empty() && !report.not_kept.empty()) {
    not_kept_ = absl::StrCat(server, ": ", report.not_kept);
  }
  switch (report.state) {
    case CheckpointReport::State::kFailed:
      return Abandon(absl::StrCat(server, ": ", report.error), server);
    case CheckpointReport::State::kCaptured:
      known->second = Progress::kCaptured;
      break;
    case CheckpointReport::State::kWritten:
      if (std::string wrong = TakeParts(server, report.parts); !wrong.empty()) {
        return Abandon(absl::StrCat(server, ": ", wrong), server);
      }
      known->second = Progress::kWritten;
      break;
  }
  if (IsCapturing() && AllAtLeast(Progress::kCaptured)) AllCaptured(now);
  if (writes_ && AllAtLeast(Progress::kWritten)) {
    state_ = State::kPublishing;
    ++changes_;
  }
}

// Records a server's parts. Returns the first mistake in them; empty if there is none.
std::string Checkpoints::TakeParts(const NodeId& server, const std::vector<CheckpointPart>& parts) {
  std::map<ShardKey, const CheckpointPart*> by_shard;
  for (const CheckpointPart& part : parts) by_shard[part.shard] = &part;
  for (const ShardRoute& route : routing_.shards) {
    if (PrimaryOf(routing_, route) != server) continue;
    const auto found = by_shard.find(route.key);
    if (found == by_shard.end()) return absl::StrCat("no part of ", Name(route.key));
    const CheckpointPart& part = *found->second;
    if (part.elements != route.elements) {
      return absl::StrCat(Name(route.key), " has elements [", part.elements.begin, ", ",
                          part.elements.end, "), expected [", route.elements.begin, ", ",
                          route.elements.end, ")");
    }
    if (bsp_ && part.version.value() != at_.iteration.value()) {
      return absl::StrCat(Name(route.key), " is at version ", part.version.value(),
                          ", expected that of iteration ", at_.iteration.value());
    }
    if (const absl::Status bytes = CheckCount("bytes", part.bytes, CheckpointPart::kBytesMax);
        !bytes.ok()) {
      return absl::StrCat(Name(route.key), ": ", bytes.message());
    }
    if (part.base != CheckpointId(0) && part.base != base_) {
      return absl::StrCat(Name(route.key), " rests on checkpoint ", part.base.value(),
                          ", expected ", base_.value(), " or all of it");
    }
    parts_[route.key] = part;
  }
  return "";
}

void Checkpoints::OnRouting(const Routing& routing) {
  if (!IsAwaited()) return;
  for (size_t i = 0; i < routing_.shards.size(); ++i) {
    const ShardRoute& before = routing_.shards[i];
    if (routing.shards[i].term == before.term) continue;
    // The checkpoint ends even if the former primary has written the shard, because the new primary
    // has the same order and the same file name.
    return Abandon(absl::StrCat(Name(before.key), " has left ", PrimaryOf(routing_, before)));
  }
}

void Checkpoints::OnServerDied(const NodeId& server) {
  // The checkpoint ends even if the server has written its parts, because its next incarnation
  // would capture again and overwrite them.
  if (IsAwaited() && progress_.contains(server)) Abandon(absl::StrCat(server, " is gone"), server);
}

void Checkpoints::Tick(Instant now) {
  if (now < Limit()) return;
  Abandon(absl::StrCat(Awaited(), IsCapturing() ? " has not copied" : " has not written",
                       " its part in time"),
          Awaited());
}

void Checkpoints::Abandon(const std::string& why, const NodeId& node) {
  if (state_ != State::kIdle) End(why, node);
}

void Checkpoints::Published(CheckpointId id, const absl::Status& status) {
  if (state_ != State::kPublishing || id != last_begun_) return;
  if (status.ok()) {
    Complete();
  } else {
    complete_.EndChain();  // The base may be damaged, so the next checkpoint has none.
  }
  End(std::string(status.message()));
}

void Checkpoints::Complete() {
  bool rests = false;  // Its base is the newest complete checkpoint.
  int64_t bytes = 0;
  int64_t added_bytes = 0;
  for (const auto& [key, part] : parts_) {
    bytes += part.bytes;
    if (part.base == CheckpointId(0)) continue;
    rests = true;
    added_bytes += part.bytes;
  }
  complete_.Add({.folder = FolderOf(last_begun_), .at = at_, .id = last_begun_}, rests, bytes,
                added_bytes);
}

// ---------------------------------------------------------------- ends

void Checkpoints::End(const std::string& why, const NodeId& node) {
  if (IsCapturing()) TellSnapshot(why);
  state_ = State::kIdle;
  if (writes_) {
    ends_.checkpoints.push_back({job_, last_begun_, FolderOf(last_begun_), why, node});
  }
  if (writes_ && !why.empty()) {
    last_failed_ = last_begun_;
    why_failed_ = why;
  }
  ++changes_;
}

std::string Checkpoints::FolderOf(CheckpointId id) const {
  return absl::StrCat(folder_, "/checkpoint-", id.value());
}

// When all parts are written there is no order any more, because a new server would capture again.
CheckpointOrder Checkpoints::order() const {
  if (!IsAwaited()) return {};
  CheckpointOrder order{.id = last_begun_, .folder = "", .readers = readers_};
  if (writes_) order.folder = FolderOf(last_begun_);
  if (writes_) order.base = base_;
  if (bsp_) order.version = Version(at_.iteration.value());
  return order;
}

std::optional<CheckpointPublish> Checkpoints::TakePublish() {
  if (publish_taken_ || state_ != State::kPublishing) return std::nullopt;
  publish_taken_ = true;
  CheckpointPublish publish{.job = job_,
                            .id = last_begun_,
                            .folder = FolderOf(last_begun_),
                            .job_folder = folder_,
                            .base = base_,
                            .parts = {},
                            .writers = {},
                            .at = at_};
  for (const ShardRoute& route : routing_.shards) {
    const auto part = parts_.find(route.key);
    if (part == parts_.end()) continue;
    publish.parts.push_back(part->second);
    publish.writers.push_back(routing_.servers[static_cast<size_t>(route.server)]);
  }
  return publish;
}

NodeId Checkpoints::Awaited() const {
  const Progress wanted = IsCapturing() ? Progress::kCaptured : Progress::kWritten;
  for (const auto& [server, progress] : progress_) {
    if (progress < wanted) return server;
  }
  return "nobody";
}

Checkpoints::Ends Checkpoints::TakeEnds() { return std::exchange(ends_, {}); }

absl::StatusOr<const RestoreFrom*> Checkpoints::Find(CheckpointId asked) const {
  const std::vector<RestoreFrom>& complete = complete_.all();
  if (!complete.empty() && complete.back().id >= asked) return &complete.back();
  const bool is_next = asked == last_begun_.Next();
  const bool may_come =
      state_ == State::kIdle ? clock_.asked() && is_next : asked == last_begun_ || is_next;
  if (may_come) return nullptr;
  if (last_failed_ >= asked) {
    return absl::FailedPreconditionError(absl::StrCat("checkpoint ", last_failed_.value(), " of ",
                                                      job_, " was given up: ", why_failed_));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint ", asked.value(), " of ", job_,
                   " was given up, or was never asked for: the last one is ", last_begun_.value()));
}

absl::Status Checkpoints::Check(const JobPlan& plan, size_t shards) const {
  absl::Status status = CheckCount("last checkpoint", last_begun_.value());
  for (const RestoreFrom& one : complete_.all()) status.Update(CheckResumePoint(one.at, plan));
  if (state_ == State::kIdle) return status;
  status.Update(CheckResumePoint(at_, plan));
  if (routing_.shards.size() != shards) {
    status.Update(absl::DataLossError(
        absl::StrCat("shards of the checkpoint: ", routing_.shards.size(), ", expected ", shards)));
  }
  // Older schedulers left the base of the checkpoint before it with a snapshot.
  const bool rests = writes_ && base_ != CheckpointId(0);
  if (rests && (complete_.all().empty() || complete_.all().back().id != base_)) {
    status.Update(absl::DataLossError(absl::StrCat("the checkpoint rests on ", base_.value(),
                                                   ", expected the newest complete one")));
  }
  return status;
}

void Checkpoints::Restored(Instant now) {
  if (IsCapturing()) deadline_ = now + kCaptureLimit;
  if (state_ == State::kWriting) deadline_ = now + kWriteLimit;
}

}  // namespace capstan::scheduler
