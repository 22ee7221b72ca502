#include "scheduler/core/checkpoints.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"

namespace capstan::scheduler {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

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
      every_steps_(plan.checkpoint_iterations),
      every_(plan.checkpoint_interval),
      kept_(plan.checkpoints_kept),
      incremental_(plan.checkpoints_incremental &&
                   std::any_of(plan.tables.begin(), plan.tables.end(),
                               [](const TableSize& table) { return table.sparse; })),
      folder_(plan.checkpoint_folder),
      floor_(plan.checkpoint_floor),
      due_steps_(kNever),
      last_begun_(floor_) {}

// ---------------------------------------------------------------- when

void Checkpoints::SkipTo(CheckpointId floor) {
  if (floor <= last_begun_ || !IsIdle()) return;
  last_begun_ = floor;
  ++changes_;
}

void Checkpoints::StartClock(int64_t steps, Instant now) {
  due_steps_ = every_steps_ > 0 ? steps + every_steps_ : kNever;
  due_at_ = every_ > absl::ZeroDuration() ? now + every_ : Instant::InfiniteFuture();
}

void Checkpoints::Ask() {
  asked_ = true;
  ++changes_;
}

absl::Status Checkpoints::AskSnapshot(uint64_t reader) {
  if (std::find(readers_asked_.begin(), readers_asked_.end(), reader) != readers_asked_.end()) {
    return absl::OkStatus();
  }
  if (readers_asked_.size() >= kReadersMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        readers_asked_.size(), " readers wait for the next snapshot of ", job_, "; try again"));
  }
  readers_asked_.push_back(reader);
  ++changes_;
  return absl::OkStatus();
}

bool Checkpoints::IsDue(int64_t steps, Instant now) const {
  return IsIdle() && (!readers_asked_.empty() || IsWriteDue(steps, now));
}

bool Checkpoints::IsWriteDue(int64_t steps, Instant now) const {
  return asked_ || steps >= due_steps_ || now >= due_at_;
}

Instant Checkpoints::Limit() const {
  return IsCapturing() || state_ == State::kWriting ? deadline_ : Instant::InfiniteFuture();
}

// ---------------------------------------------------------------- the present one

void Checkpoints::Begin(const Routing& routing, ResumePoint at, int64_t steps, Instant now) {
  writes_ = IsWriteDue(steps, now) || readers_asked_.empty();
  if (writes_) {
    StartClock(steps, now);
    asked_ = false;
    base_ = NextBase();
  }
  readers_ = std::exchange(readers_asked_, {});
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
  if (!readers_.empty()) taken_.push_back({job_, last_begun_, at_.iteration.value(), why});
}

bool Checkpoints::AllAtLeast(Progress progress) const {
  return std::all_of(progress_.begin(), progress_.end(),
                     [progress](const auto& entry) { return entry.second >= progress; });
}

void Checkpoints::OnReport(const NodeId& server, const CheckpointReport& report, Instant now) {
  const auto known = progress_.find(server);
  const bool awaited = IsCapturing() || state_ == State::kWriting;
  if (!awaited || report.id != last_begun_ || known == progress_.end()) return;
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
  absl::btree_map<ShardKey, const CheckpointPart*> by_shard;
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
    if (part.base != CheckpointId(0) && part.base != base_) {
      return absl::StrCat(Name(route.key), " rests on checkpoint ", part.base.value(),
                          ", expected ", base_.value(), " or all of it");
    }
    parts_[route.key] = part;
  }
  return "";
}

void Checkpoints::OnRouting(const Routing& routing) {
  if (!IsCapturing() && state_ != State::kWriting) return;
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
  const bool awaited = IsCapturing() || state_ == State::kWriting;
  if (awaited && progress_.contains(server)) Abandon(absl::StrCat(server, " is gone"), server);
}

void Checkpoints::Tick(Instant now) {
  if (now < Limit()) return;
  Abandon(absl::StrCat(Awaited(), IsCapturing() ? " has not copied" : " has not written",
                       " its part in time"),
          Awaited());
}

void Checkpoints::Abandon(const std::string& why, const NodeId& node) {
  if (!IsIdle()) End(why, node);
}

void Checkpoints::Published(CheckpointId id, const absl::Status& status) {
  if (!MustPublish() || id != last_begun_) return;
  if (status.ok()) {
    const std::vector<CheckpointId> staying = StayingWith(id, RestsOn());
    AddToChain();
    complete_.push_back({.folder = FolderOf(id), .at = at_, .id = id, .rests_on = RestsOn()});
    std::erase_if(complete_, [&staying](const RestoreFrom& one) {
      return std::find(staying.begin(), staying.end(), one.id) == staying.end();
    });
  } else {
    chain_ = {};  // The base may be damaged, so the next checkpoint has none.
  }
  End(std::string(status.message()));
}

// ---------------------------------------------------------------- chains

CheckpointId Checkpoints::NextBase() const {
  const bool full = chain_.length == 0 || chain_.length >= kChainMax ||
                    2 * chain_.added_bytes > chain_.first_bytes;
  return !incremental_ || full || complete_.empty() ? CheckpointId(0) : complete_.back().id;
}

CheckpointId Checkpoints::RestsOn() const {
  const bool rests = std::any_of(parts_.begin(), parts_.end(), [](const auto& entry) {
    return entry.second.base != CheckpointId(0);
  });
  // The base is the newest complete checkpoint.
  return rests ? complete_.back().rests_on : last_begun_;
}

void Checkpoints::AddToChain() {
  int64_t all = 0;
  int64_t added = 0;
  for (const auto& [key, part] : parts_) {
    all += part.bytes;
    if (part.base != CheckpointId(0)) added += part.bytes;
  }
  if (RestsOn() == last_begun_) chain_ = {.length = 0, .first_bytes = all, .added_bytes = 0};
  ++chain_.length;
  chain_.added_bytes += added;
}

std::vector<CheckpointId> Checkpoints::StayingWith(CheckpointId present,
                                                   CheckpointId rests_on) const {
  std::vector<CheckpointId> staying = {present};
  int chains = 1;
  const bool forgets = Planted(PlantedBug::kForgetBases);
  CheckpointId needed = forgets ? present : rests_on;  // This checkpoint and all later ones stay.
  for (auto it = complete_.rbegin(); it != complete_.rend(); ++it) {
    if (it->id < needed) {
      if (chains == kept_) break;
      ++chains;
      needed = forgets ? it->id : it->rests_on;
    }
    staying.push_back(it->id);
  }
  const RestoreFrom* const best = kept();
  if (best == nullptr) return staying;
  for (const RestoreFrom& one : complete_) {
    if (one.id < best->rests_on || one.id > best->id) continue;
    if (std::find(staying.begin(), staying.end(), one.id) == staying.end()) {
      staying.push_back(one.id);
    }
  }
  return staying;
}

void Checkpoints::KeepNewest() {
  kept_best_ = complete_.back().id;
  ++changes_;
}

const RestoreFrom* Checkpoints::kept() const {
  const auto best = std::find_if(complete_.begin(), complete_.end(),
                                 [this](const RestoreFrom& one) { return one.id == kept_best_; });
  return best == complete_.end() ? nullptr : &*best;
}

void Checkpoints::Forget(CheckpointId id) {
  if (id == kept_best_) kept_best_ = CheckpointId(0);
  std::erase_if(complete_, [id](const RestoreFrom& one) { return one.id == id; });
  chain_ = {};
}

// ---------------------------------------------------------------- ends

void Checkpoints::End(const std::string& why, const NodeId& node) {
  if (IsCapturing()) TellSnapshot(why);
  state_ = State::kIdle;
  if (writes_) ended_.push_back({job_, last_begun_, FolderOf(last_begun_), why, node});
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
  if (!IsCapturing() && state_ != State::kWriting) return {};
  CheckpointOrder order{.id = last_begun_, .folder = "", .readers = readers_};
  if (writes_) order.folder = FolderOf(last_begun_);
  if (writes_) order.base = base_;
  if (bsp_) order.version = Version(at_.iteration.value());
  return order;
}

CheckpointPublish Checkpoints::ToPublish() const {
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

std::optional<CheckpointPublish> Checkpoints::TakePublish() {
  if (publish_taken_ || !MustPublish()) return std::nullopt;
  publish_taken_ = true;
  return ToPublish();
}

CheckpointRemoval Checkpoints::Removal() const {
  CheckpointRemoval removal{.job_folder = folder_, .floor = floor_, .staying = {}};
  for (const RestoreFrom& one : complete_) removal.staying.push_back(one.id);
  return removal;
}

NodeId Checkpoints::Awaited() const {
  const Progress wanted = IsCapturing() ? Progress::kCaptured : Progress::kWritten;
  for (const auto& [server, progress] : progress_) {
    if (progress < wanted) return server;
  }
  return "nobody";
}

std::vector<CheckpointEnded> Checkpoints::TakeEnded() { return std::exchange(ended_, {}); }

std::vector<SnapshotTaken> Checkpoints::TakeTaken() { return std::exchange(taken_, {}); }

absl::StatusOr<const RestoreFrom*> Checkpoints::Find(CheckpointId asked) const {
  if (!complete_.empty() && complete_.back().id >= asked) return &complete_.back();
  const bool may_come = IsIdle() ? asked_ && asked == last_begun_.Next()
                                 : asked == last_begun_ || asked == last_begun_.Next();
  if (may_come) return nullptr;
  if (last_failed_ >= asked) {
    return absl::FailedPreconditionError(absl::StrCat("checkpoint ", last_failed_.value(), " of ",
                                                      job_, " was given up: ", why_failed_));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint ", asked.value(), " of ", job_,
                   " was given up, or was never asked for: the last one is ", last_begun_.value()));
}

void Checkpoints::Restored(Instant now) {
  if (IsCapturing()) deadline_ = now + kCaptureLimit;
  if (state_ == State::kWriting) deadline_ = now + kWriteLimit;
}

}  // namespace capstan::scheduler
