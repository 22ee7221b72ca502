#include "server/agent/log_recovery.h"

#include <catch2/catch.hpp>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace capstan::server::log_recovery_test {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);

// A disk and a server as LogRecovery sees them.
struct Server {
  Server()
      : recovery({.probe = [this] { return Probe(); },
                  .need = [this] { return Need(); },
                  .begin_anew = [this] { BeginAnew(); },
                  .pause_min = absl::Milliseconds(1),
                  .pause_max = absl::Milliseconds(4)}) {
    recovery.Start();
  }
  ~Server() { recovery.Stop(); }

  absl::Status Probe() {
    const absl::MutexLock lock(&mutex);
    ++probes;
    return room ? absl::OkStatus() : absl::ResourceExhaustedError("full");
  }
  LogRecovery::Need Need() {
    const absl::MutexLock lock(&mutex);
    ++asked;
    return need;
  }
  void BeginAnew() {
    const absl::MutexLock lock(&mutex);
    ++incarnations;
    need = LogRecovery::Need::kNone;
  }
  void Set(bool has_room, LogRecovery::Need needs) {
    const absl::MutexLock lock(&mutex);
    room = has_room;
    need = needs;
  }
  bool Await(const int& count, int at_least) {
    const absl::MutexLock lock(&mutex);
    const auto reached = [&] { return count >= at_least; };
    return mutex.AwaitWithTimeout(absl::Condition(&reached), kPatience);
  }
  int Incarnations() {
    const absl::MutexLock lock(&mutex);
    return incarnations;
  }

  absl::Mutex mutex;
  bool room = false;
  LogRecovery::Need need = LogRecovery::Need::kNow;
  int probes = 0;
  int asked = 0;
  int incarnations = 0;
  LogRecovery recovery;  // Last: its thread uses all of the above.
};

const absl::Status kFull = absl::ResourceExhaustedError("wal-1: No space left on device");

TEST_CASE("LogRecovery: a new incarnation begins once the disk has room, and not before",
          "[server]") {
  Server server;
  server.recovery.LogFailed(kFull);
  REQUIRE(server.Await(server.probes, 3));
  CHECK(server.Incarnations() == 0);
  server.Set(/*has_room=*/true, LogRecovery::Need::kNow);
  REQUIRE(server.Await(server.incarnations, 1));
}

TEST_CASE("LogRecovery: it waits while jobs live in this process alone", "[server]") {
  Server server;
  server.Set(/*has_room=*/true, LogRecovery::Need::kLater);
  server.recovery.LogFailed(kFull);
  REQUIRE(server.Await(server.probes, 3));
  CHECK(server.Incarnations() == 0);
  server.Set(/*has_room=*/true, LogRecovery::Need::kNow);
  REQUIRE(server.Await(server.incarnations, 1));
}

TEST_CASE("LogRecovery: a disk that is full again leads to another new incarnation", "[server]") {
  Server server;
  server.Set(/*has_room=*/true, LogRecovery::Need::kNow);
  server.recovery.LogFailed(kFull);
  REQUIRE(server.Await(server.incarnations, 1));
  server.Set(/*has_room=*/true, LogRecovery::Need::kNow);
  server.recovery.LogFailed(kFull);
  REQUIRE(server.Await(server.incarnations, 2));
}

TEST_CASE("LogRecovery: nothing is done for failures of another kind, or when no job needs it",
          "[server]") {
  Server server;
  server.Set(/*has_room=*/true, LogRecovery::Need::kNone);
  server.recovery.LogFailed(absl::UnavailableError("wal-1: Input/output error"));
  server.recovery.LogFailed(kFull);  // The one that is looked at.
  REQUIRE(server.Await(server.asked, 1));
  server.recovery.Stop();
  CHECK(server.Incarnations() == 0);
  CHECK(server.probes == 0);
}

}  // namespace
}  // namespace capstan::server::log_recovery_test
