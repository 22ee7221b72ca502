// DeadLinks: which worker daemons cannot reach which servers of a job, by what its tasks report.
// Both ends live and the scheduler reaches both, so no lease runs out.
//
//   HEARD --a report names the server--> SILENT --for `limit`--> overdue --Judge--> JUDGED
//     ^ <---a report does not--------------/                                          |
//     ^ <-------------------------------------------------for `memory`, or until one of them died
//
// Judged links are avoided: tasks are not placed on the worker, or shards not on the server. Where
// no other server is left they are tried again (ForgetAvoidedServers).
// Nothing of this is durable: a restarted scheduler finds out again.
// Pure. Thread safety: thread-compatible.
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
        absl::Seconds(10);  // Longer than a lease: whoever died is known by then.
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

  // The newest report of the task that runs on `worker`: servers that do not answer it.
  void OnReport(Rank rank, const NodeId& worker, absl::Span<const NodeId> silent, Instant now);
  void OnTaskEnded(Rank rank) { silences_.erase(rank); }
  void OnNodeDied(const NodeId& node);  // Its next incarnation has other links.
  void RestartLimits(Instant now);      // Every silence begins now.
  void Expire(Instant now);             // Forgets judgements that are too old.
  // Forgets judgements that servers are avoided for and that no task speaks of now. True: there
  // were any.
  bool ForgetAvoidedServers();

  // Silent for `limit`.
  std::vector<Silence> Overdue(Instant now) const;
  bool IsSilent(Rank rank, const NodeId& server) const;
  // There is nothing to be done about it now: its silence begins anew.
  void Excuse(Rank rank, const NodeId& server, Instant now);
  void Judge(const Link& link, Avoid avoid, Instant now);
  std::optional<Avoid> JudgementOf(const Link& link) const;
  // The server that the task waits for, and that its worker is to be avoided for. Empty: none.
  NodeId StrandedFrom(Rank rank) const;

  std::set<NodeId> AvoidedWorkers() const;
  std::set<NodeId> AvoidedServers() const;
  std::string Describe() const;  // "worker-1 cannot reach server-2", or nothing.
  Instant NextDeadline() const;  // Overdue or Expire has something to say then.

 private:
  struct Judgement {
    Avoid avoid = Avoid::kWorker;
    Instant until;
  };

  const Options options_;
  std::map<Rank, std::pair<NodeId, std::map<NodeId, Instant>>> silences_;
  std::map<Link, Judgement> judged_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_LINKS_DEAD_LINKS_H_
