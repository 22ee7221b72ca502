// Activation: a function of one element that is a layer of its own, with its derivative. Hosts and
// kernels compile the same lines.
//
// ReLU is not among them: it is fused into other ops (op.h). Specification:
// kernels/reference/matrix_ops.cc. Results on the host and on a device may differ in their last
// bits, as their erfc and exp do. Plain C++ for g++ and nvcc. Thread safety: pure functions.
#ifndef CAPSTAN_KERNELS_ACTIVATION_H_
#define CAPSTAN_KERNELS_ACTIVATION_H_

#include <cmath>
#include <cstddef>
#include <iterator>
#include <string_view>

#include "kernels/host_device.h"
#include "kernels/with_constant.h"

namespace capstan::kernels {

enum class Activation { kGelu, kSilu, kTanh, kSigmoid };

// The fields of Layer.kind in proto/job.proto, in the order of Activation.
inline constexpr const char* kActivationNames[] = {"gelu", "silu", "tanh", "sigmoid"};

// Returns the activation of that name. For an unknown name, returns a value that no op accepts.
constexpr Activation ActivationNamed(std::string_view name) {
  size_t index = 0;
  while (index < std::size(kActivationNames) && name != kActivationNames[index]) ++index;
  return static_cast<Activation>(index);
}
constexpr const char* NameOf(Activation activation) {
  const auto index = static_cast<size_t>(activation);
  return index < std::size(kActivationNames) ? kActivationNames[index] : "unknown";
}

// Calls call(std::integral_constant<Activation, activation>()), which returns nothing.
template <typename Call>
void WithActivation(Activation activation, const Call& call) {
  WithConstant<std::size(kActivationNames)>(activation, call);
}

// The probability that a standard normal variable is at most x, and its density at x.
CAPSTAN_HOST_DEVICE float NormalBelow(float x) { return 0.5f * erfcf(-0.7071067812f * x); }
CAPSTAN_HOST_DEVICE float NormalDensity(float x) { return 0.3989422804f * expf(-0.5f * x * x); }

CAPSTAN_HOST_DEVICE float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// The activation y of x.
template <Activation kActivation>
CAPSTAN_HOST_DEVICE float Activated(float x) {
  if constexpr (kActivation == Activation::kGelu) {
    return x * NormalBelow(x);
  } else if constexpr (kActivation == Activation::kSilu) {
    return x * Sigmoid(x);
  } else if constexpr (kActivation == Activation::kTanh) {
    return tanhf(x);
  } else {
    static_assert(kActivation == Activation::kSigmoid);
    return Sigmoid(x);
  }
}

// dy / dx at x.
template <Activation kActivation>
CAPSTAN_HOST_DEVICE float ActivationSlope(float x) {
  if constexpr (kActivation == Activation::kGelu) {
    return NormalBelow(x) + x * NormalDensity(x);
  } else if constexpr (kActivation == Activation::kSilu) {
    const float s = Sigmoid(x);
    return s * (1.0f + x * (1.0f - s));
  } else if constexpr (kActivation == Activation::kTanh) {
    const float y = tanhf(x);
    return 1.0f - y * y;
  } else {
    static_assert(kActivation == Activation::kSigmoid);
    const float s = Sigmoid(x);
    return s * (1.0f - s);
  }
}

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_ACTIVATION_H_
