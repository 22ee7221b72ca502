#include "server/core/snapshot_leases.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/time/duration_text.h"

namespace capstan::server {

absl::Status SnapshotLeases::Open(CheckpointId snapshot, absl::Span<const ReaderId> readers,
                                  Instant now) {
  if (readers.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("snapshot ", snapshot.value(), " has no readers: expected one or more"));
  }
  if (snapshots_.contains(snapshot)) {
    return absl::AlreadyExistsError(absl::StrCat("snapshot ", snapshot.value(), " is there"));
  }
  if (snapshots_.size() >= limits_.snapshots) {
    return absl::ResourceExhaustedError(
        absl::StrCat(snapshots_.size(), " snapshots of the job are open: expected at most ",
                     limits_.snapshots, "; close one"));
  }
  if (readers.size() > limits_.readers) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a snapshot for ", readers.size(), " readers: expected at most ", limits_.readers));
  }
  Readers& leases = snapshots_[snapshot];
  for (const ReaderId reader : readers) leases[reader] = now + limits_.lease;
  return absl::OkStatus();
}

absl::Status SnapshotLeases::Renew(CheckpointId snapshot, ReaderId reader, Instant now) {
  const auto it = snapshots_.find(snapshot);
  if (it == snapshots_.end() || !it->second.contains(reader)) {
    return absl::NotFoundError(absl::StrCat(
        "snapshot ", snapshot.value(), " is not kept here for this reader: it was closed, not read",
        " for ", DurationText(limits_.lease), ", or the server holds the job anew; open another"));
  }
  it->second[reader] = now + limits_.lease;
  return absl::OkStatus();
}

void SnapshotLeases::Close(CheckpointId snapshot, ReaderId reader) {
  const auto it = snapshots_.find(snapshot);
  if (it != snapshots_.end()) it->second.erase(reader);
}

std::vector<CheckpointId> SnapshotLeases::TakeEnded(Instant now) {
  std::vector<CheckpointId> ended;
  for (auto it = snapshots_.begin(); it != snapshots_.end();) {
    Readers& readers = it->second;
    for (auto reader = readers.begin(); reader != readers.end();) {
      reader = reader->second <= now ? readers.erase(reader) : std::next(reader);
    }
    if (!readers.empty()) {
      ++it;
      continue;
    }
    ended.push_back(it->first);
    it = snapshots_.erase(it);
  }
  return ended;
}

Instant SnapshotLeases::NextDeadline() const {
  Instant next = Instant::InfiniteFuture();
  for (const auto& [snapshot, readers] : snapshots_) {
    Instant last;  // A snapshot ends with its last reader.
    for (const auto& [reader, until] : readers) last = std::max(last, until);
    next = std::min(next, last);
  }
  return next;
}

}  // namespace capstan::server
