// Fuzz target: a function that feeds any bytes to a decoder and aborts if something that must hold
// of every input does not. libFuzzer calls it under --config=fuzz, else replay.cc does.
//
// Thread safety: one thread.
#ifndef CAPSTAN_TESTS_FUZZ_TARGET_H_
#define CAPSTAN_TESTS_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

// Aborts, which the fuzzer reports with the input, unless `condition` is true.
#define FUZZ_CHECK(condition) \
  ((condition) ? void() : capstan::fuzz::Abort(__FILE__, __LINE__, #condition))

namespace capstan::fuzz {

// Each target defines it, and returns 0. `data` may be null if `size` is 0. With C's linkage it has
// no namespace for the linker.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

[[noreturn]] inline void Abort(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
  std::abort();
}

}  // namespace capstan::fuzz

#endif  // CAPSTAN_TESTS_FUZZ_TARGET_H_
