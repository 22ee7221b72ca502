// Pools; image_kernels.h has the maths, shapes and bytes of each.
//
// A thread handles N neighbouring channels, because computing its place takes most of its time:
// 16 bytes of channels if they may be read at once and enough threads remain for a card, else one.
#include "kernels/cuda/own/image_kernels.h"
#include "kernels/cuda/own/launch.cuh"
#include "kernels/cuda/own/window.cuh"

namespace capstan::kernels::cuda {
namespace {

// The winners of N channels.
template <int N>
struct Winners {
  int32_t v[N];
};
template <int N>
__device__ __forceinline__ Winners<N> WinnersAt(const int32_t* p) {
  Winners<N> winners;
  if constexpr (N == 1) {
    winners.v[0] = *p;
  } else {
#pragma unroll
    for (int k = 0; k < N; k += 4) {
      const int4 packed = *reinterpret_cast<const int4*>(p + k);
      memcpy(winners.v + k, &packed, sizeof(packed));
    }
  }
  return winners;
}
template <int N>
__device__ __forceinline__ void StoreWinners(int32_t* p, const Winners<N>& winners) {
  if constexpr (N == 1) {
    *p = winners.v[0];
  } else {
#pragma unroll
    for (int k = 0; k < N; k += 4) {
      int4 packed;
      memcpy(&packed, winners.v + k, sizeof(packed));
      *reinterpret_cast<int4*>(p + k) = packed;
    }
  }
}

// The place of the first of thread i's channels, in an image [n, h, w, c].
template <int N>
__device__ __forceinline__ Place PlaceOfThread(int i, int h, int w, int c) {
  Place p = PlaceOf(i, h, w, c / N);
  p.channel *= N;
  return p;
}

// The index of channel p.channel at position (h, w) of image p.n.
__device__ __forceinline__ int XAt(const WindowShape& s, const Place& p, int h, int w) {
  return ((p.n * s.h + h) * s.w + w) * s.c + p.channel;
}
__device__ __forceinline__ int YAt(const WindowShape& s, const Place& p, int h, int w) {
  return ((p.n * s.out_h + h) * s.out_w + w) * s.c + p.channel;
}

template <int N, typename T>
struct MaxForward {
  static constexpr int kChannels = N;
  WindowShape s;
  const T* x;
  T* y;
  int32_t* index;
  __device__ void operator()(int i) const {
    const Place p = PlaceOfThread<N>(i, s.out_h, s.out_w, s.c);
    const AxisRange rows = WindowOf(p.row, s, s.h);
    const AxisRange columns = WindowOf(p.column, s, s.w);
    float best[N] = {};
    Winners<N> winners;
#pragma unroll
    for (int k = 0; k < N; ++k) winners.v[k] = -1;
    for (int h = rows.begin; h < rows.end; ++h) {
      for (int w = columns.begin; w < columns.end; ++w) {
        const int offset = (h + s.padding - p.row * s.stride) * s.kernel +  //
                           (w + s.padding - p.column * s.stride);
        float values[N];
        LoadN<N>(x + XAt(s, p, h, w), values);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          const bool better = values[k] > best[k] || values[k] != values[k];  // NaN wins.
          if (winners.v[k] >= 0 && !better) continue;
          best[k] = values[k];
          winners.v[k] = offset;
        }
      }
    }
    StoreN<N>(y + int64_t{i} * N, best);
    StoreWinners<N>(index + int64_t{i} * N, winners);
  }
};

template <int N, typename T>
struct MaxBackward {
  static constexpr int kChannels = N;
  WindowShape s;
  const T* dy;
  const int32_t* index;
  T* dx;
  __device__ void operator()(int i) const {
    const Place p = PlaceOfThread<N>(i, s.h, s.w, s.c);
    const AxisRange rows = WindowsAt(p.row, s, s.out_h);
    const AxisRange columns = WindowsAt(p.column, s, s.out_w);
    float sums[N] = {};
    for (int oh = rows.begin; oh < rows.end; ++oh) {
      for (int ow = columns.begin; ow < columns.end; ++ow) {
        const int at = YAt(s, p, oh, ow);
        const int offset = (p.row + s.padding - oh * s.stride) * s.kernel +  //
                           (p.column + s.padding - ow * s.stride);
        const Winners<N> winners = WinnersAt<N>(index + at);
        float gradients[N];
        LoadN<N>(dy + at, gradients);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          if (winners.v[k] == offset) sums[k] += gradients[k];
        }
      }
    }
    StoreN<N>(dx + int64_t{i} * N, sums);
  }
};

template <int N, typename T>
struct AverageForward {
  static constexpr int kChannels = N;
  WindowShape s;
  const T* x;
  T* y;
  __device__ void operator()(int i) const {
    const Place p = PlaceOfThread<N>(i, s.out_h, s.out_w, s.c);
    const AxisRange rows = WindowOf(p.row, s, s.h);
    const AxisRange columns = WindowOf(p.column, s, s.w);
    float sums[N] = {};
    for (int h = rows.begin; h < rows.end; ++h) {
      for (int w = columns.begin; w < columns.end; ++w) {
        float values[N];
        LoadN<N>(x + XAt(s, p, h, w), values);
#pragma unroll
        for (int k = 0; k < N; ++k) sums[k] += values[k];
      }
    }
    const int size = (rows.end - rows.begin) * (columns.end - columns.begin);
#pragma unroll
    for (int k = 0; k < N; ++k) sums[k] /= static_cast<float>(size);
    StoreN<N>(y + int64_t{i} * N, sums);
  }
};

template <int N, typename T>
struct AverageBackward {
  static constexpr int kChannels = N;
  WindowShape s;
  const T* dy;
  T* dx;
  __device__ void operator()(int i) const {
    const Place p = PlaceOfThread<N>(i, s.h, s.w, s.c);
    const AxisRange rows = WindowsAt(p.row, s, s.out_h);
    const AxisRange columns = WindowsAt(p.column, s, s.out_w);
    float sums[N] = {};
    for (int oh = rows.begin; oh < rows.end; ++oh) {
      const AxisRange inside = WindowOf(oh, s, s.h);
      for (int ow = columns.begin; ow < columns.end; ++ow) {
        const AxisRange across = WindowOf(ow, s, s.w);
        const auto size = static_cast<float>((inside.end - inside.begin) *  //
                                             (across.end - across.begin));
        float gradients[N];
        LoadN<N>(dy + YAt(s, p, oh, ow), gradients);
#pragma unroll
        for (int k = 0; k < N; ++k) sums[k] += gradients[k] / size;
      }
    }
    StoreN<N>(dx + int64_t{i} * N, sums);
  }
};

int64_t InputsOf(const WindowShape& s) { return s.n * s.h * s.w * s.c; }
int64_t OutputsOf(const WindowShape& s) { return s.n * s.out_h * s.out_w * s.c; }

constexpr int64_t kThreadsWanted = int64_t{1} << 17;

// Calls run(N as a constant, T()) for an op that writes `elements`, N per thread.
template <class Run>
cudaError_t ForWidth(const PoolArgs& a, int64_t elements, const Run& run) {
  return ForElement(a.type, [&](auto t) {
    using T = decltype(t);
    constexpr int kWide = kWidest<T>;
    const bool wide = elements / kWide >= kThreadsWanted && a.shape.c % kWide == 0 &&
                      IsAligned<kWide>(static_cast<const T*>(a.from)) &&
                      IsAligned<kWide>(static_cast<const T*>(a.to)) && IsAligned<4>(a.index);
    return wide ? run(std::integral_constant<int, kWide>(), t)
                : run(std::integral_constant<int, 1>(), t);
  });
}

template <class Op>
cudaError_t EachOf(const Op& op, int64_t elements, cudaStream_t stream) {
  return Each(op, elements / Op::kChannels, stream);
}

}  // namespace

cudaError_t LaunchMaxPoolForward(const PoolArgs& a, cudaStream_t stream) {
  return ForWidth(a, OutputsOf(a.shape), [&](auto n, auto t) {
    using T = decltype(t);
    const auto* const x = static_cast<const T*>(a.from);
    return EachOf(MaxForward<n(), T>{a.shape, x, static_cast<T*>(a.to), a.index},
                  OutputsOf(a.shape), stream);
  });
}
cudaError_t LaunchMaxPoolBackward(const PoolArgs& a, cudaStream_t stream) {
  return ForWidth(a, InputsOf(a.shape), [&](auto n, auto t) {
    using T = decltype(t);
    const auto* const dy = static_cast<const T*>(a.from);
    return EachOf(MaxBackward<n(), T>{a.shape, dy, a.index, static_cast<T*>(a.to)},
                  InputsOf(a.shape), stream);
  });
}
cudaError_t LaunchAveragePoolForward(const PoolArgs& a, cudaStream_t stream) {
  return ForWidth(a, OutputsOf(a.shape), [&](auto n, auto t) {
    using T = decltype(t);
    const auto* const x = static_cast<const T*>(a.from);
    return EachOf(AverageForward<n(), T>{a.shape, x, static_cast<T*>(a.to)}, OutputsOf(a.shape),
                  stream);
  });
}
cudaError_t LaunchAveragePoolBackward(const PoolArgs& a, cudaStream_t stream) {
  return ForWidth(a, InputsOf(a.shape), [&](auto n, auto t) {
    using T = decltype(t);
    const auto* const dy = static_cast<const T*>(a.from);
    return EachOf(AverageBackward<n(), T>{a.shape, dy, static_cast<T*>(a.to)}, InputsOf(a.shape),
                  stream);
  });
}

}  // namespace capstan::kernels::cuda
