// RecordSink: where a job with a log hands every change of its shards; the write-ahead log in the
// daemon, a simulated one in tests.
//
// For each shard it gets first a Begin, then records of the same term without gaps. A later Begin
// replaces all that it has of the shard (a new copy, or a snapshot that lets the records before it
// be forgotten). Where it has all that a new primary holds, a Continue begins the term. When
// everything up to a position of a term is durable it tells HeldJobs::OnLogged, from a thread of
// its own and in any order; once the disk fails, HeldJobs::OnLogFailed.
// Thread safety: thread-safe. All calls return at once (they queue) and never call back before they
// have returned: a HeldJob makes them under its mutex.
#ifndef CAPSTAN_SERVER_ENGINE_RECORD_SINK_H_
#define CAPSTAN_SERVER_ENGINE_RECORD_SINK_H_

#include <cstddef>
#include <memory>
#include <string>

#include "common/types/ids.h"
#include "common/types/store_revision.h"
#include "proto/parameter_server.pb.h"
#include "server/store/tables/captured_shard.h"

namespace capstan::server {

// A job's unique id becomes part of a folder's name. Empty: of a job that has none, in tests.
inline constexpr size_t kUniqueIdBytesMax = 64;
inline bool IsUniqueId(const std::string& id) {
  return id.size() <= kUniqueIdBytesMax && id.find_first_not_of("0123456789abcdef-") == id.npos;
}

class RecordSink {
 public:
  virtual ~RecordSink() = default;

  // This incarnation of the server writes from now on.
  virtual void BeginIncarnation(Incarnation /*incarnation*/) {}
  // What follows is written by somebody who has heard of this revision: a scheduler that does not
  // know it goes on from an older copy of its store.
  virtual void Heard(const StoreRevision& /*revision*/) {}
  // What follows of the job is of the one with this unique id (proto/scheduler.proto). One that
  // keeps logs longer than jobs live must not take another's log for this one's.
  virtual void Identify(const JobId& /*job*/, const std::string& /*unique_id*/) {}
  // What the scheduler has said last of where the job stands (TableAssignment.record): it is
  // durable before anything that follows.
  virtual void KeepRecord(const JobId& /*job*/, const std::string& /*record*/) {}
  // The shard's state at snapshot->position() of `term`, and the rows of a bucket, which are read
  // when their turn comes. If that is kAborted the shard is held no more, or was made anew: what
  // comes of it up to the next Begin or Forget counts no more.
  virtual void Begin(const JobId& job, const ShardKey& shard, Term term,
                     std::shared_ptr<const v1::ShardSnapshot> snapshot,
                     std::shared_ptr<CapturedRows> rows) = 0;
  // The change that leads to record->position(). Shared with messages to replicas.
  virtual void Append(const JobId& job, const ShardKey& shard, Term term,
                      std::shared_ptr<const v1::ShardRecord> record) = 0;
  // What it has of the shard up to `position` is what the shard begins a later term with. What it
  // has behind that, which was never called durable to anybody, counts no more.
  virtual void Continue(const JobId& job, const ShardKey& shard, Term term, Position position) = 0;
  // This server is to hold the shard, or any of the job's shards, no more.
  virtual void Forget(const JobId& job, const ShardKey& shard) = 0;
  virtual void ForgetJob(const JobId& job) = 0;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_RECORD_SINK_H_
