#include "server/table_store/shard_store.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/status/status_macros.h"

namespace capstan::server {
namespace {

using Block = std::array<float, Gradient::kBlockElements>;

// Calls `use(begin, n, values)` for the blocks of elements [begin, end) in order.
template <typename Use>
void ForBlocks(const Gradient& gradient, int64_t begin, int64_t end, Block* block, Use use) {
  for (; begin < end; begin += Gradient::kBlockElements) {
    const int64_t n = std::min(Gradient::kBlockElements, end - begin);
    use(begin, n, gradient.Read(begin, n, block->data()));
  }
}

}  // namespace

absl::StatusOr<ShardStore> ShardStore::Make(int64_t elements, std::vector<UpdateSegment> segments) {
  ShardStore store;
  CAPSTAN_ASSIGN_OR_RETURN(store.values_, FloatBuffer::Allocate(elements));
  const int slots = segments.empty() ? 0 : StateSlots(segments.front().config);
  for (int slot = 0; slot < slots; ++slot) {
    CAPSTAN_ASSIGN_OR_RETURN(FloatBuffer state, FloatBuffer::Allocate(elements));
    for (const UpdateSegment& segment : segments) {
      std::fill(state.data() + segment.begin, state.data() + segment.end,
                InitialState(segment.config, slot));
    }
    store.state_.push_back(std::move(state));
  }
  store.segments_ = std::move(segments);
  return store;
}

absl::Status ShardStore::Keep(const KeepGradient& action, const Gradient& payload) {
  CAPSTAN_ASSIGN_OR_RETURN(FloatBuffer buffer, TakeBuffer());
  payload.CopyTo(buffer.data());
  gradients_.insert_or_assign(action.as, std::move(buffer));
  return absl::OkStatus();
}

void ShardStore::Add(const AddGradient& action, const Gradient& payload) {
  float* into = gradients_.at(action.into).data();
  const Gradient addend = ReadGradient(action.from, payload);
  Block block;
  ForBlocks(addend, 0, size(), &block,
            [into](int64_t begin, int64_t n, const UnalignedFloat* from) {
              for (int64_t i = 0; i < n; ++i) into[begin + i] += from[i];
            });
  if (action.from != kIncomingGradient) Drop({action.from});
}

void ShardStore::Drop(const DropGradient& action) {
  const auto it = gradients_.find(action.gradient);
  GiveBack(std::move(it->second));
  gradients_.erase(it);
}

void ShardStore::Release(const ReleasePrevious&) {
  GiveBack(std::move(*previous_));
  previous_.reset();
}

absl::Status ShardStore::Apply(const ApplyGradient& action, const Gradient& payload) {
  // Where the new values go: over the old ones if nobody reads these, or over the gradient, which
  // nobody needs any more, or to a buffer of their own.
  const bool elsewhere = action.keep_previous || values_.lent();
  const Gradient gradient = ReadGradient(action.gradient, payload);
  FloatBuffer spare;
  if (action.gradient != kIncomingGradient) {
    spare = std::move(gradients_.at(action.gradient));
    gradients_.erase(action.gradient);
  } else if (elsewhere) {
    CAPSTAN_ASSIGN_OR_RETURN(spare, TakeBuffer());
  }
  Update(action.step, gradient, elsewhere ? spare.data() : values_.data());
  if (elsewhere) std::swap(values_, spare);
  if (action.keep_previous) {
    previous_ = std::move(spare);
  } else {
    GiveBack(std::move(spare));
  }
  return absl::OkStatus();
}

void ShardStore::Update(int64_t step, const Gradient& gradient, float* out) {
  Block block;
  std::vector<float*> state(state_.size());
  for (const UpdateSegment& segment : segments_) {
    ForBlocks(gradient, segment.begin, segment.end, &block,
              [&](int64_t begin, int64_t n, const UnalignedFloat* from) {
                if (from == static_cast<const UnalignedFloat*>(
                                out + begin)) {  // The update wants the two disjoint.
                  std::copy(from, from + n, block.data());
                  from = block.data();
                }
                for (size_t slot = 0; slot < state.size(); ++slot) {
                  state[slot] = state_[slot].data() + begin;
                }
                server::Apply(segment.config, step, n, values_.data() + begin, from, state,
                              out + begin);
              });
  }
}

Gradient ShardStore::ReadGradient(GradientId id, const Gradient& payload) const {
  return id == kIncomingGradient ? payload : Gradient(gradients_.at(id).span());
}

absl::Cord ShardStore::Lend(ReadFrom from, NumberFormat format) const {
  const FloatBuffer& buffer = BufferOf(from);
  if (format == NumberFormat::kFp32) return buffer.Lend();
  return EncodedNumbers(format, buffer.span());
}

const FloatBuffer& ShardStore::BufferOf(ReadFrom from) const {
  static const FloatBuffer& kNone = *new FloatBuffer();
  switch (from) {
    case ReadFrom::kCurrent:
      return values_;
    case ReadFrom::kPrevious:
      return *previous_;
    case ReadFrom::kNothing:
      break;
  }
  return kNone;
}

absl::Status ShardStore::Restore(absl::Span<const float> values, absl::Span<const float> previous,
                                 absl::Span<const absl::Span<const float>> state) {
  gradients_.clear();
  previous_.reset();
  if (values_.lent()) {
    CAPSTAN_ASSIGN_OR_RETURN(values_, TakeBuffer());
  }
  std::copy(values.begin(), values.end(), values_.data());
  for (size_t slot = 0; slot < state_.size(); ++slot) {
    std::copy(state[slot].begin(), state[slot].end(), state_[slot].data());
  }
  if (previous.empty()) return absl::OkStatus();
  CAPSTAN_ASSIGN_OR_RETURN(FloatBuffer buffer, TakeBuffer());
  std::copy(previous.begin(), previous.end(), buffer.data());
  previous_ = std::move(buffer);
  return absl::OkStatus();
}

int64_t ShardStore::bytes() const {
  const size_t buffers =
      1 + state_.size() + (previous_.has_value() ? 1 : 0) + gradients_.size() + free_.size();
  return static_cast<int64_t>(buffers * sizeof(float)) * size();
}

absl::StatusOr<FloatBuffer> ShardStore::TakeBuffer() {
  if (free_.empty()) return FloatBuffer::Allocate(size());
  FloatBuffer buffer = std::move(free_.back());
  free_.pop_back();
  return buffer;
}

void ShardStore::GiveBack(FloatBuffer buffer) {
  const bool usable = buffer.data() != nullptr && !buffer.lent();
  if (usable && free_.empty()) free_.push_back(std::move(buffer));
}

}  // namespace capstan::server
