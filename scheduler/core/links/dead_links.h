// DeadLinks: which worker daemons cannot reach which servers of a job, by what its tasks report.
// Both ends live and the scheduler reaches both, so no lease runs out.
//
//   HEARD --a report names the server--> SILENT --for `limit`--> overdue --Judge--> JUDGED
//     ^ <---a report does not--------------/                                          |
//     ^ <-------------------------------------------------for `memory`, or until one of them died
//
// Judged links are avoided: tasks are not placed on the worker, or shards not on the server. If no
// other server is left, avoided servers are tried again (ForgetAvoidedServers).
// Nothing of this is durable: a restarted scheduler finds out again.
// Called by TaskWatch. Pure. Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_CORE_LINKS_DEAD_LINKS_H_
#define CAPSTAN_SCHEDULER_CORE_LINKS_DEAD_LINKS_H_

#include <compare>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/time/instant.h"
#include "common/types/ids.h"

namespace capstan::scheduler {

class DeadLinks {
 public:
  struct Options {
    absl::Duration limit =
        absl::Seconds(10);  // Longer than a lease, so that a dead node is known by then.
    absl::Duration memory = absl::Minutes(10);
  };
  struct Link {
    NodeId worker;
    NodeId server;
    friend auto operator<=>(const Link&, const Link&) = default;
  };
  struct Silence {
    Rank rank;
    Link link;
    Instant since;
  };
  enum class Avoid { kWorker, kServer, kBoth };

  explicit DeadLinks(const Options& options) : options_(options) {}

  // Accepts the newest report of the task on `worker`. `silent`: the servers that do not answer it.
  void OnReport(Rank rank, const NodeId& worker, absl::Span<const NodeId> silent, Instant now);
  void OnTaskEnded(Rank rank) { silences_.erase(rank); }
  void OnNodeDied(const NodeId& node);  // Its next incarnation has other links.
  void RestartLimits(Instant now);      // Every silence begins now.
  void Expire(Instant now);             // Forgets judgements that are too old.
  // Forgets the judgements that make servers avoided and that no task's newest report confirms.
  // True: there were any.
  bool ForgetAvoidedServers();

  // Returns the silences that have lasted for `limit`.
  std::vector<Silence> Overdue(Instant now) const;
  bool IsSilent(Rank rank, const NodeId& server) const;
  // Nothing can be done about this silence now, so it begins anew.
  void Excuse(Rank rank, const NodeId& server, Instant now);
  void Judge(const Link& link, Avoid avoid, Instant now);
  std::optional<Avoid> JudgementOf(const Link& link) const;
  // Returns the silent server because of which the task's worker is to be avoided. Empty: none.
  NodeId StrandedFrom(Rank rank) const;

  std::set<NodeId> AvoidedWorkers() const;
  std::set<NodeId> AvoidedServers() const;
  std::string Describe() const;  // "worker-1 cannot reach server-2", or nothing.
  Instant NextDeadline() const;  // When Overdue or Expire has a result.

 private:
  struct Judgement {
    Avoid avoid = Avoid::kWorker;
    Instant until;
  };

  const Options options_;
  // The worker of each rank, and since when servers do not answer it.
  std::map<Rank, std::pair<NodeId, std::map<NodeId, Instant>>> silences_;
  std::map<Link, Judgement> judged_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_LINKS_DEAD_LINKS_H_
