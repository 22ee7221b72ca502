#include "server/store/state_codec.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/types/job_limits.h"
#include "server/core/messages/clock_ticks.h"
#include "server/core/messages/messages.h"

namespace capstan::server {
namespace {

absl::Status CheckRange(const char* what, int64_t value, int64_t max) {
  if (value >= 0 && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " ", value, ": expected 0 to ", max));
}

// Checks that the ranks of a list ascend.
class RankOrder {
 public:
  absl::Status Check(int32_t rank) {
    CAPSTAN_RETURN_IF_ERROR(CheckRank(rank));
    if (rank <= last_) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", rank, " comes after rank ", last_, ": expected ascending ranks"));
    }
    last_ = rank;
    return absl::OkStatus();
  }

 private:
  int32_t last_ = -1;
};

void EncodePushMarks(const PushMarks& marks, v1::PushMarks* encoded) {
  encoded->set_rank(marks.rank.value());
  encoded->set_incarnation(marks.incarnation.value());
  encoded->set_listed(marks.listed);
  encoded->set_low_water(marks.low_water.value());
  for (const Sequence sequence : marks.applied) encoded->add_applied(sequence.value());
}

absl::StatusOr<PushMarks> DecodePushMarks(const v1::PushMarks& encoded) {
  PushMarks marks{.rank = Rank(encoded.rank()),
                  .incarnation = Incarnation(encoded.incarnation()),
                  .listed = encoded.listed(),
                  .low_water = Sequence(encoded.low_water()),
                  .applied = {}};
  uint64_t before = encoded.low_water();
  for (const uint64_t sequence : encoded.applied()) {
    if (sequence < before || sequence > kSequenceMax.value()) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", encoded.rank(), ": applied sequence ",
                                                     sequence, ", expected at least ", before));
    }
    marks.applied.push_back(Sequence(sequence));
    before = sequence + 1;
  }
  return marks;
}

void EncodeClock(const WorkerClock& clock, v1::WorkerClock* encoded) {
  encoded->set_rank(clock.rank.value());
  encoded->set_incarnation(clock.incarnation.value());
  encoded->set_finished(clock.finished.value());
  encoded->set_active(clock.active);
  encoded->set_start_iteration(clock.start_iteration.value());
}

template <typename Clocks>
absl::StatusOr<std::vector<WorkerClock>> DecodeClocks(const Clocks& encoded) {
  std::vector<WorkerClock> clocks;
  RankOrder order;
  for (const v1::WorkerClock& clock : encoded) {
    CAPSTAN_RETURN_IF_ERROR(order.Check(clock.rank()));
    CAPSTAN_RETURN_IF_ERROR(CheckRange("finished", clock.finished(), kIterationMax.value() + 1));
    CAPSTAN_RETURN_IF_ERROR(
        CheckRange("start_iteration", clock.start_iteration(), kIterationMax.value()));
    clocks.push_back({.rank = Rank(clock.rank()),
                      .incarnation = Incarnation(clock.incarnation()),
                      .finished = Iteration(clock.finished()),
                      .active = clock.active(),
                      .start_iteration = Iteration(clock.start_iteration())});
  }
  return clocks;
}

absl::StatusOr<double> DecodeFactor(double factor) {
  if (factor == 0) return 1.0;
  if (factor > 0 && factor <= 1) return factor;
  return absl::InvalidArgumentError(
      absl::StrCat("learning_rate_factor ", factor, ": expected a number in (0, 1], or 0 for 1"));
}

}  // namespace

absl::Status CheckRank(int32_t rank) {
  if (rank >= 0 && rank < kWorkersMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("rank ", rank, ": expected 0 to ", kWorkersMax - 1));
}

absl::StatusOr<Membership> DecodeMembership(const v1::Membership& membership) {
  Membership decoded{.generation = Generation(membership.generation()), .members = {}};
  for (const v1::Member& member : membership.members()) {
    CAPSTAN_RETURN_IF_ERROR(CheckRank(member.rank()));
    if (member.incarnation() == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("member of rank ", member.rank(), ": incarnation 0, expected 1 or more"));
    }
    const Iteration start(member.start_iteration());
    if (start < Iteration(0) || start > kIterationMax) {
      return absl::InvalidArgumentError(absl::StrCat("member of rank ", member.rank(),
                                                     ": start_iteration ", start.value(),
                                                     ", expected 0 to ", kIterationMax.value()));
    }
    if (!decoded.members.empty() && member.rank() <= decoded.members.back().rank.value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("member of rank ", member.rank(), " comes after rank ",
                       decoded.members.back().rank.value(), ": expected ascending ranks"));
    }
    decoded.members.push_back({.rank = Rank(member.rank()),
                               .incarnation = Incarnation(member.incarnation()),
                               .active = member.active(),
                               .start_iteration = start});
  }
  decoded.incarnation_floor = Incarnation(membership.incarnation_floor());
  CAPSTAN_ASSIGN_OR_RETURN(decoded.learning_rate_factor,
                           DecodeFactor(membership.learning_rate_factor()));
  CAPSTAN_RETURN_IF_ERROR(
      CheckRange("clock_seconds", membership.clock_seconds(), kClockSecondsMax));
  decoded.clock_seconds = membership.clock_seconds();
  return decoded;
}

v1::Membership EncodeMembership(const Membership& membership) {
  v1::Membership encoded;
  encoded.set_generation(membership.generation.value());
  encoded.set_incarnation_floor(membership.incarnation_floor.value());
  encoded.set_learning_rate_factor(membership.learning_rate_factor);
  encoded.set_clock_seconds(membership.clock_seconds);
  for (const Member& member : membership.members) {
    v1::Member* added = encoded.add_members();
    added->set_rank(member.rank.value());
    added->set_incarnation(member.incarnation.value());
    added->set_active(member.active);
    added->set_start_iteration(member.start_iteration.value());
  }
  return encoded;
}

v1::ShardRecord EncodeRecord(const ShardRecord& record, const Gradient& gradient) {
  v1::ShardRecord encoded;
  encoded.set_position(record.position.value());
  switch (record.kind) {
    case ShardRecord::Kind::kPush: {
      v1::PushRecord* push = encoded.mutable_push();
      push->set_rank(record.rank.value());
      push->set_incarnation(record.incarnation.value());
      push->set_iteration(record.iteration.value());
      push->set_sequence(record.sequence.value());
      push->set_sequence_low_water(record.sequence_low_water.value());
      break;
    }
    case ShardRecord::Kind::kUpdate:
      encoded.mutable_update()->set_version(record.version.value());
      break;
    case ShardRecord::Kind::kMembership:
      *encoded.mutable_membership() = EncodeMembership(record.membership);
      break;
    case ShardRecord::Kind::kBarrier:
      encoded.mutable_barrier();
      break;
  }
  encoded.mutable_values()->reserve(static_cast<size_t>(gradient.bytes()));
  gradient.AppendTo(encoded.mutable_values());
  return encoded;
}

absl::StatusOr<ShardRecord> DecodeRecord(const v1::ShardRecord& encoded) {
  ShardRecord record{.position = Position(encoded.position()), .membership = {}};
  switch (encoded.kind_case()) {
    case v1::ShardRecord::kPush: {
      const v1::PushRecord& push = encoded.push();
      record.kind = ShardRecord::Kind::kPush;
      CAPSTAN_RETURN_IF_ERROR(CheckRank(push.rank()));
      CAPSTAN_RETURN_IF_ERROR(CheckRange("iteration", push.iteration(), kIterationMax.value()));
      record.rank = Rank(push.rank());
      record.incarnation = Incarnation(push.incarnation());
      record.iteration = Iteration(push.iteration());
      record.sequence = Sequence(push.sequence());
      record.sequence_low_water = Sequence(push.sequence_low_water());
      if (record.sequence < Sequence(1) || record.sequence > kSequenceMax ||
          record.sequence_low_water > record.sequence) {
        return absl::InvalidArgumentError(
            absl::StrCat("sequence ", push.sequence(), ", low water ", push.sequence_low_water(),
                         ": expected 1 to ", kSequenceMax.value(), ", not below its low water"));
      }
      return record;
    }
    case v1::ShardRecord::kUpdate:
      record.kind = ShardRecord::Kind::kUpdate;
      record.version = Version(encoded.update().version());
      return record;
    case v1::ShardRecord::kMembership: {
      record.kind = ShardRecord::Kind::kMembership;
      CAPSTAN_ASSIGN_OR_RETURN(record.membership, DecodeMembership(encoded.membership()));
      return record;
    }
    case v1::ShardRecord::kBarrier:
      record.kind = ShardRecord::Kind::kBarrier;
      return record;
    case v1::ShardRecord::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "record ", encoded.position(), ": expected a push, an update, a membership or a barrier"));
}

v1::ShardState EncodeState(const ShardCoreState& state) {
  v1::ShardState encoded;
  encoded.set_version(state.version.value());
  encoded.set_previous_readable(state.previous_readable);
  encoded.set_membership_generation(state.membership_generation.value());
  encoded.set_incarnation_floor(state.incarnation_floor.value());
  encoded.set_learning_rate_factor(state.learning_rate_factor);
  encoded.set_pushes_recorded(state.pushes_recorded);
  encoded.set_pushes_duplicate(state.pushes_duplicate);
  encoded.set_pushes_late(state.pushes_late);
  for (const PushMarks& marks : state.push_marks) {
    if (Planted(PlantedBug::kInstallWithoutMarks)) break;
    EncodePushMarks(marks, encoded.add_push_marks());
  }
  for (const ClockTick& tick : state.ticks) {
    v1::ClockTick& added = *encoded.add_ticks();
    added.set_clock_seconds(tick.clock_seconds);
    added.set_version(tick.version.value());
  }
  encoded.set_members_known(state.members_known);
  for (const WorkerClock& clock : state.members) EncodeClock(clock, encoded.add_members());
  for (const WorkerClock& clock : state.early) EncodeClock(clock, encoded.add_early());
  return encoded;
}

absl::StatusOr<ShardCoreState> DecodeState(const v1::ShardState& encoded, int64_t position) {
  ShardCoreState state{.position = Position(position),
                       .version = Version(encoded.version()),
                       .previous_readable = encoded.previous_readable(),
                       .membership_generation = Generation(encoded.membership_generation()),
                       .pushes_recorded = encoded.pushes_recorded(),
                       .pushes_duplicate = encoded.pushes_duplicate(),
                       .pushes_late = encoded.pushes_late(),
                       .incarnation_floor = Incarnation(encoded.incarnation_floor()),
                       .push_marks = {},
                       .members_known = encoded.members_known(),
                       .members = {},
                       .early = {}};
  CAPSTAN_ASSIGN_OR_RETURN(state.learning_rate_factor,
                           DecodeFactor(encoded.learning_rate_factor()));
  for (const v1::ClockTick& tick : encoded.ticks()) {
    state.ticks.push_back(
        {.clock_seconds = tick.clock_seconds(), .version = Version(tick.version())});
  }
  RankOrder order;
  for (const v1::PushMarks& marks : encoded.push_marks()) {
    CAPSTAN_RETURN_IF_ERROR(Annotate(order.Check(marks.rank()), "marks"));
    CAPSTAN_ASSIGN_OR_RETURN(PushMarks decoded, DecodePushMarks(marks));
    state.push_marks.push_back(std::move(decoded));
  }
  CAPSTAN_ASSIGN_OR_RETURN(state.members, DecodeClocks(encoded.members()));
  CAPSTAN_ASSIGN_OR_RETURN(state.early, DecodeClocks(encoded.early()));
  return state;
}

absl::Span<const float> FloatsOf(const std::string& bytes, std::vector<float>* copy) {
  const size_t count = bytes.size() / sizeof(float);
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(float) == 0) {
    return {reinterpret_cast<const float*>(bytes.data()), count};
  }
  copy->resize(count);
  std::memcpy(copy->data(), bytes.data(), count * sizeof(float));
  return *copy;
}

std::string BytesOf(absl::Span<const float> values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

}  // namespace capstan::server
