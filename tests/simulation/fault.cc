#include "tests/simulation/fault.h"

namespace capstan::sim {

absl::string_view FaultName(Fault fault) {
  static constexpr std::array<absl::string_view, kFaults> kNames = {
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
      "all processes killed",
      "scheduler isolated, and alive",
      "primary and reader cut off together",
      "tasks beyond a moment, and dead before they told",
      "task replaced while others were not heard",
      "link between a worker and a server dead for good",
      "clock that stood still",
      "group of writes that took seconds",
      "restart with a disk that it had before",
      "node drained",
      "drained node stopped for good, its disk with it",
      "checkpoint asked for",
      "job stopped",
  };
  return kNames[static_cast<size_t>(fault)];
}

}  // namespace capstan::sim
