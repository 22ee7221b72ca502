// System headers that tests include, parsed once (precompiled.bzl).

#ifndef CAPSTAN_COMMON_BUILD_DEFS_TEST_HEADERS_H_
#define CAPSTAN_COMMON_BUILD_DEFS_TEST_HEADERS_H_

#include "common/build_defs/library_headers.h"

// An assertion does not catch exceptions by itself: its case does. Compiling a test takes a fifth
// less time so.
#define CATCH_CONFIG_FAST_COMPILE
#include <catch2/catch.hpp>

#endif  // CAPSTAN_COMMON_BUILD_DEFS_TEST_HEADERS_H_
