#include "server/table_store/shard_store.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/status/status_macros.h"

namespace capstan::server {
namespace {

// Elements updated at a time when the new values go over the gradient: Apply wants the two
// disjoint, so a block of the gradient is copied first. 16 KiB stay in the L1 cache.
constexpr int64_t kBlockElements = 4096;

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

absl::Status ShardStore::Keep(const KeepGradient& action, absl::Span<const float> payload) {
  CAPSTAN_ASSIGN_OR_RETURN(FloatBuffer buffer, TakeBuffer());
  std::copy(payload.begin(), payload.end(), buffer.data());
  gradients_.insert_or_assign(action.as, std::move(buffer));
  return absl::OkStatus();
}

void ShardStore::Add(const AddGradient& action, absl::Span<const float> payload) {
  float* into = gradients_.at(action.into).data();
  const float* from = Gradient(action.from, payload);
  for (int64_t i = 0, n = size(); i < n; ++i) into[i] += from[i];
  if (action.from != kIncomingGradient) Drop({action.from});
}

void ShardStore::Drop(const DropGradient& action) {
  const auto it = gradients_.find(action.gradient);
  if (free_.empty()) free_.push_back(std::move(it->second));
  gradients_.erase(it);
}

void ShardStore::Release(const ReleasePrevious&) {
  if (free_.empty()) free_.push_back(std::move(*previous_));
  previous_.reset();
}

absl::Status ShardStore::Apply(const ApplyGradient& action, absl::Span<const float> payload) {
  // Where the new values go: over the old ones, or over the gradient, which nobody needs any more.
  FloatBuffer spare;
  if (action.gradient != kIncomingGradient) {
    spare = std::move(gradients_.at(action.gradient));
    gradients_.erase(action.gradient);
  } else if (action.keep_previous) {
    CAPSTAN_ASSIGN_OR_RETURN(spare, TakeBuffer());
  }
  const float* gradient = action.gradient == kIncomingGradient ? payload.data() : spare.data();
  Update(action.step, gradient, action.keep_previous ? spare.data() : values_.data());
  if (action.keep_previous) {
    previous_ = std::exchange(values_, std::move(spare));
  } else if (spare.data() != nullptr && free_.empty()) {
    free_.push_back(std::move(spare));
  }
  return absl::OkStatus();
}

void ShardStore::Update(int64_t step, const float* gradient, float* out) {
  std::array<float, kBlockElements> copy;
  std::vector<float*> state(state_.size());
  for (const UpdateSegment& segment : segments_) {
    const int64_t stride = gradient == out ? kBlockElements : segment.end - segment.begin;
    for (int64_t begin = segment.begin; begin < segment.end; begin += stride) {
      const int64_t n = std::min(stride, segment.end - begin);
      const float* from = gradient + begin;
      if (gradient == out) {
        std::copy(from, from + n, copy.data());
        from = copy.data();
      }
      for (size_t slot = 0; slot < state.size(); ++slot) state[slot] = state_[slot].data() + begin;
      server::Apply(segment.config, step, n, values_.data() + begin, from, state, out + begin);
    }
  }
}

absl::Span<const float> ShardStore::Read(ReadFrom from) const {
  switch (from) {
    case ReadFrom::kCurrent:
      return values_.span();
    case ReadFrom::kPrevious:
      return previous_->span();
    case ReadFrom::kNothing:
      break;
  }
  return {};
}

absl::Status ShardStore::Restore(absl::Span<const float> values, absl::Span<const float> previous,
                                 absl::Span<const absl::Span<const float>> state) {
  gradients_.clear();
  previous_.reset();
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

const float* ShardStore::Gradient(GradientId id, absl::Span<const float> payload) const {
  return id == kIncomingGradient ? payload.data() : gradients_.at(id).data();
}

}  // namespace capstan::server
