#include "server/store/dense/dense_store.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"
#include "common/status/status_macros.h"
#include "server/optimizer/late_gradient.h"
#include "server/optimizer/trust_ratio.h"
#include "server/store/state_codec.h"

namespace capstan::server {
namespace {

using Block = std::array<float, WireValues::kBlockElements>;

// Calls `use(begin, n, values)` for the blocks of elements [begin, end) in order.
template <typename Use>
void ForBlocks(const WireValues& gradient, int64_t begin, int64_t end, Block* block, Use use) {
  for (; begin < end; begin += WireValues::kBlockElements) {
    const int64_t n = std::min(WireValues::kBlockElements, end - begin);
    use(begin, n, gradient.Read(begin, n, block->data()));
  }
}

absl::Status CheckFloats(const char* what, const std::string& bytes, int64_t elements) {
  const int64_t expected = elements * int64_t{sizeof(float)};
  if (static_cast<int64_t>(bytes.size()) == expected) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(what, " of ", bytes.size(), " bytes: expected ", expected));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DenseStore>> DenseStore::Make(int64_t elements,
                                                             std::vector<UpdateSegment> segments,
                                                             ShardDevice* device) {
  std::unique_ptr<DenseStore> store(new DenseStore(elements));
  CAPSTAN_ASSIGN_OR_RETURN(store->values_, FloatBuffer::Allocate(elements));
  store->slots_ = segments.empty() ? 0 : StateSlots(segments.front().config);
  const bool fits = segments.size() == 1 && elements <= ShardDevice::kElementsMax;
  if (device != nullptr && fits && device->Knows(segments.front().config)) {
    CAPSTAN_ASSIGN_OR_RETURN(store->on_device_, device->Make(elements, segments.front().config));
    store->segments_ = std::move(segments);
    return store;
  }
  for (int slot = 0; slot < store->slots_; ++slot) {
    CAPSTAN_ASSIGN_OR_RETURN(FloatBuffer state, FloatBuffer::Allocate(elements));
    for (const UpdateSegment& segment : segments) {
      std::fill(state.data() + segment.begin, state.data() + segment.end,
                InitialState(segment.config, slot));
    }
    store->state_.push_back(std::move(state));
  }
  store->segments_ = std::move(segments);
  return store;
}

absl::Status DenseStore::SetValues(const std::function<void(absl::Span<float>)>& write) {
  write(values_.span());
  if (on_device_ == nullptr) return absl::OkStatus();
  std::vector<std::vector<float>> state;
  for (int slot = 0; slot < slots_; ++slot) {
    state.emplace_back(static_cast<size_t>(size()), InitialState(segments_.front().config, slot));
  }
  const std::vector<absl::Span<const float>> slots(state.begin(), state.end());
  return on_device_->Write(values_.span(), slots);
}

absl::StatusOr<Gradient> DenseStore::Parse(const absl::Cord& payload, NumberFormat format,
                                           const RowKeys& listed) const {
  if (listed != nullptr) {
    return absl::InvalidArgumentError("names a list of keys: expected none, the table is dense");
  }
  const int64_t expected = size() * BytesOf(format);
  if (static_cast<int64_t>(payload.size()) == expected) {
    return Gradient(WireValues(payload, format));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected ", expected, " bytes = ", size(), " elements of ",
                   v1::ValueType_Name(TypeOf(format)), ", got ", payload.size()));
}

absl::StatusOr<RowKeys> DenseStore::ParseKeys(absl::string_view bytes) const {
  if (bytes.empty()) return nullptr;
  return absl::InvalidArgumentError(
      absl::StrCat("a dense table is asked for ", bytes.size(), " bytes of keys: expected none"));
}

absl::Status DenseStore::Keep(const KeepGradient& action, const Gradient& payload) {
  CAPSTAN_ASSIGN_OR_RETURN(FloatBuffer buffer, TakeBuffer());
  payload.values().CopyTo(buffer.data());
  gradients_.insert_or_assign(action.as, std::move(buffer));
  return absl::OkStatus();
}

absl::Status DenseStore::Add(const AddGradient& action, const Gradient& payload) {
  float* into = gradients_.at(action.into).data();
  const Gradient addend = ReadGradient(action.from, payload);
  Block block;
  ForBlocks(addend.values(), 0, size(), &block,
            [into](int64_t begin, int64_t n, const UnalignedFloat* from) {
              for (int64_t i = 0; i < n; ++i) into[begin + i] += from[i];
            });
  if (action.from != kIncomingGradient) Drop({action.from});
  return absl::OkStatus();
}

void DenseStore::Drop(const DropGradient& action) {
  const auto it = gradients_.find(action.gradient);
  GiveBack(std::move(it->second));
  gradients_.erase(it);
}

absl::Status DenseStore::Correct(const CorrectGradient& action, const Gradient& payload) {
  const OptimizerConfig& optimizer = segments_.front().config;  // It holds for all elements.
  const LateGradient rule{.divisor = action.divisor,
                          .delay_compensation = action.delay_compensation,
                          .clip_value = optimizer.clip_value};
  const float* pulled = values_.data();  // It is not read without delay compensation.
  if (rule.delay_compensation > 0.0f) {
    const auto kept = kept_values_.at(action.computed_with).TryFlat();  // It is lent in one piece.
    pulled = reinterpret_cast<const float*>(kept->data());
  }
  CAPSTAN_ASSIGN_OR_RETURN(FloatBuffer corrected, TakeBuffer());
  Block block;
  ForBlocks(payload.values(), 0, size(), &block,
            [&](int64_t begin, int64_t n, const UnalignedFloat* from) {
              CorrectLateGradient(rule, n, from, values_.data() + begin, pulled + begin,
                                  corrected.data() + begin);
            });
  gradients_.insert_or_assign(kCorrectedGradient, std::move(corrected));
  return absl::OkStatus();
}

void DenseStore::KeepCurrent(const KeepValues& action) {
  kept_values_.insert_or_assign(action.version, values_.Lend());
}

void DenseStore::Forget(const ForgetValues& action) { kept_values_.erase(action.version); }

void DenseStore::Release(const ReleasePrevious&) {
  GiveBack(std::move(*previous_));
  previous_.reset();
}

absl::Status DenseStore::Apply(const ApplyGradient& action, const Gradient& payload) {
  for (UpdateSegment& segment : segments_) {
    segment.config.learning_rate_factor = action.learning_rate_factor;
  }
  if (on_device_ != nullptr) on_device_->SetLearningRateFactor(action.learning_rate_factor);
  // The new values go over the old ones if nobody reads these, or over the gradient, which nobody
  // needs any more, or to a buffer of their own.
  const bool elsewhere = action.keep_previous || values_.lent();
  const Gradient gradient = ReadGradient(action.gradient, payload);
  FloatBuffer spare;
  if (action.gradient != kIncomingGradient) {
    spare = std::move(gradients_.at(action.gradient));
    gradients_.erase(action.gradient);
  } else if (elsewhere) {
    CAPSTAN_ASSIGN_OR_RETURN(spare, TakeBuffer());
  }
  CAPSTAN_RETURN_IF_ERROR(
      Update(action.step, gradient.values(), elsewhere ? spare.data() : values_.data()));
  if (elsewhere) std::swap(values_, spare);
  if (action.keep_previous) {
    previous_ = std::move(spare);
  } else {
    GiveBack(std::move(spare));
  }
  return absl::OkStatus();
}

absl::Status DenseStore::Update(int64_t step, const WireValues& gradient, float* out) {
  if (on_device_ == nullptr) {
    UpdateHere(step, gradient, out);
    return absl::OkStatus();
  }
  updating_ = true;
  return on_device_->Update(
      step, [&gradient](float* to) { gradient.CopyTo(to); },
      absl::MakeSpan(out, static_cast<size_t>(size())));
}

absl::Status DenseStore::Finish() {
  return std::exchange(updating_, false) ? on_device_->Finish() : absl::OkStatus();
}

double DenseStore::TrustRatioOf(const UpdateSegment& segment, int64_t step,
                                const WireValues& gradient) {
  TrustRatio ratio(segment.config, step);
  Block block;
  static_assert(WireValues::kBlockElements % TrustRatio::kLanes == 0);
  ForBlocks(gradient, segment.begin, segment.end, &block,
            [&](int64_t begin, int64_t n, const UnalignedFloat* from) {
              ratio.Add(n, values_.data() + begin, from, StateAt(begin));
            });
  return ratio.Value();
}

absl::InlinedVector<float*, 3> DenseStore::StateAt(int64_t begin) {
  absl::InlinedVector<float*, 3> state;
  for (FloatBuffer& slot : state_) state.push_back(slot.data() + begin);
  return state;
}

void DenseStore::UpdateHere(int64_t step, const WireValues& gradient, float* out) {
  Block block;
  for (const UpdateSegment& segment : segments_) {
    OptimizerConfig rule = segment.config;
    if (IsLayerWise(rule)) rule.learning_rate_factor *= TrustRatioOf(segment, step, gradient);
    ForBlocks(gradient, segment.begin, segment.end, &block,
              [&](int64_t begin, int64_t n, const UnalignedFloat* from) {
                if (from == static_cast<const UnalignedFloat*>(
                                out + begin)) {  // The update wants the two disjoint.
                  std::memcpy(block.data(), from, static_cast<size_t>(n) * sizeof(float));
                  from = block.data();
                }
                server::Apply(rule, step, n, values_.data() + begin, from, StateAt(begin),
                              out + begin);
              });
  }
}

Gradient DenseStore::ReadGradient(GradientId id, const Gradient& payload) const {
  if (id == kIncomingGradient) return payload;
  return Gradient(WireValues(gradients_.at(id).span()));
}

absl::StatusOr<absl::Cord> DenseStore::Lend(ReadFrom from, const RowKeys&,
                                            NumberFormat format) const {
  const FloatBuffer& buffer = BufferOf(from);
  if (format == NumberFormat::kFp32) return buffer.Lend();
  return EncodedNumbers(format, buffer.span());
}

const FloatBuffer& DenseStore::BufferOf(ReadFrom from) const {
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

absl::Status DenseStore::Save(bool previous, v1::ShardSnapshot* snapshot) const {
  snapshot->set_elements(size());
  snapshot->set_values(BytesOf(Read(ReadFrom::kCurrent)));
  if (previous) snapshot->set_previous(BytesOf(Read(ReadFrom::kPrevious)));
  for (int slot = 0; slot < slots_; ++slot) {
    CAPSTAN_ASSIGN_OR_RETURN(*snapshot->add_optimizer_state(), SavedState(slot));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> DenseStore::SavedState(int slot) const {
  if (on_device_ == nullptr) return BytesOf(state_[static_cast<size_t>(slot)].span());
  std::vector<float> state(static_cast<size_t>(size()));
  CAPSTAN_RETURN_IF_ERROR(on_device_->ReadState(slot, absl::MakeSpan(state)));
  return BytesOf(state);
}

absl::Status DenseStore::CheckSnapshot(const v1::ShardSnapshot& snapshot) const {
  if (snapshot.elements() != size()) {
    return absl::DataLossError(
        absl::StrCat("a snapshot of ", snapshot.elements(), " elements: expected ", size()));
  }
  CAPSTAN_RETURN_IF_ERROR(CheckFloats("values", snapshot.values(), size()));
  if (snapshot.state().previous_readable()) {
    CAPSTAN_RETURN_IF_ERROR(CheckFloats("previous values", snapshot.previous(), size()));
  }
  // The values that a job begins with come without optimizer state: it stays as it was made.
  if (snapshot.optimizer_state().empty() && snapshot.state().version() == 0) {
    return absl::OkStatus();
  }
  if (snapshot.optimizer_state_size() != slots_) {
    return absl::DataLossError(absl::StrCat(snapshot.optimizer_state_size(),
                                            " slots of optimizer state: expected ", slots_));
  }
  for (const std::string& state : snapshot.optimizer_state()) {
    CAPSTAN_RETURN_IF_ERROR(CheckFloats("optimizer state", state, size()));
  }
  return absl::OkStatus();
}

absl::Status DenseStore::Restore(const v1::ShardSnapshot& snapshot) {
  CAPSTAN_RETURN_IF_ERROR(CheckSnapshot(snapshot));
  std::vector<float> copy;
  std::vector<absl::Span<const float>> slots;
  std::vector<std::vector<float>> copies(static_cast<size_t>(slots_));
  for (int slot = 0; slot < snapshot.optimizer_state_size(); ++slot) {
    slots.push_back(FloatsOf(snapshot.optimizer_state(slot), &copies[static_cast<size_t>(slot)]));
    if (Planted(PlantedBug::kInstallWithoutOptimizerState)) {
      slots.back() = FloatsOf(snapshot.values(), &copy);
    }
  }
  std::vector<float> previous_copy;
  absl::Span<const float> previous;
  if (snapshot.state().previous_readable()) {
    previous = FloatsOf(snapshot.previous(), &previous_copy);
  }
  const absl::Span<const float> values = FloatsOf(snapshot.values(), &copy);
  if (!snapshot.optimizer_state().empty() || slots_ == 0) return Restore(values, previous, slots);
  return SetValues(
      [values](absl::Span<float> out) { std::copy(values.begin(), values.end(), out.begin()); });
}

absl::Status DenseStore::Restore(absl::Span<const float> values, absl::Span<const float> previous,
                                 absl::Span<const absl::Span<const float>> state) {
  gradients_.clear();
  kept_values_.clear();
  previous_.reset();
  if (values_.lent()) {
    CAPSTAN_ASSIGN_OR_RETURN(values_, TakeBuffer());
  }
  std::copy(values.begin(), values.end(), values_.data());
  for (size_t slot = 0; slot < state_.size(); ++slot) {
    std::copy(state[slot].begin(), state[slot].end(), state_[slot].data());
  }
  if (on_device_ != nullptr) CAPSTAN_RETURN_IF_ERROR(on_device_->Write(values, state));
  if (previous.empty()) return absl::OkStatus();
  CAPSTAN_ASSIGN_OR_RETURN(FloatBuffer buffer, TakeBuffer());
  std::copy(previous.begin(), previous.end(), buffer.data());
  previous_ = std::move(buffer);
  return absl::OkStatus();
}

int64_t DenseStore::lasting_bytes() const {
  const size_t arrays = 1 + state_.size() + kept_values_.size();
  return static_cast<int64_t>(arrays * sizeof(float)) * size();
}

int64_t DenseStore::bytes() const {
  const size_t passing = (previous_.has_value() ? 1 : 0) + gradients_.size() + free_.size();
  return lasting_bytes() + static_cast<int64_t>(passing * sizeof(float)) * size();
}

absl::StatusOr<FloatBuffer> DenseStore::TakeBuffer() {
  if (free_.empty()) return FloatBuffer::Allocate(size());
  FloatBuffer buffer = std::move(free_.back());
  free_.pop_back();
  return buffer;
}

void DenseStore::GiveBack(FloatBuffer buffer) {
  const bool usable = buffer.data() != nullptr && !buffer.lent();
  if (usable && free_.empty()) free_.push_back(std::move(buffer));
}

}  // namespace capstan::server
