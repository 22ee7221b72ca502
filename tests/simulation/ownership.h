// Ownership: a shard has one owner a term, and a later term's first acknowledgement is the end of
// all earlier ones.
//
// What counts is what leaves a server: an acknowledged push that was recorded. Thread safety:
// thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_OWNERSHIP_H_
#define CAPSTAN_TESTS_SIMULATION_OWNERSHIP_H_

#include <string>

#include "absl/container/btree_map.h"
#include "tests/simulation/checker.h"

namespace capstan::sim {

class Ownership final : public Checker {
 public:
  void RoutingSent(const scheduler::Routing& routing) override;
  void PushAnswered(const std::string& server, const v1::PushRequest& request,
                    const v1::PushResponse& response) override;

 private:
  struct Owner {
    NodeId node;
    Incarnation incarnation;
    friend bool operator==(const Owner&, const Owner&) = default;
  };
  struct Shard {
    absl::btree_map<Term, Owner> owners;
    absl::btree_map<Generation, Term> terms;
    Term acknowledged;  // The highest in which a push was acknowledged.
  };

  absl::btree_map<Generation, scheduler::Routing> routings_;
  absl::btree_map<ShardKey, Shard> shards_;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_OWNERSHIP_H_
