// InstructionSet: the vector instructions that a loop may be compiled for besides the baseline's,
// and which of them this processor has.
//
// Loops are compiled once for each and chosen at run time by a plain call, so that a test can run
// every form, and sanitizers work.
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_TYPES_INSTRUCTION_SET_H_
#define CAPSTAN_COMMON_TYPES_INSTRUCTION_SET_H_

#include <initializer_list>

// Stands before a loop whose iterations do not read what other iterations write, which the compiler
// cannot see from the pointers. Clang does not vectorize a loop with a sanitizer's checks, and
// would warn that it was asked to.
#if !defined(__clang__)
#define CAPSTAN_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#elif __has_feature(undefined_behavior_sanitizer)
#define CAPSTAN_INDEPENDENT_ITERATIONS
#else
#define CAPSTAN_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#endif

// Stands in a `target` attribute for AVX-512: vectors have 512 bits, where GCC would choose 256.
// Clang 14 would ignore the whole attribute for it.
#if defined(__clang__)
#define CAPSTAN_VECTORS_OF_512_BITS ""
#else
#define CAPSTAN_VECTORS_OF_512_BITS ",prefer-vector-width=512"
#endif

namespace capstan {

// Ordered by width, ascending.
enum class InstructionSet { kBaseline, kAvx2, kAvx512 };

// True if this processor and this build can run the form. kBaseline always can.
inline bool IsSupported(InstructionSet set) {
#if defined(__x86_64__)
  if (set == InstructionSet::kAvx512) return __builtin_cpu_supports("avx512f");
  if (set == InstructionSet::kAvx2) return __builtin_cpu_supports("avx2");
#endif
  return set == InstructionSet::kBaseline;
}

// The widest that is supported.
inline InstructionSet BestInstructionSet() {
  static const InstructionSet best = [] {
    for (const InstructionSet set : {InstructionSet::kAvx512, InstructionSet::kAvx2}) {
      if (IsSupported(set)) return set;
    }
    return InstructionSet::kBaseline;
  }();
  return best;
}

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TYPES_INSTRUCTION_SET_H_
