#include "server/store/tables/table_shard.h"

#include <variant>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "server/store/state_codec.h"

namespace capstan::server {
namespace {

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

// The sink of a shard that replays records: it answers nobody, and drops the records, which another
// shard has made.
class NoReplies final : public ReplySink {
 public:
  void OnPush(const ShardKey&, const ReplyPush&) override {}
  absl::Status OnPull(const ShardKey&, const ReplyPull&, const ShardStore&) override {
    return absl::OkStatus();
  }
  void OnRecord(const ShardKey&, const MakeRecord&, const Gradient&) override {}
};

bool HasGradient(const ShardRecord& record) {
  return record.kind == ShardRecord::Kind::kPush || record.kind == ShardRecord::Kind::kUpdate;
}

}  // namespace

absl::Status TableShard::CarryOut(const ShardKey& key, const Actions& actions,
                                  const Gradient& payload, ReplySink& sink, Actions* later) {
  const auto done = absl::OkStatus();
  const Overloaded carry_out{
      [&](const KeepGradient& action) { return store_->Keep(action, payload); },
      [&](const AddGradient& action) { return store_->Add(action, payload); },
      [&](const DropGradient& action) { return store_->Drop(action), done; },
      // Only dense shards get corrections: ShardFactory refuses those of rows.
      [&](const CorrectGradient& action) {
        return store_->late_gradients()->Correct(action, payload);
      },
      [&](const KeepValues& action) { return store_->late_gradients()->KeepCurrent(action), done; },
      [&](const ForgetValues& action) { return store_->late_gradients()->Forget(action), done; },
      [&](const ReleasePrevious& action) { return store_->Release(action), done; },
      [&](const MakeRecord& made) {
        Gradient gradient;
        if (HasGradient(made.record)) gradient = store_->ReadGradient(made.gradient, payload);
        return sink.OnRecord(key, made, gradient), done;
      },
      [&](const ApplyGradient& action) { return store_->Apply(action, payload); },
      [&](const ReplyPush& reply) { return sink.OnPush(key, reply), done; },
      [&](const ReplyPull& reply) { return sink.OnPull(key, reply, *store_); }};
  for (const Action& action : actions) {
    if (store_->updating() && !std::holds_alternative<ReplyPush>(action)) {
      if (later != nullptr) {
        later->push_back(action);
        continue;
      }
      CAPSTAN_RETURN_IF_ERROR(store_->Finish());
    }
    CAPSTAN_RETURN_IF_ERROR(std::visit(carry_out, action));
  }
  if (later == nullptr) CAPSTAN_RETURN_IF_ERROR(store_->Finish());
  return Account();
}

absl::Status TableShard::Account() {
  const int64_t bytes = store_->lasting_bytes();
  if (bytes <= accounted_) return absl::OkStatus();
  CAPSTAN_RETURN_IF_ERROR(memory_.Grow(bytes));
  accounted_ = bytes;
  return absl::OkStatus();
}

absl::Status TableShard::Replay(const ShardKey& key, const v1::ShardRecord& record) {
  CAPSTAN_ASSIGN_OR_RETURN(const ShardRecord head, DecodeRecord(record));
  const absl::Cord values = absl::MakeCordFromExternal(record.values(), [] {});
  absl::StatusOr<Gradient> gradient = Gradient();
  if (HasGradient(head)) {
    gradient = store_->Parse(values, NumberFormat::kFp32);
  } else if (!values.empty()) {
    gradient =
        absl::InvalidArgumentError(absl::StrCat(values.size(), " bytes of values: expected 0"));
  }
  if (!gradient.ok()) {
    return Annotate(gradient.status(), absl::StrCat("record ", record.position()));
  }
  Actions actions;
  CAPSTAN_RETURN_IF_ERROR(core_.Replay(head, actions));
  NoReplies nobody;
  return CarryOut(key, actions, *gradient, nobody);
}

v1::ShardSnapshot TableShard::SaveState() const {
  const ShardCoreState state = core_.Save();
  v1::ShardSnapshot snapshot;
  snapshot.set_position(state.position.value());
  *snapshot.mutable_state() = EncodeState(state);
  return snapshot;
}

absl::StatusOr<v1::ShardSnapshot> TableShard::Snapshot() const {
  v1::ShardSnapshot snapshot = SaveState();
  CAPSTAN_RETURN_IF_ERROR(store_->Save(snapshot.state().previous_readable(), &snapshot));
  return snapshot;
}

absl::StatusOr<v1::ShardSnapshot> TableShard::CaptureAll(PinId pin) {
  if (rows() == nullptr) return Snapshot();
  v1::ShardSnapshot snapshot = SaveState();
  const bool previous = snapshot.state().previous_readable();
  CAPSTAN_RETURN_IF_ERROR(rows()->Capture(pin, std::nullopt, previous, &snapshot));
  return snapshot;
}

absl::Status TableShard::CheckRoom(const Gradient& gradient) const {
  return rows() == nullptr ? absl::OkStatus() : rows()->CheckRoom(gradient);
}

absl::Status TableShard::RestoreMore(const v1::ShardSnapshot& piece) {
  if (rows() == nullptr) {
    return absl::DataLossError("rows of a dense shard: expected none");
  }
  CAPSTAN_RETURN_IF_ERROR(rows()->RestoreMore(piece));
  return Account();
}

absl::StatusOr<v1::ShardSnapshot> TableShard::Capture(CheckpointId id, CheckpointId base,
                                                      PinId pin) {
  if (rows() == nullptr) return Snapshot();  // An update changes all of a dense shard.
  v1::ShardSnapshot snapshot = SaveState();
  const Captured now{.id = id, .version = snapshot.state().version()};
  // The captures between the base and this one were never completed.
  std::erase_if(captured_, [base](const Captured& captured) { return captured.id != base; });
  std::optional<int64_t> since;
  if (base != CheckpointId(0) && !captured_.empty()) since = captured_.front().version;
  CAPSTAN_RETURN_IF_ERROR(
      rows()->Capture(pin, since, snapshot.state().previous_readable(), &snapshot));
  if (snapshot.has_since()) snapshot.mutable_since()->set_checkpoint_id(base.value());
  captured_.push_back(now);
  rows()->KeepRemovedSince(captured_.front().version);
  return snapshot;
}

void TableShard::ForgetCaptures() { captured_.clear(); }

}  // namespace capstan::server
