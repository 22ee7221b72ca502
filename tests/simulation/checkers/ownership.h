// Ownership: a shard has one owner a term, of the scheduler's making, and only the owner of a
// push's term acknowledges it.
//
// Only answers that leave a server count: acknowledgements of pushes that were recorded. An owner
// that was deposed may still acknowledge a push that every counted replica had before; the ledger
// and the reference bits check that such a push is not lost. After the scheduler's store was put
// back, processes that cannot have heard of the new decisions still follow the abandoned ones.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_CHECKERS_OWNERSHIP_H_
#define CAPSTAN_TESTS_SIMULATION_CHECKERS_OWNERSHIP_H_

#include <map>
#include <string>

#include "tests/simulation/world/checker.h"

namespace capstan::sim {

class Ownership final : public Checker {
 public:
  void RoutingSent(const scheduler::Routing& routing) override;
  void PushAnswered(const std::string& server, const v1::PushRequest& request,
                    const v1::PushResponse& response) override;
  void StoreCopied() override { copied_ = known_; }
  void StorePutBack() override;

 private:
  struct Owner {
    NodeId node;
    Incarnation incarnation;
    friend bool operator==(const Owner&, const Owner&) = default;
  };
  struct Shard {
    std::map<Term, Owner> owners;
    std::map<Generation, Term> terms;
  };

  struct Known {
    std::map<Generation, scheduler::Routing> routings;
    std::map<ShardKey, Shard> shards;
  };

  // Null: not of this course of the world.
  static const Owner* OwnerOf(const Known& known, const ShardKey& key, Generation generation);

  Known known_;
  Known copied_;  // The state when the scheduler's store was copied.
  // The state when the store was put back: servers and tasks go on by it until the scheduler that
  // knows less sends its first table.
  Known abandoned_;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_CHECKERS_OWNERSHIP_H_
