#include "common/net/gate/call_counts.h"

#include <cstddef>
#include <string>

namespace capstan {
namespace {

constexpr int kCountsMax = 400;  // More than there are methods and outcomes.
constexpr size_t kNameBytesMax = 128;

}  // namespace

void EncodeCallCounts(const AuditLog& audit, CallCounts& out) {
  for (const CallCount& count : audit.Counts()) {
    v1::CallCount& encoded = *out.Add();
    encoded.set_method(std::string(count.method));
    encoded.set_outcome(std::string(CallOutcomeName(count.outcome)));
    encoded.set_calls(count.calls);
  }
}

CallCounts CutCallCounts(const CallCounts& told) {
  CallCounts kept;
  for (const v1::CallCount& count : told) {
    if (kept.size() == kCountsMax) break;
    if (count.method().size() > kNameBytesMax || count.outcome().size() > kNameBytesMax) continue;
    *kept.Add() = count;
  }
  return kept;
}

}  // namespace capstan
