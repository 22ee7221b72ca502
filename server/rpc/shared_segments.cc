#include "server/rpc/shared_segments.h"

#include <random>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace capstan::server {
namespace {

// Draws from the system's source of randomness, so that nobody can guess a name.
uint64_t DrawName() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

absl::StatusOr<v1::ShareMemoryResponse> SharedSegments::Open(const v1::ShareMemoryRequest& request,
                                                             std::optional<SegmentOwner> owner) {
  CAPSTAN_ASSIGN_OR_RETURN(std::shared_ptr<SharedSegment> segment,
                           SharedSegment::Open({.process = request.process(),
                                                .descriptor = request.file_descriptor(),
                                                .bytes = request.bytes(),
                                                .challenge = request.challenge()}));
  v1::ShareMemoryResponse response;
  response.set_proof(segment->proof());
  absl::MutexLock lock(&mutex_);
  if (segments_.size() >= kSegmentsMax) {
    return absl::ResourceExhaustedError(absl::StrCat("shared memory: ", segments_.size(),
                                                     " segments are open: expected fewer than ",
                                                     kSegmentsMax));
  }
  uint64_t name = 0;
  while (name == 0 || segments_.contains(name)) name = DrawName();
  segments_[name] = {.segment = std::move(segment), .owner = std::move(owner)};
  response.set_segment(name);
  return response;
}

void SharedSegments::Close(uint64_t name) {
  std::shared_ptr<SharedSegment> closed;  // It is unmapped after the lock is released.
  absl::MutexLock lock(&mutex_);
  const auto it = segments_.find(name);
  if (it == segments_.end()) return;
  closed = std::move(it->second.segment);
  segments_.erase(it);
}

absl::StatusOr<std::shared_ptr<SharedSegment>> SharedSegments::Find(
    uint64_t name, const v1::Caller& caller) const {
  if (name == 0) return nullptr;
  absl::MutexLock lock(&mutex_);
  const auto it = segments_.find(name);
  if (it == segments_.end()) {
    return absl::UnavailableError(absl::StrCat("shared memory: segment ", absl::Hex(name),
                                               " is not open here; offer it again"));
  }
  const std::optional<SegmentOwner>& owner = it->second.owner;
  if (!owner.has_value() ||
      (owner->job == caller.job_id() && owner->rank.value() == caller.rank() &&
       owner->incarnation.value() == caller.incarnation())) {
    return it->second.segment;
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "shared memory: the segment is of the job \"", owner->job, "\", rank ", owner->rank.value(),
      ", incarnation ", owner->incarnation.value(), ", expected the caller's: \"", caller.job_id(),
      "\", ", caller.rank(), ", ", caller.incarnation()));
}

size_t SharedSegments::size() const {
  absl::MutexLock lock(&mutex_);
  return segments_.size();
}

}  // namespace capstan::server
