// Sums over positions and batch norm; image_kernels.h has the maths, shapes and bytes of each.
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/image_kernels.h"
#include "kernels/cuda/launch.cuh"

namespace capstan::kernels::cuda {
namespace {

__device__ __forceinline__ float Inverse(float variance, float epsilon) {
  return 1.0f / sqrtf(variance + epsilon);
}

// ---------------------------------------------------------------- bias gradient

template <int N, typename T>
struct GradientValues {
  const T* dy;
  struct Columns {
    const T* dy;
    Pair (&sums)[N];
    __device__ Row<N> Read(int64_t i) const { return RowAt<N>(dy + i); }
    __device__ void Use(int64_t, const Row<N>& g) const {
#pragma unroll
      for (int k = 0; k < N; ++k) sums[k].a += g.v[k];
    }
  };
  __device__ Columns OfColumns(int, Pair (&sums)[N]) const { return {dy, sums}; }
};
struct StoreSums {
  float* sums;
  __device__ void operator()(int column, double2 sum) const {
    sums[column] = static_cast<float>(sum.x);
  }
};

// ---------------------------------------------------------------- batch norm, forward

// Deviations from x[0] of the channel, and their squares: no cancellation, whatever the mean.
template <int N, typename T>
struct DeviationValues {
  const T* x;
  struct Columns {
    const T* x;
    Row<N> pivot;
    Pair (&sums)[N];
    __device__ Row<N> Read(int64_t i) const { return RowAt<N>(x + i); }
    __device__ void Use(int64_t, const Row<N>& one) const {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const float deviation = one.v[k] - pivot.v[k];
        sums[k].a += deviation;
        sums[k].b += deviation * deviation;
      }
    }
  };
  __device__ Columns OfColumns(int column, Pair (&sums)[N]) const {
    return {x, RowAt<N>(x + column), sums};
  }
};
template <typename T>
struct StoreMoments {
  const T* x;
  double rows;
  float* mean;
  float* variance;
  __device__ void operator()(int column, double2 sum) const {
    const double shift = sum.x / rows;
    const double spread = sum.y / rows - shift * shift;
    mean[column] = static_cast<float>(static_cast<double>(Load(x + column)) + shift);
    variance[column] = static_cast<float>(spread < 0.0 ? 0.0 : spread);  // NaN stays.
  }
};

// x of N channels to normal * scale + shift.
template <int N>
struct Normal {
  Row<N> mean, inverse, scale, shift;
  __device__ Normal(const BatchNormArgs& a, int column)
      : mean(ChannelsAt<N>(a.mean, column)),
        inverse(ChannelsAt<N>(a.variance, column)),
        scale(ChannelsAt<N>(a.scale, column)),
        shift() {
    if (a.shift != nullptr) shift = ChannelsAt<N>(a.shift, column);
#pragma unroll
    for (int k = 0; k < N; ++k) inverse.v[k] = Inverse(inverse.v[k], a.epsilon);
  }
  __device__ float operator()(float x, int k) const {
    return (x - mean.v[k]) * inverse.v[k] * scale.v[k] + shift.v[k];
  }
};

template <int N, typename T, Fused kFused>
struct Normalise {
  BatchNormArgs a;
  struct Columns {
    const T* x;
    const T* addend;
    T* y;
    Normal<N> normal;
    struct Values {
      Row<N> x, addend;
    };
    __device__ Values Read(int64_t i) const {
      if constexpr (kFused == Fused::kAddendRelu) {
        return {RowAt<N>(x + i), RowAt<N>(addend + i)};
      } else {
        return {RowAt<N>(x + i), {}};
      }
    }
    __device__ void Use(int64_t i, const Values& in) const {
      Row<N> out;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        out.v[k] = normal(in.x.v[k], k);
        if constexpr (kFused == Fused::kAddendRelu) out.v[k] += in.addend.v[k];
        if constexpr (kFused != Fused::kNothing) out.v[k] = Relu(out.v[k]);
      }
      StoreN<N>(y + i, out.v);
    }
  };
  __device__ Columns OfColumns(int column) const {
    return {static_cast<const T*>(a.x), static_cast<const T*>(a.addend), static_cast<T*>(a.out),
            Normal<N>(a, column)};
  }
};

// ---------------------------------------------------------------- batch norm, backward

// The gradient of what ReLU was given.
template <int N, typename T, Fused kFused>
struct MaskedGradient {
  const T* x;
  const T* dy;
  const T* y;
  T* dsum;
  Normal<N> normal;
  struct Values {
    Row<N> x, dy, y;
  };
  __device__ MaskedGradient(const BatchNormArgs& a, int column)
      : x(static_cast<const T*>(a.x)),
        dy(static_cast<const T*>(a.dy)),
        y(static_cast<const T*>(a.y)),
        dsum(static_cast<T*>(a.dsum)),
        normal(a, column) {}
  __device__ Values Read(int64_t i) const {
    if constexpr (kFused == Fused::kAddendRelu) {
      return {RowAt<N>(x + i), RowAt<N>(dy + i), RowAt<N>(y + i)};
    } else {
      return {RowAt<N>(x + i), RowAt<N>(dy + i), {}};
    }
  }
  // Forward and backward compute the same sum, and round it alike: kernels are compiled without
  // fused multiply-adds.
  __device__ float Of(const Values& in, int k) const {
    if constexpr (kFused == Fused::kRelu) return normal(in.x.v[k], k) > 0.0f ? in.dy.v[k] : 0.0f;
    if constexpr (kFused == Fused::kAddendRelu) return in.y.v[k] > 0.0f ? in.dy.v[k] : 0.0f;
    return in.dy.v[k];
  }
  __device__ float NormalOf(const Values& in, int k) const {
    return (in.x.v[k] - normal.mean.v[k]) * normal.inverse.v[k];
  }
};

// The gradient, and gradient * normal; stores it as dsum where that is an output.
template <int N, typename T, Fused kFused>
struct BackwardValues {
  BatchNormArgs a;
  struct Columns {
    using Values = typename MaskedGradient<N, T, kFused>::Values;
    MaskedGradient<N, T, kFused> gradient;
    Pair (&sums)[N];
    __device__ Values Read(int64_t i) const { return gradient.Read(i); }
    __device__ void Use(int64_t i, const Values& in) const {
      Row<N> g;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        g.v[k] = gradient.Of(in, k);
        sums[k].a += g.v[k];
        sums[k].b += g.v[k] * gradient.NormalOf(in, k);
      }
      if constexpr (kFused == Fused::kAddendRelu) StoreN<N>(gradient.dsum + i, g.v);
    }
  };
  __device__ Columns OfColumns(int column, Pair (&sums)[N]) const {
    return {MaskedGradient<N, T, kFused>(a, column), sums};
  }
};
struct StoreGradients {
  float* dscale;
  float* dshift;
  __device__ void operator()(int column, double2 sum) const {
    dshift[column] = static_cast<float>(sum.x);
    dscale[column] = static_cast<float>(sum.y);
  }
};

template <int N, typename T, Fused kFused>
struct BackwardMap {
  BatchNormArgs a;
  struct Columns {
    using Values = typename MaskedGradient<N, T, kFused>::Values;
    MaskedGradient<N, T, kFused> gradient;
    T* dx;
    Row<N> mean_g, mean_g_normal;
    __device__ Values Read(int64_t i) const { return gradient.Read(i); }
    __device__ void Use(int64_t i, const Values& in) const {
      Row<N> out;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const float centred =
            gradient.Of(in, k) - mean_g.v[k] - gradient.NormalOf(in, k) * mean_g_normal.v[k];
        out.v[k] = gradient.normal.scale.v[k] * gradient.normal.inverse.v[k] * centred;
      }
      StoreN<N>(dx + i, out.v);
    }
  };
  __device__ Columns OfColumns(int column) const {
    Columns columns = {MaskedGradient<N, T, kFused>(a, column), static_cast<T*>(a.out),
                       ChannelsAt<N>(a.dshift, column), ChannelsAt<N>(a.dscale, column)};
    const auto rows = static_cast<float>(a.rows);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      columns.mean_g.v[k] /= rows;
      columns.mean_g_normal.v[k] /= rows;
    }
    return columns;
  }
};

// ---------------------------------------------------------------- launches

template <int N, typename T, Fused kFused>
cudaError_t InferenceOf(const BatchNormArgs& a, cudaStream_t stream) {
  return MapColumns<N>(Normalise<N, T, kFused>{a}, ColumnGeometryOf(a.rows, a.c, N), stream);
}

template <int N, typename T, Fused kFused>
cudaError_t ForwardOf(const BatchNormArgs& a, cudaStream_t stream) {
  const auto* const x = static_cast<const T*>(a.x);
  const StoreMoments<T> finish{x, static_cast<double>(a.rows), a.mean, a.variance};
  const cudaError_t error =
      Sum<N>(DeviationValues<N, T>{x}, finish, ColumnGeometryOf(a.rows, a.c, N), a.scratch,
             a.strips_done, stream);
  return error != cudaSuccess ? error : InferenceOf<N, T, kFused>(a, stream);
}

template <int N, typename T, Fused kFused>
cudaError_t BackwardOf(const BatchNormArgs& a, cudaStream_t stream) {
  const ColumnGeometry g = ColumnGeometryOf(a.rows, a.c, N);
  const StoreGradients finish{a.dscale, a.dshift};
  const cudaError_t error =
      Sum<N>(BackwardValues<N, T, kFused>{a}, finish, g, a.scratch, a.strips_done, stream);
  if (error != cudaSuccess) return error;
  if constexpr (kFused != Fused::kAddendRelu) {
    return MapColumns<N>(BackwardMap<N, T, kFused>{a}, g, stream);
  } else {
    BatchNormArgs masked = a;  // The first pass has done it.
    masked.dy = a.dsum;
    return MapColumns<N>(BackwardMap<N, T, Fused::kNothing>{masked}, g, stream);
  }
}

template <typename T>
bool MayReadFour(const BatchNormArgs& a) {
  for (const void* const p : {a.x, a.dy, a.addend, a.y}) {
    if (!IsAligned4(static_cast<const T*>(p))) return false;
  }
  return a.c % 4 == 0 && IsAligned4(static_cast<const T*>(a.out)) &&
         IsAligned4(static_cast<const T*>(a.dsum));
}

// run(N as a constant, T()) for the widest reads and the type of the tensors.
template <class Run>
cudaError_t ForWidth(const BatchNormArgs& a, const Run& run) {
  return ForElement(a.type, [&](auto t) {
    if (MayReadFour<decltype(t)>(a)) return run(std::integral_constant<int, 4>(), t);
    return run(std::integral_constant<int, 1>(), t);
  });
}

template <class Run>
cudaError_t ForFused(Fused fused, const Run& run) {
  switch (fused) {
    case Fused::kNothing:
      return run(std::integral_constant<Fused, Fused::kNothing>());
    case Fused::kRelu:
      return run(std::integral_constant<Fused, Fused::kRelu>());
    case Fused::kAddendRelu:
      return run(std::integral_constant<Fused, Fused::kAddendRelu>());
  }
  return cudaErrorInvalidValue;
}

}  // namespace

int64_t ColumnSumsScratchBytes(int64_t rows, int c) {
  const int64_t chunks_1 = ColumnGeometryOf(rows, c, 1).chunks();
  const int64_t chunks_4 = ColumnGeometryOf(rows, c, 4).chunks();
  const int64_t chunks = chunks_1 > chunks_4 ? chunks_1 : chunks_4;
  return chunks * c * static_cast<int64_t>(sizeof(double2));
}

cudaError_t LaunchColumnSums(const ColumnSumsArgs& args, cudaStream_t stream) {
  return ForElement(args.type, [&](auto t) {
    using T = decltype(t);
    const auto* const dy = static_cast<const T*>(args.dy);
    const StoreSums finish{args.sums};
    if (args.c % 4 == 0 && IsAligned4(dy)) {
      return Sum<4>(GradientValues<4, T>{dy}, finish, ColumnGeometryOf(args.rows, args.c, 4),
                    args.scratch, args.strips_done, stream);
    }
    return Sum<1>(GradientValues<1, T>{dy}, finish, ColumnGeometryOf(args.rows, args.c, 1),
                  args.scratch, args.strips_done, stream);
  });
}

cudaError_t LaunchBatchNormForward(const BatchNormArgs& args, cudaStream_t stream) {
  return ForFused(args.fused, [&](auto fused) {
    return ForWidth(
        args, [&](auto n, auto t) { return ForwardOf<n(), decltype(t), fused()>(args, stream); });
  });
}
cudaError_t LaunchBatchNormInference(const BatchNormArgs& args, cudaStream_t stream) {
  return ForFused(args.fused, [&](auto fused) {
    return ForWidth(
        args, [&](auto n, auto t) { return InferenceOf<n(), decltype(t), fused()>(args, stream); });
  });
}
cudaError_t LaunchBatchNormBackward(const BatchNormArgs& args, cudaStream_t stream) {
  return ForFused(args.fused, [&](auto fused) {
    return ForWidth(
        args, [&](auto n, auto t) { return BackwardOf<n(), decltype(t), fused()>(args, stream); });
  });
}

}  // namespace capstan::kernels::cuda
