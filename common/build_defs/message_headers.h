// The project's messages, parsed once where many files include them (precompiled.bzl).

#ifndef CAPSTAN_COMMON_BUILD_DEFS_MESSAGE_HEADERS_H_
#define CAPSTAN_COMMON_BUILD_DEFS_MESSAGE_HEADERS_H_

#include "common/build_defs/library_headers.h"
#include "proto/job.pb.h"
#include "proto/parameter_server.pb.h"
#include "proto/scheduler.pb.h"

#endif  // CAPSTAN_COMMON_BUILD_DEFS_MESSAGE_HEADERS_H_
