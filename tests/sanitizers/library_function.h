// LibraryFunction: a shared library's function that a program has replaced by its own.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_TESTS_SANITIZERS_LIBRARY_FUNCTION_H_
#define CAPSTAN_TESTS_SANITIZERS_LIBRARY_FUNCTION_H_

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace capstan::sanitizers {

// The function of this (mangled) name that follows the program's own; ends the process if no loaded
// library has one, since nothing sound could be done instead.
template <typename Function>
Function* LibraryFunction(const char* symbol) {
  void* found = dlsym(RTLD_NEXT, symbol);
  if (found == nullptr) {
    std::fprintf(stderr, "sanitizers: no library defines %s\n", symbol);
    std::abort();
  }
  return reinterpret_cast<Function*>(found);
}

}  // namespace capstan::sanitizers

#endif  // CAPSTAN_TESTS_SANITIZERS_LIBRARY_FUNCTION_H_
