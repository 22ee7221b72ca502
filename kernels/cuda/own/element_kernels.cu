// Kernels without a sum; element_kernels.h has the maths, shapes and bytes of each.
#include "kernels/cuda/own/element_kernels.h"
#include "kernels/cuda/own/launch.cuh"

namespace capstan::kernels::cuda {
namespace {

// y = rule(a), element by element.
template <typename T, class Rule>
struct UnaryOp {
  const T* a;
  T* y;
  template <int N>
  __device__ void Run(int64_t i) const {
    float v[N];
    LoadN(a + i, v);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = Rule::Of(v[k]);
    StoreN(y + i, v);
  }
};

// y = rule(a, b), element by element.
template <typename T, class Rule>
struct BinaryOp {
  const T* a;
  const T* b;
  T* y;
  template <int N>
  __device__ void Run(int64_t i) const {
    float v[N];
    float u[N];
    LoadN(a + i, v);
    LoadN(b + i, u);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = Rule::Of(v[k], u[k]);
    StoreN(y + i, v);
  }
};

struct ReluRule {
  static __device__ float Of(float x) { return Relu(x); }
};
struct ReluGradientRule {
  static __device__ float Of(float y, float dy) { return ReluGradient(y, dy); }
};
template <Activation kActivation>
struct ActivationRule {
  static __device__ float Of(float x) { return Activated<kActivation>(x); }
};
template <Activation kActivation>
struct ActivationGradientRule {
  static __device__ float Of(float x, float dy) { return dy * ActivationSlope<kActivation>(x); }
};
struct AddRule {
  static __device__ float Of(float a, float b) { return a + b; }
};

template <typename T>
struct DropoutOp {
  const T* x;
  T* y;
  DropoutRule rule;
  const int32_t* key;
  template <int N>
  __device__ void Run(int64_t i) const {
    float v[N];
    LoadN(x + i, v);
    const uint64_t stream_key = KeyOfWords(__ldg(key), __ldg(key + 1));
    // If N is 4, i % 4 is 0.
    const auto words = Philox4x32(stream_key, static_cast<uint64_t>(i) / 4);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      v[k] = Dropout(rule, words[N == 4 ? k : static_cast<unsigned>(i % 4)], v[k]);
    }
    StoreN(y + i, v);
  }
};

template <typename T>
struct BiasOp {
  T* y;
  const float* bias;
  uint32_t c;
  bool relu;
  template <int N>
  __device__ void Run(int64_t i) const {
    float v[N];
    LoadN(y + i, v);
    uint32_t channel = static_cast<uint32_t>(i) % c;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (bias != nullptr) v[k] = v[k] + bias[channel];
      if (relu) v[k] = Relu(v[k]);
      if (++channel == c) channel = 0;
    }
    StoreN(y + i, v);
  }
};

template <typename From, typename To>
struct CastOp {
  const From* in;
  To* out;
  float scale;
  template <int N>
  __device__ void Run(int64_t i) const {
    float v[N];
    LoadN(in + i, v);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = v[k] * scale;
    StoreN(out + i, v);
  }
};

template <typename T>
struct LookUpOp {
  const uint8_t* from;
  const float* table;
  uint32_t channels;
  T* to;
  template <int N>
  __device__ void Run(int64_t i) const {
    Packed<N, uint8_t> packed;
    packed.Read(from + i);
    uint8_t bytes[N];
    packed.Split(bytes);
    uint32_t channel = static_cast<uint32_t>(i) % channels;
    float v[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      v[k] = table[channel * 256 + bytes[k]];
      channel = channel + 1 == channels ? 0 : channel + 1;
    }
    StoreN(to + i, v);
  }
};

template <UpdateRule kRule>
struct UpdateOp {
  UpdateScalars c;
  float* w;
  const float* g;
  float* s0;
  float* s1;
  Bf16* half;
  template <int N>
  __device__ void Run(int64_t i) const {
    float weight[N];
    float gradient[N];
    float state0[N] = {};
    float state1[N] = {};
    LoadN(w + i, weight);
    LoadN(g + i, gradient);
    if constexpr (StateSlotsOf(kRule) > 0) LoadN(s0 + i, state0);
    if constexpr (StateSlotsOf(kRule) > 1) LoadN(s1 + i, state1);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      weight[k] = Updated<kRule>(c, weight[k], gradient[k], state0 + k, state1 + k);
    }
    StoreN(w + i, weight);
    if constexpr (StateSlotsOf(kRule) > 0) StoreN(s0 + i, state0);
    if constexpr (StateSlotsOf(kRule) > 1) StoreN(s1 + i, state1);
    if (half != nullptr) StoreN(half + i, weight);
  }
};

template <class Rule>
cudaError_t LaunchUnary(const MapArgs& args, cudaStream_t stream) {
  return ForElement(args.type, [&](auto t) {
    using T = decltype(t);
    const UnaryOp<T, Rule> op{static_cast<const T*>(args.a), static_cast<T*>(args.y)};
    return Map(op, args.n, IsAligned4(op.a) && IsAligned4(op.y), stream);
  });
}

template <class Rule>
cudaError_t LaunchBinary(const MapArgs& args, cudaStream_t stream) {
  return ForElement(args.type, [&](auto t) {
    using T = decltype(t);
    const BinaryOp<T, Rule> op{static_cast<const T*>(args.a), static_cast<const T*>(args.b),
                               static_cast<T*>(args.y)};
    return Map(op, args.n, IsAligned4(op.a) && IsAligned4(op.b) && IsAligned4(op.y), stream);
  });
}

template <typename T>
cudaError_t DropoutOf(const MapArgs& args, const DropoutRule& rule, const int32_t* key,
                      cudaStream_t stream) {
  const DropoutOp<T> op{static_cast<const T*>(args.a), static_cast<T*>(args.y), rule, key};
  return Map(op, args.n, IsAligned4(op.x) && IsAligned4(op.y), stream);
}

template <typename T>
cudaError_t BiasOf(const BiasArgs& args, cudaStream_t stream) {
  const BiasOp<T> op{static_cast<T*>(args.y), args.bias, static_cast<uint32_t>(args.c), args.relu};
  return Map(op, args.n, IsAligned4(op.y), stream);
}

template <typename From, typename To>
cudaError_t CastOf(const CastArgs& args, cudaStream_t stream) {
  const CastOp<From, To> op{static_cast<const From*>(args.in), static_cast<To*>(args.out),
                            args.scale};
  return Map(op, args.n, IsAligned4(op.in) && IsAligned4(op.out), stream);
}

template <typename From>
cudaError_t CastFrom(const CastArgs& args, cudaStream_t stream) {
  switch (args.to) {
    case Number::kFp32:
      return CastOf<From, float>(args, stream);
    case Number::kBf16:
      return CastOf<From, Bf16>(args, stream);
    case Number::kFp16:
      return CastOf<From, Fp16>(args, stream);
  }
  return cudaErrorInvalidValue;
}

template <typename T>
cudaError_t LookUpOf(const LookUpArgs& args, cudaStream_t stream) {
  const LookUpOp<T> op{args.from, args.table, static_cast<uint32_t>(args.channels),
                       static_cast<T*>(args.to)};
  return Map(op, args.n, IsAligned4(op.from) && IsAligned4(op.to), stream);
}

template <UpdateRule kRule>
cudaError_t UpdateOf(const UpdateArgs& args, cudaStream_t stream) {
  // The kernel never reads a slot that the rule does not have.
  const UpdateOp<kRule> op{args.scalars, args.weights, args.gradient,
                           args.s0,      args.s1,      reinterpret_cast<Bf16*>(args.weights_bf16)};
  const bool aligned = IsAligned4(op.w) && IsAligned4(op.g) && IsAligned4(op.s0) &&
                       IsAligned4(op.s1) && IsAligned4(op.half);
  return Map(op, args.n, aligned, stream);
}

}  // namespace

cudaError_t LaunchRelu(const MapArgs& args, cudaStream_t stream) {
  return LaunchUnary<ReluRule>(args, stream);
}
cudaError_t LaunchReluBackward(const MapArgs& args, cudaStream_t stream) {
  return LaunchBinary<ReluGradientRule>(args, stream);
}
cudaError_t LaunchActivation(const MapArgs& args, Activation activation, cudaStream_t stream) {
  cudaError_t outcome = cudaErrorInvalidValue;
  WithActivation(activation, [&](auto one) {
    outcome = LaunchUnary<ActivationRule<decltype(one)::value>>(args, stream);
  });
  return outcome;
}
cudaError_t LaunchActivationBackward(const MapArgs& args, Activation activation,
                                     cudaStream_t stream) {
  cudaError_t outcome = cudaErrorInvalidValue;
  WithActivation(activation, [&](auto one) {
    outcome = LaunchBinary<ActivationGradientRule<decltype(one)::value>>(args, stream);
  });
  return outcome;
}
cudaError_t LaunchAdd(const MapArgs& args, cudaStream_t stream) {
  return LaunchBinary<AddRule>(args, stream);
}
cudaError_t LaunchDropout(const MapArgs& args, const DropoutRule& rule, const int32_t* key,
                          cudaStream_t stream) {
  return ForElement(args.type,
                    [&](auto t) { return DropoutOf<decltype(t)>(args, rule, key, stream); });
}
cudaError_t LaunchBias(const BiasArgs& args, cudaStream_t stream) {
  return ForElement(args.type, [&](auto t) { return BiasOf<decltype(t)>(args, stream); });
}

cudaError_t LaunchCast(const CastArgs& args, cudaStream_t stream) {
  switch (args.from) {
    case Number::kFp32:
      return CastFrom<float>(args, stream);
    case Number::kBf16:
      return CastFrom<Bf16>(args, stream);
    case Number::kFp16:
      return CastFrom<Fp16>(args, stream);
  }
  return cudaErrorInvalidValue;
}

cudaError_t LaunchLookUp(const LookUpArgs& args, cudaStream_t stream) {
  return ForElement(args.type, [&](auto t) { return LookUpOf<decltype(t)>(args, stream); });
}
cudaError_t LaunchUpdate(const UpdateArgs& args, cudaStream_t stream) {
  cudaError_t outcome = cudaErrorInvalidValue;
  WithRule(args.rule, [&](auto rule) {
    constexpr UpdateRule kRule = decltype(rule)::value;
    if constexpr (TraitsOf(kRule).on_device) outcome = UpdateOf<kRule>(args, stream);
  });
  return outcome;
}

}  // namespace capstan::kernels::cuda
