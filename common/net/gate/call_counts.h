// Counts of calls (common/security/audit_log.h) as messages, for `capstan node list`.
//
// Thread safety: functions without state.
#ifndef CAPSTAN_COMMON_NET_GATE_CALL_COUNTS_H_
#define CAPSTAN_COMMON_NET_GATE_CALL_COUNTS_H_

#include <google/protobuf/repeated_field.h>

#include "common/security/audit_log.h"
#include "proto/nodes.pb.h"

namespace capstan {

using CallCounts = google::protobuf::RepeatedPtrField<v1::CallCount>;

// Appends all counts of a daemon to `*out`.
void EncodeCallCounts(const AuditLog& audit, CallCounts& out);

// Copies the counts that a node has reported: none with too long a name, and no more than are kept
// of one peer.
CallCounts CutCallCounts(const CallCounts& told);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_GATE_CALL_COUNTS_H_
