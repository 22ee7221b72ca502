// The project's messages and what tests include, parsed once (precompiled.bzl).

#ifndef CAPSTAN_COMMON_BUILD_DEFS_MESSAGE_TEST_HEADERS_H_
#define CAPSTAN_COMMON_BUILD_DEFS_MESSAGE_TEST_HEADERS_H_

#include "common/build_defs/message_headers.h"
#include "common/build_defs/test_headers.h"

#endif  // CAPSTAN_COMMON_BUILD_DEFS_MESSAGE_TEST_HEADERS_H_
