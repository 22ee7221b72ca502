#include "tests/benchmark/baseline/triad.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace capstan::benchmark {
namespace {

constexpr float kScale = 0.25f;

inline __attribute__((always_inline)) void Loop(int64_t n, const float* b, const float* c,
                                                float* a) {
  for (int64_t i = 0; i < n; ++i) a[i] = b[i] + kScale * c[i];
}

#if defined(__x86_64__)
constexpr int64_t kLine = 16;  // Elements of a cache line.

__attribute__((target("avx512f"))) void TriadAvx512(int64_t n, const float* b, const float* c,
                                                    float* a) {
  Loop(n, b, c, a);
}

// Reads and writes whole cache lines.
__attribute__((target("avx512f"))) void StreamLinesAvx512(int64_t n, const float* b, const float* c,
                                                          float* a) {
  const __m512 scale = _mm512_set1_ps(kScale);
  for (int64_t i = 0; i < n; i += kLine) {
    const __m512 scaled = _mm512_mul_ps(scale, _mm512_loadu_ps(c + i));
    _mm512_stream_ps(a + i, _mm512_add_ps(_mm512_loadu_ps(b + i), scaled));
  }
}

void StreamLines(int64_t n, const float* b, const float* c, float* a) {
  const __m128 scale = _mm_set1_ps(kScale);
  for (int64_t i = 0; i < n; i += 4) {
    _mm_stream_ps(a + i, _mm_add_ps(_mm_loadu_ps(b + i), _mm_mul_ps(scale, _mm_loadu_ps(c + i))));
  }
}
#endif

}  // namespace

void Triad(int64_t n, const float* b, const float* c, float* a) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return TriadAvx512(n, b, c, a);
#endif
  Loop(n, b, c, a);
}

void StreamingTriad(int64_t n, const float* b, const float* c, float* a) {
#if defined(__x86_64__)
  const int64_t whole = n - n % kLine;
  if (__builtin_cpu_supports("avx512f")) {
    StreamLinesAvx512(whole, b, c, a);
  } else {
    StreamLines(whole, b, c, a);
  }
  _mm_sfence();
  Loop(n - whole, b + whole, c + whole, a + whole);
#else
  Loop(n, b, c, a);
#endif
}

}  // namespace capstan::benchmark
