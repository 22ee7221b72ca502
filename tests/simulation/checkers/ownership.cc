#include "tests/simulation/checkers/ownership.h"

#include "absl/strings/str_cat.h"

namespace capstan::sim {

void Ownership::RoutingSent(const scheduler::Routing& routing) {
  abandoned_ = {};
  const auto [known, added] = known_.routings.try_emplace(routing.generation, routing);
  if (!added) {
    if (!(known->second == routing)) {
      Fail(
          absl::StrCat("ownership: two routing tables of generation ", routing.generation.value()));
    }
    return;
  }
  for (const scheduler::ShardRoute& route : routing.shards) {
    Shard& shard = known_.shards[route.key];
    const scheduler::ServerRef& server = routing.servers[static_cast<size_t>(route.server)];
    const Owner owner{server.node, server.incarnation};
    const auto [before, first] = shard.owners.try_emplace(route.term, owner);
    if (!first && !(before->second == owner)) {
      Fail(absl::StrCat("ownership: term ", route.term.value(), " of ", NameOf(route.key),
                        " belongs to ", before->second.node, " and to ", owner.node));
    }
    shard.terms[routing.generation] = route.term;
  }
}

void Ownership::PushAnswered(const std::string& server, const v1::PushRequest& request,
                             const v1::PushResponse& response) {
  const Generation generation(request.caller().routing_generation());
  for (int i = 0; i < response.shards_size(); ++i) {
    if (response.shards(i).outcome() != v1::ShardPushResult::RECORDED) continue;
    const ShardKey key{TableId(request.shards(i).table()), ShardId(request.shards(i).shard())};
    const Owner* const owner = OwnerOf(known_, key, generation);
    const Owner* const before = OwnerOf(abandoned_, key, generation);
    if (owner == nullptr && before == nullptr) {
      Fail(absl::StrCat("ownership: ", server, " took a push by routing generation ",
                        generation.value(), ", which the scheduler has not sent"));
      continue;
    }
    const auto is_server = [&server](const Owner* o) { return o != nullptr && o->node == server; };
    if (!is_server(owner) && !is_server(before)) {
      Fail(absl::StrCat("ownership: ", server, " took a push by routing generation ",
                        generation.value(), ", whose owner is ",
                        (owner != nullptr ? owner : before)->node));
    }
  }
}

const Ownership::Owner* Ownership::OwnerOf(const Known& known, const ShardKey& key,
                                           Generation generation) {
  const auto shard = known.shards.find(key);
  if (shard == known.shards.end()) return nullptr;
  const auto term = shard->second.terms.find(generation);
  return term == shard->second.terms.end() ? nullptr : &shard->second.owners.at(term->second);
}

void Ownership::StorePutBack() {
  abandoned_ = std::move(known_);
  known_ = copied_;
}

}  // namespace capstan::sim
