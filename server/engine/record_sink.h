// RecordSink: receives every change of the shards of jobs with a log; it is the write-ahead log in
// the daemon, a simulated one in tests.
//
// For each shard it gets first a Begin, then records of the same term without gaps. A later Begin
// replaces all that it has of the shard (a new copy, or a snapshot that lets the records before it
// be forgotten). Where it has all that a new primary holds, a Continue begins the term. When
// everything up to a position of a term is durable it calls HeldJobs::OnLogged, from a thread of
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

// A job's unique id becomes part of a folder's name. Empty: the job has none, in tests.
inline constexpr size_t kUniqueIdBytesMax = 64;
inline bool IsUniqueId(const std::string& id) {
  return id.size() <= kUniqueIdBytesMax && id.find_first_not_of("0123456789abcdef-") == id.npos;
}

class RecordSink {
 public:
  virtual ~RecordSink() = default;

  // This incarnation of the server writes from now on.
  virtual void BeginIncarnation(Incarnation /*incarnation*/) {}
  // The server has heard of this revision of the scheduler's store before the calls that follow: a
  // scheduler that does not know it continues from an older copy of the store.
  virtual void Heard(const StoreRevision& /*revision*/) {}
  // Later calls for the job are about the one with this unique id (proto/scheduler.proto). A sink
  // that keeps logs longer than jobs live must not take another job's log for this one's.
  virtual void Identify(const JobId& /*job*/, const std::string& /*unique_id*/) {}
  // The scheduler's newest record of where the job stands (TableAssignment.record). The sink writes
  // it durably before it writes anything that follows. If that fails, the sink logs it and goes on.
  virtual void KeepRecord(const JobId& /*job*/, const std::string& /*record*/) {}
  // The shard's state at snapshot->position() of `term`, and the rows of a bucket, which are read
  // when their turn comes. If reading returns kAborted, the shard is no longer held, or was made
  // anew: calls for it up to the next Begin or Forget have no effect.
  virtual void Begin(const JobId& job, const ShardKey& shard, Term term,
                     std::shared_ptr<const v1::ShardSnapshot> snapshot,
                     std::shared_ptr<CapturedRows> rows) = 0;
  // The change that leads to record->position(). Shared with messages to replicas.
  virtual void Append(const JobId& job, const ShardKey& shard, Term term,
                      std::shared_ptr<const v1::ShardRecord> record) = 0;
  // The shard begins a later term, `term`, with what the sink has of it up to `position`. Records
  // behind that, which were never reported as durable, are discarded.
  virtual void Continue(const JobId& job, const ShardKey& shard, Term term, Position position) = 0;
  // This server is no longer to hold the shard, or any shard of the job.
  virtual void Forget(const JobId& job, const ShardKey& shard) = 0;
  virtual void ForgetJob(const JobId& job) = 0;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_RECORD_SINK_H_
