#include "tests/simulation/reached.h"

namespace capstan::sim {

absl::string_view ReachedName(Reached reached) {
  static constexpr std::array<absl::string_view, kReachedCount> kNames = {
      "a push was sent again",
      "a repeated push was answered from the record",
      "a pull was answered 'not ready'",
      "a pull was answered 'past'",
      "a reader read from a primary",
      "a caller was fenced off",
      "a stale routing table was refused",
      "a server did not know a list of keys",
      "a damaged frame ended its connection",
      "a damaged record or install was refused",
      "a row that was kept was used",
      "rows that were kept were dropped, and pulled again",
      "a task prepared or exported for longer than it may stand still",
      "a task was replaced",
      "a task's crash was counted",
      "a worker daemon died",
      "a server died",
      "a server died while the model was moved",
      "a daemon began a new life",
      "samples were leased again",
      "a replica was promoted",
      "a replica was being filled",
      "a job waited for its servers",
      "two copies of a shard were compared",
      "a bucket had refused a key a row",
      "a bucket had evicted a row",
      "a row was read from disk",
      "a push came while a pull read rows from disk",
      "a checkpoint was completed",
      "a checkpoint was abandoned",
      "a user was told of a checkpoint, which verified",
      "a checkpoint's part was compared with what was captured",
      "a reader opened a snapshot",
      "a reader read from a snapshot",
      "a snapshot ended under its reader",
      "a job went back to a checkpoint",
      "a checkpoint had what changed since another one",
      "a job went back to one that had",
      "a job began anew: it had not trained",
      "a model was left to its writer to be moved",
      "its writer moved it",
      "a server failed to one job",
      "a server's log failed",
      "a scheduler went on from its store",
      "a scheduler died with a step not yet durable",
      "a job failed for a lost server",
      "a job was stopped",
      "a job succeeded",
  };
  return kNames[static_cast<size_t>(reached)];
}

}  // namespace capstan::sim
