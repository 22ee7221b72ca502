// StoreRevision as protobuf and back. Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_WIRE_STORE_REVISION_CODEC_H_
#define CAPSTAN_COMMON_WIRE_STORE_REVISION_CODEC_H_

#include "common/types/store_revision.h"
#include "proto/scheduler.pb.h"

namespace capstan {

inline StoreRevision DecodeRevision(const v1::StoreRevision& revision) {
  return {.scheduler = revision.scheduler(), .count = revision.count()};
}

inline void EncodeRevision(const StoreRevision& revision, v1::StoreRevision& out) {
  out.set_scheduler(revision.scheduler);
  out.set_count(revision.count);
}

}  // namespace capstan

#endif  // CAPSTAN_COMMON_WIRE_STORE_REVISION_CODEC_H_
