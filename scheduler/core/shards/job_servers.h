// JobServers: the servers that can hold a job: which of them live, what their logs hold, and which
// may be given shards.
//
//   unknown --Set--> LIVES --draining, or tasks cannot reach it (avoided)--> to be left
//                      \--Died--> unknown      \--Failed--> dead to the job in this incarnation
//
// The members are the servers of the job: those that hold it, and as many more as make the number
// that it asks for. The good ones are members that live, are not to be left, and whose logs are not
// awaited.
// Called by ShardMap. Thread safety: thread-compatible.
// Invariant: a server that has failed does not live.
#ifndef CAPSTAN_SCHEDULER_CORE_SHARDS_JOB_SERVERS_H_
#define CAPSTAN_SCHEDULER_CORE_SHARDS_JOB_SERVERS_H_

#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/types/ids.h"
#include "scheduler/core/messages/loaded_check.h"
#include "scheduler/core/messages/messages.h"

namespace capstan::scheduler {

class JobServers {
 public:
  // The end of a shard in a log.
  struct LogEnd {
    Term term;
    Position position;
    Incarnation incarnation;  // The incarnation of the server that had all of the shard last.
    bool ReachesBeyond(const LogEnd& other) const {
      return std::pair(term, position) > std::pair(other.term, other.position);
    }
    template <typename Archive>
    void serialize(Archive& archive) {
      archive(term, position, incarnation);
    }
  };
  // A server that lives.
  struct Server {
    ServerRef ref;
    bool draining = false;
    Generation applied;                 // The newest routing table that it has applied.
    std::map<ShardKey, LogEnd> stored;  // The job's shards in the server's logs.
    template <typename Archive>
    void serialize(Archive& archive) {
      archive(ref, draining, applied, stored);
    }
  };

  // ---- facts. Those that return bool say whether they changed anything.
  bool Set(const ServerRef& server, bool draining);
  void AddMember(const NodeId& server) { members_.insert(server); }
  // Sets the content of a live server's logs. Entries of other jobs are ignored, also those of a
  // job that had this job's id in another cluster, or before the store was lost. False: it does not
  // live.
  bool SetStored(const NodeId& server, const JobId& job, const std::string& unique_id,
                 absl::Span<const StoredShard> stored);
  void Died(const NodeId& server);
  void SetFailed(const ServerRef& server);  // It lives, and counts as dead. REQUIRES: Died.
  bool SetAvoided(const std::set<NodeId>& servers);
  // A live server has applied that table. False: the table is not newer, or the server does not
  // live.
  bool NoteApplied(const NodeId& server, Generation table);
  void Clear();  // All known servers are gone.

  // Chooses the members and the good ones. `servers`: how many are to hold the job; 0: all.
  // `needed`: how many its copies need at least. `awaited`: servers whose logs may be needed, so
  // that they get no shards.
  void Choose(int servers, int needed, const std::set<NodeId>& awaited);

  // ---- views
  const Server* Find(const NodeId& server) const;  // Null: it does not live.
  const Server& at(const NodeId& server) const { return servers_.at(server); }
  bool Lives(const ServerRef& server) const;    // This incarnation of it.
  bool IsToBeLeft(const NodeId& server) const;  // It lives, and is drained or avoided.
  bool HasFailed(const NodeId& server) const { return failed_.contains(server); }
  bool HasAnother(const NodeId& than) const;  // A live one that is not to be left.
  // Another good one could take what is on it, as of the last Choose.
  bool CanMoveFrom(const NodeId& server) const { return good_.size() > (IsGood(server) ? 1 : 0); }
  bool AllDrained() const;  // Also if none lives.
  bool IsGood(const NodeId& server) const { return good_.contains(server); }
  const std::set<NodeId>& good() const { return good_; }

  // ---- durable state
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(servers_, members_, failed_);
  }
  // Checks what was loaded. Errors: kDataLoss  a server is under the name of another one.
  absl::Status Check() const;

 private:
  std::map<NodeId, Server> servers_;      // Live ones.
  std::set<NodeId> members_;              // They hold the job or may be given shards of it.
  std::map<NodeId, Incarnation> failed_;  // Live ones that count as dead.
  std::set<NodeId> avoided_;              // Tasks cannot reach them. Not durable.
  std::set<NodeId> good_;                 // The good ones of the last Choose. Not durable.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_SHARDS_JOB_SERVERS_H_
