#include "scheduler/held_ties.h"

#include <grpcpp/support/server_callback.h>

#include <catch2/catch.hpp>
#include <vector>

namespace capstan::scheduler {
namespace {

struct Reactor final : grpc::ServerUnaryReactor {
  void OnDone() override {}
};

TEST_CASE("Held ties: another tie of a node replaces its tie", "[scheduler]") {
  HeldTies ties;
  Reactor first;
  Reactor second;
  CHECK(ties.Add("server-1", {Ticket(1), Incarnation(5), &first}) == nullptr);
  CHECK(ties.Add("server-1", {Ticket(2), Incarnation(5), &second}) == &first);
  CHECK(ties.TakeCut("server-1", Ticket(1)) == nullptr);  // The cut of a tie that was replaced.
  CHECK(ties.TakeCut("server-1", Ticket(2)) == &second);
  CHECK(ties.TakeCut("server-1", Ticket(2)) == nullptr);
}

TEST_CASE("Held ties: a tie ends with its own incarnation of the node", "[scheduler]") {
  HeldTies ties;
  Reactor reactor;
  ties.Add("server-1", {Ticket(1), Incarnation(6), &reactor});
  CHECK(ties.TakeEnded("server-1", Incarnation(5)) == nullptr);
  CHECK(ties.TakeEnded("server-2", Incarnation(6)) == nullptr);
  CHECK(ties.TakeEnded("server-1", Incarnation(6)) == &reactor);
  CHECK(ties.TakeEnded("server-1", Incarnation(6)) == nullptr);
}

TEST_CASE("Held ties: all are taken once", "[scheduler]") {
  HeldTies ties;
  Reactor server;
  Reactor worker;
  ties.Add("worker-1", {Ticket(1), Incarnation(1), &worker});
  ties.Add("server-1", {Ticket(2), Incarnation(2), &server});
  CHECK(ties.TakeAll() == std::vector<grpc::ServerUnaryReactor*>{&server, &worker});
  CHECK(ties.TakeAll().empty());
  CHECK(ties.TakeEnded("worker-1", Incarnation(1)) == nullptr);
}

}  // namespace
}  // namespace capstan::scheduler
