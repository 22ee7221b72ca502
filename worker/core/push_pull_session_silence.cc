// PushPullSession finds out which servers are silent. A pull may wait at a server for other workers
// as long as they need; so the session asks a server that owes an answer for its routing table,
// which it can send at once.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "worker/core/push_pull_session.h"

namespace capstan::worker {

void PushPullSession::KeepContacts(const Routing& before, Instant now) {
  const std::vector<Contact> old = std::exchange(contacts_, {});
  for (size_t s = 0; s < routing_.servers.size(); ++s) {
    Contact contact{.heard = now};
    for (size_t b = 0; b < before.servers.size(); ++b) {
      if (ProcessOf(before, b) == ProcessOf(routing_, s)) contact = old[b];
    }
    contacts_.push_back(contact);
  }
}

bool PushPullSession::Owes(int server) const {
  return std::any_of(chunks_.begin(), chunks_.end(), [server](const Chunk& chunk) {
    const bool away = chunk.trouble == Trouble::kAway;
    return chunk.server == server && (chunk.pushes + chunk.pulls > 0 || away);
  });
}

void PushPullSession::Probe(Instant now, SessionActions* actions) {
  probe_at_ = ops_.empty() ? Instant::InfiniteFuture() : now + options_.probe_interval;
  for (size_t s = 0; s < contacts_.size(); ++s) {
    Contact& contact = contacts_[s];
    if (!Owes(static_cast<int>(s))) {
      contact.asked.reset();
    } else if (now >= contact.heard + options_.probe_interval) {
      if (!contact.asked) contact.asked = now;
      std::vector<int>& asked = actions->ask_routing;
      if (std::count(asked.begin(), asked.end(), s) == 0) asked.push_back(static_cast<int>(s));
    }
  }
}

void PushPullSession::Heard(const std::string& server, Instant now) {
  const auto found = std::find(routing_.servers.begin(), routing_.servers.end(), server);
  if (found == routing_.servers.end()) return;
  contacts_[static_cast<size_t>(found - routing_.servers.begin())] = {.heard = now};
}

std::vector<std::string> PushPullSession::SilentServers(Instant now) const {
  std::vector<std::string> silent;
  for (size_t s = 0; s < contacts_.size(); ++s) {
    const std::optional<Instant>& asked = contacts_[s].asked;
    if (asked && now >= *asked + options_.silent_after) silent.push_back(routing_.servers[s]);
  }
  return silent;
}

}  // namespace capstan::worker
