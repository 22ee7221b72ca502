// Formatting: converts numbers, times and names to text for users.
//
// Thread safety: pure functions (TimeText reads the machine's time zone).
#ifndef CAPSTAN_SCHEDULER_CLI_VIEW_TEXT_FORMAT_H_
#define CAPSTAN_SCHEDULER_CLI_VIEW_TEXT_FORMAT_H_

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

// Returns "/out on node-1". Without a host, or with an empty path, returns `path`.
std::string PathOn(const std::string& host, const std::string& path);

// Returns true if jobs with this objective have an accuracy. Otherwise the field has no meaning.
bool HasAccuracy(v1::Objective objective);
// Same for samples of `job`, of which the share `correct` was classified correctly. False also if a
// program counted none of them.
bool HasAccuracy(const v1::JobStatus& job, double correct);

// Returns the state's name, as "RUNNING".
std::string StateName(v1::JobState state);
bool HasEnded(v1::JobState state);

// Returns the name of a reason for users: DIVERGED -> "Diverged", OUT_OF_MEMORY -> "OutOfMemory".
std::string ReasonName(v1::Failure::Reason reason);

// Returns "server" or "worker".
std::string RoleName(v1::Role role);

// Returns the message as JSON on several lines, with every field and keys in lowerCamelCase.
std::string ToJson(const google::protobuf::Message& message);
// The same on a single line, with its end.
std::string ToJsonLine(const google::protobuf::Message& message);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_VIEW_TEXT_FORMAT_H_
