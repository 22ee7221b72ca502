// Links between two hosts that live.
#include "absl/strings/str_cat.h"
#include "tests/simulation/nemesis/nemesis.h"

namespace capstan::sim {

// The link stays dead: Heal does not mend it.
void Nemesis::KillLink() {
  const auto server = static_cast<int>(aimed_prng_.Between(1, world_->options.servers));
  const auto daemon = static_cast<int>(aimed_prng_.Between(1, world_->options.workers));
  const int worker = world_->options.servers + daemon;
  ++world_->faults[Fault::kLinkKilled];
  Narrate(absl::StrCat("kills the link between hosts ", server, " and ", worker));
  world_->dead_links.insert({absl::StrCat("server-", server), absl::StrCat("worker-", daemon)});
  world_->network.Cut(server, worker);
  world_->network.Cut(worker, server);
}

}  // namespace capstan::sim
