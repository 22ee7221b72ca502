// ShardDevice: a device in whose memory the masters of dense shards and their optimizer state may
// lie, and which updates them there.
//
// The host keeps a copy of the values: answers, the previous version and sums of gradients are as
// without a device, and so are the bits.
//
//   Update   gradient ──copied──► device: weights, state = update(weights, gradient, state)
//   Finish   values   ◄──copied── weights
//
// Updates of several shards are enqueued before the first is waited for: a message that brings
// gradients for many costs one wait, and copies up and down and the rules run side by side.
// Thread safety: ShardDevice and DeviceShard are thread-safe.
#ifndef CAPSTAN_SERVER_DEVICE_SHARD_DEVICE_H_
#define CAPSTAN_SERVER_DEVICE_SHARD_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/types/shard_size.h"
#include "server/optimizer/config/optimizer_config.h"

namespace capstan::server {

// Weights and state of one shard. Freed before its device. Errors of all calls: those of the
// device; the shard is of no use after one.
class DeviceShard {
 public:
  virtual ~DeviceShard() = default;

  // Sets weights and state. REQUIRES: weights [elements]; state: an array of as many for each slot
  // of its rule.
  virtual absl::Status Write(absl::Span<const float> weights,
                             absl::Span<const absl::Span<const float>> state) = 0;
  // Enqueues update number `step` (optimizer.h). REQUIRES: Finish has followed the one before.
  //   gradient  writes the gradient to the place that it is given, [elements]; called once, now
  //   values    [elements], the new weights: written, by any thread, until Finish has returned
  virtual absl::Status Update(int64_t step, const std::function<void(float*)>& gradient,
                              absl::Span<float> values) = 0;
  // Waits for the last update, if there was one. Other calls do not wait for it.
  virtual absl::Status Finish() = 0;
  // Sets the factor of the updates that follow (OptimizerConfig::learning_rate_factor).
  virtual void SetLearningRateFactor(double factor) = 0;
  // Copies a slot of the state to `to`, [elements].
  virtual absl::Status ReadState(int slot, absl::Span<float> to) = 0;
};

class ShardDevice {
 public:
  virtual ~ShardDevice() = default;

  // "cuda:0", for logs and messages.
  virtual std::string Name() const = 0;
  // Returns whether it updates by this rule. For other rules shards stay on the host.
  virtual bool Knows(const OptimizerConfig& rule) const = 0;
  // A shard whose contents are still to be written. REQUIRES: Knows(rule); 0 <= elements <=
  // kElementsMax.
  // Errors: kResourceExhausted  the device has no memory; says how much is free.
  virtual absl::StatusOr<std::unique_ptr<DeviceShard>> Make(int64_t elements,
                                                            const OptimizerConfig& rule) = 0;

  static constexpr int64_t kElementsMax = kShardElementsMax;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_DEVICE_SHARD_DEVICE_H_
