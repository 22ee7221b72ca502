// DenseStore: the numbers of one shard of a dense table.
//
// It takes no memory beyond what the rule needs: when an update keeps the previous version, the new
// values are written over the summed gradient and the two buffers change roles; a released previous
// version becomes the next gradient's buffer. With one slot, or none, a shard holds values, state
// and at most one more buffer.
//
//   values v, previous v-1 --first push at v--> previous's buffer takes the gradient
//   values v, gradient --apply--> gradient's buffer takes v+1, the values' buffer is previous
//
// Values are lent to answers, not copied. An update of values that are lent goes to another buffer;
// the old one is freed when the answers have been sent. Values that late gradients will be
// corrected by are kept the same way: lent to this store.
//
// If there is a device (server/device), it holds masters and state, and does the updates of the
// rules that it knows. Then the values are the host's copy; all of the above applies to that copy.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_STORE_DENSE_DENSE_STORE_H_
#define CAPSTAN_SERVER_STORE_DENSE_DENSE_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/wire/number_format.h"
#include "common/wire/wire_values.h"
#include "proto/parameter_server.pb.h"
#include "server/core/messages/messages.h"
#include "server/device/shard_device.h"
#include "server/optimizer/optimizer.h"
#include "server/store/float_buffer.h"
#include "server/store/gradient.h"
#include "server/store/shard_store.h"

namespace capstan::server {

// How elements [begin, end) of a shard are updated: a whole tensor under a layer-wise rule.
struct UpdateSegment {
  int64_t begin = 0;
  int64_t end = 0;
  OptimizerConfig config;
};

class DenseStore final : public ShardStore, private LateGradientStore {
 public:
  // `segments` cover [0, elements) in order and agree in StateSlots. Values are unspecified until
  // SetValues or Restore. `device`: null, or outlives the store.
  // Errors: kResourceExhausted  no memory, here or on the device.
  static absl::StatusOr<std::unique_ptr<DenseStore>> Make(int64_t elements,
                                                          std::vector<UpdateSegment> segments,
                                                          ShardDevice* device = nullptr);
  // Sets the initial values: `write` writes them to [elements]. Called once, before anything else.
  // Errors: those of the device.
  absl::Status SetValues(const std::function<void(absl::Span<float>)>& write);

  absl::StatusOr<Gradient> Parse(const absl::Cord& payload, NumberFormat format,
                                 const RowKeys& listed = nullptr) const override;
  absl::StatusOr<RowKeys> ParseKeys(absl::string_view bytes) const override;
  int64_t AnswerElements(const RowKeys&) const override { return size(); }

  absl::Status Keep(const KeepGradient& action, const Gradient& payload) override;
  absl::Status Add(const AddGradient& action, const Gradient& payload) override;
  void Drop(const DropGradient& action) override;
  void Release(const ReleasePrevious& action) override;
  absl::Status Apply(const ApplyGradient& action, const Gradient& payload) override;
  bool updating() const override { return updating_; }
  absl::Status Finish() override;
  Gradient ReadGradient(GradientId id, const Gradient& payload) const override;
  // Values are lent as fp32, and converted for other formats.
  absl::StatusOr<absl::Cord> Lend(ReadFrom from, const RowKeys& keys,
                                  NumberFormat format) const override;
  absl::Status Save(bool previous, v1::ShardSnapshot* snapshot) const override;
  absl::Status Restore(const v1::ShardSnapshot& snapshot) override;
  int64_t elements() const override { return size(); }
  int64_t lasting_bytes() const override;
  int64_t bytes() const override;

  // The buffer that a reply names; empty for kNothing. Valid until the next action.
  absl::Span<const float> Read(ReadFrom from) const { return BufferOf(from).span(); }
  bool on_device() const { return on_device_ != nullptr; }
  int64_t size() const { return size_; }

 private:
  absl::Status Correct(const CorrectGradient& action, const Gradient& payload) override;
  void KeepCurrent(const KeepValues& action) override;
  void Forget(const ForgetValues& action) override;

  explicit DenseStore(int64_t size) : ShardStore(nullptr, this), size_(size) {}

  const FloatBuffer& BufferOf(ReadFrom from) const;
  absl::StatusOr<FloatBuffer> TakeBuffer();  // A free one, or a new one.
  void GiveBack(FloatBuffer buffer);
  absl::Status CheckSnapshot(const v1::ShardSnapshot& snapshot) const;
  // Same as Restore, for what has been checked.
  absl::Status Restore(absl::Span<const float> values, absl::Span<const float> previous,
                       absl::Span<const absl::Span<const float>> state);
  // Writes update number `step` to `out`, which may be the values or the gradient.
  // Errors: those of the device.
  absl::Status Update(int64_t step, const WireValues& gradient, float* out);
  void UpdateHere(int64_t step, const WireValues& gradient, float* out);
  double TrustRatioOf(const UpdateSegment& segment, int64_t step, const WireValues& gradient);
  // The state of the elements from `begin` on, as Apply wants it.
  absl::InlinedVector<float*, 3> StateAt(int64_t begin);
  absl::StatusOr<std::string> SavedState(int slot) const;

  const int64_t size_;
  std::vector<UpdateSegment> segments_;
  FloatBuffer values_;
  int slots_ = 0;
  std::vector<FloatBuffer> state_;          // Empty with a device.
  std::unique_ptr<DeviceShard> on_device_;  // Null: the host has the masters.
  bool updating_ = false;                   // On the device; values_ are not written yet.
  std::optional<FloatBuffer> previous_;
  std::map<Version, absl::Cord> kept_values_;  // Lent, [size()] fp32 each.
  std::map<GradientId, FloatBuffer> gradients_;
  std::vector<FloatBuffer> free_;  // At most one is kept.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_DENSE_DENSE_STORE_H_
