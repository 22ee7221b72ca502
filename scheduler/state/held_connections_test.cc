#include "scheduler/state/held_connections.h"

#include <grpcpp/support/server_callback.h>

#include <catch2/catch.hpp>
#include <vector>

namespace capstan::scheduler::held_connections_test {
namespace {

struct Reactor final : grpc::ServerUnaryReactor {
  void OnDone() override {}
};

TEST_CASE("Held connections: another connection of a node replaces its connection", "[scheduler]") {
  HeldConnections connections;
  Reactor first;
  Reactor second;
  CHECK(connections.Add("server-1", {Ticket(1), Incarnation(5), &first}) == nullptr);
  CHECK(connections.Add("server-1", {Ticket(2), Incarnation(5), &second}) == &first);
  // The cut of a connection that was replaced.
  CHECK(connections.TakeCut("server-1", Ticket(1)) == nullptr);
  CHECK(connections.TakeCut("server-1", Ticket(2)) == &second);
  CHECK(connections.TakeCut("server-1", Ticket(2)) == nullptr);
}

TEST_CASE("Held connections: a connection ends with its own incarnation of the node",
          "[scheduler]") {
  HeldConnections connections;
  Reactor reactor;
  connections.Add("server-1", {Ticket(1), Incarnation(6), &reactor});
  CHECK(connections.TakeEnded("server-1", Incarnation(5)) == nullptr);
  CHECK(connections.TakeEnded("server-2", Incarnation(6)) == nullptr);
  CHECK(connections.TakeEnded("server-1", Incarnation(6)) == &reactor);
  CHECK(connections.TakeEnded("server-1", Incarnation(6)) == nullptr);
}

TEST_CASE("Held connections: all are taken once", "[scheduler]") {
  HeldConnections connections;
  Reactor server;
  Reactor worker;
  connections.Add("worker-1", {Ticket(1), Incarnation(1), &worker});
  connections.Add("server-1", {Ticket(2), Incarnation(2), &server});
  CHECK(connections.TakeAll() == std::vector<grpc::ServerUnaryReactor*>{&server, &worker});
  CHECK(connections.TakeAll().empty());
  CHECK(connections.TakeEnded("worker-1", Incarnation(1)) == nullptr);
}

}  // namespace
}  // namespace capstan::scheduler::held_connections_test
