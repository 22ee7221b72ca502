// Formatting: numbers, times and names as people read them.
//
// Thread safety: pure functions (TimeText reads the machine's time zone).
#ifndef CAPSTAN_SCHEDULER_CLI_VIEW_FORMAT_H_
#define CAPSTAN_SCHEDULER_CLI_VIEW_FORMAT_H_

#include <google/protobuf/message.h>

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "proto/scheduler.pb.h"

namespace capstan::cli {

std::string FormatCount(int64_t count);             // "31,200"
std::string FormatShare(double share);              // 0.8512 -> "85.12 %"
std::string FormatLoss(double loss);                // "0.4123"
std::string FormatRate(double samples_per_second);  // "8,412 samples/s"
std::string FormatBytes(int64_t bytes);             // "12.3 MiB"
std::string TimeText(int64_t unix_ms);              // "2026-01-31 12:00:00", local; 0 -> "-"

// "/out on node-1"; without a host, or without a path, that alone.
std::string PathOn(const std::string& host, const std::string& path);

// Whether jobs of this objective have an accuracy; where not, the field means nothing.
bool HasAccuracy(v1::Objective objective);

// "RUNNING", without a prefix.
std::string StateName(v1::JobState state);
bool HasEnded(v1::JobState state);

// The word that users see for a reason: DIVERGED -> "Diverged", OUT_OF_MEMORY -> "OutOfMemory".
std::string ReasonName(v1::Failure::Reason reason);

// "server", "worker".
std::string RoleName(v1::Role role);

// The message as JSON of several lines, with every field, keys in lowerCamelCase.
std::string ToJson(const google::protobuf::Message& message);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_VIEW_FORMAT_H_
