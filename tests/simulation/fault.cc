#include "tests/simulation/fault.h"

#include <array>

namespace capstan::sim {

absl::string_view FaultName(Fault fault) {
  static constexpr auto kNames = std::to_array<absl::string_view>({
      "message lost",
      "message delayed",
      "message doubled",
      "message overtaken",
      "message corrupted",
      "connection reset in mid-message",
      "bit flipped on the way",
      "lost call with a status of the transport's",
      "partition, one way",
      "partition, two ways",
      "clog, then burst",
      "scheduler killed",
      "server killed",
      "worker daemon killed",
      "task killed",
      "scheduler paused",
      "server paused",
      "worker daemon paused",
      "task paused",
      "restart with its disk",
      "restart without its disk",
      "kill during recovery",
      "primary and new primary killed in turn",
      "clock jump",
      "clock drift",
      "disk full",
      "disk read error",
      "disk write error",
      "failing fsync",
      "torn write",
      "sector lost before one that was kept",
      "lying fsync",
      "bit flip on disk",
      "disk of rows full, unreadable or damaged",
      "all processes killed",
      "scheduler isolated, and alive",
      "primary and reader cut off together",
      "tasks beyond a moment, and dead before they told",
      "tasks dead as a shard came one iteration beyond a moment",
      "primary and reader cut off together as it was replaced",
      "task replaced while others were not heard",
      "link between a worker and a server dead for good",
      "clock that stood still",
      "group of writes that took seconds",
      "restart with a disk that it had before",
      "node drained",
      "drained node stopped for good, its disk with it",
      "worker daemon told to stop",
      "server told to stop, and safe to",
      "server told to stop, and gone when its grace was over",
      "checkpoint asked for",
      "job stopped",
      "transaction of the scheduler's store failed",
      "failed transaction that was durable all the same",
      "scheduler's store put back from a copy",
      "checkpoint disk full, or failing a write, read or sync",
      "bit of a stored checkpoint flipped",
      "checkpoint disk's power cut",
      "all servers killed while the model is moved",
      "task dead before a server that has its push heard of it",
  });
  static_assert(kNames.size() == kFaults);
  return kNames[static_cast<size_t>(fault)];
}

}  // namespace capstan::sim
