// ShardStore: the numbers of one shard: values, optimizer state and gradients; carries out its
// core's actions.
//
// No memory beyond what the rule needs: when an update keeps the previous version, the new values
// are written over the summed gradient and the two buffers change roles; a released previous
// version becomes the next gradient's buffer. With one slot, or none, a shard holds values, state
// and at most one more buffer.
//
//   values v, previous v-1 --first push at v--> previous's buffer takes the gradient
//   values v, gradient --apply--> gradient's buffer takes v+1, the values' buffer is previous
//
// Values are lent to answers, not copied. An update of values that are lent goes to another buffer;
// the old one is freed when the answers have been sent.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_TABLE_STORE_SHARD_STORE_H_
#define CAPSTAN_SERVER_TABLE_STORE_SHARD_STORE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/types/span.h"
#include "common/wire/number_format.h"
#include "server/core/messages.h"
#include "server/optimizer/optimizer.h"
#include "server/table_store/float_buffer.h"
#include "server/table_store/gradient.h"

namespace capstan::server {

// How elements [begin, end) of a shard are updated.
struct UpdateSegment {
  int64_t begin = 0;
  int64_t end = 0;
  OptimizerConfig config;
};

class ShardStore {
 public:
  // `segments` cover [0, elements) in order and agree in StateSlots. Values are unspecified until
  // written.
  // Errors: kResourceExhausted  no memory.
  static absl::StatusOr<ShardStore> Make(int64_t elements, std::vector<UpdateSegment> segments);

  // Each carries out the action of its argument; `payload` is the push being handled, size()
  // floats.
  // Errors: kResourceExhausted  no memory for a gradient; the push is lost, the shard unusable.
  absl::Status Keep(const KeepGradient& action, const Gradient& payload);
  void Add(const AddGradient& action, const Gradient& payload);
  void Drop(const DropGradient& action);
  void Release(const ReleasePrevious&);
  absl::Status Apply(const ApplyGradient& action, const Gradient& payload);

  // The buffer that a reply names; empty for kNothing. Valid until the next action.
  absl::Span<const float> Read(ReadFrom from) const { return BufferOf(from).span(); }
  // Likewise, to keep: fp32 is lent, other formats are made.
  absl::Cord Lend(ReadFrom from, NumberFormat format = NumberFormat::kFp32) const;

  // The gradient that an action names. Valid until the next action.
  Gradient ReadGradient(GradientId id, const Gradient& payload) const;

  int state_slots() const { return static_cast<int>(state_.size()); }
  absl::Span<const float> ReadState(int slot) const {
    return state_[static_cast<size_t>(slot)].span();
  }

  // Takes over another store's numbers; gradients that are kept are dropped. `previous` is empty if
  // there is none. REQUIRES: every span has size() floats, and there are state_slots() of state.
  // Errors: kResourceExhausted  no memory for the previous version; the store is unusable.
  absl::Status Restore(absl::Span<const float> values, absl::Span<const float> previous,
                       absl::Span<const absl::Span<const float>> state);

  absl::Span<float> mutable_values() { return values_.span(); }  // To set the initial values.
  int64_t size() const { return values_.size(); }
  int64_t bytes() const;  // Of all buffers, in memory now.

 private:
  ShardStore() = default;

  const FloatBuffer& BufferOf(ReadFrom from) const;
  absl::StatusOr<FloatBuffer> TakeBuffer();  // A free one, or a new one.
  void GiveBack(FloatBuffer buffer);
  // Writes update number `step` to `out`, which may be the values or the gradient.
  void Update(int64_t step, const Gradient& gradient, float* out);

  std::vector<UpdateSegment> segments_;
  FloatBuffer values_;
  std::vector<FloatBuffer> state_;
  std::optional<FloatBuffer> previous_;
  absl::btree_map<GradientId, FloatBuffer> gradients_;
  std::vector<FloatBuffer> free_;  // At most one is kept.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_TABLE_STORE_SHARD_STORE_H_
