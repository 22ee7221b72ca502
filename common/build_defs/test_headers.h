// System headers that tests include, parsed once (precompiled.bzl).

#ifndef CAPSTAN_COMMON_BUILD_DEFS_TEST_HEADERS_H_
#define CAPSTAN_COMMON_BUILD_DEFS_TEST_HEADERS_H_

#include "common/build_defs/library_headers.h"

#include <catch2/catch.hpp>

#endif  // CAPSTAN_COMMON_BUILD_DEFS_TEST_HEADERS_H_
