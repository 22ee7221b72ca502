// TraceHash: one number for everything that happened in a run, in order. Two runs of a seed have
// the same hash, or something in them was not deterministic. In verbose runs it prints the
// events, too.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_NETWORK_TRACE_HASH_H_
#define CAPSTAN_TESTS_SIMULATION_NETWORK_TRACE_HASH_H_

#include <cstdint>
#include <initializer_list>

#include "absl/strings/string_view.h"
#include "tests/simulation/network/event_loop.h"

namespace capstan::sim {

class TraceHash {
 public:
  TraceHash(const EventLoop* loop, bool verbose) : loop_(loop), verbose_(verbose) {}

  void Add(uint64_t word);
  void Add(absl::string_view text);
  // An event: its time and `words` go into the hash.
  void Event(std::initializer_list<uint64_t> words);
  // An event worth printing: its text goes into the hash, and to standard output if verbose.
  void Narrate(absl::string_view text);

  bool verbose() const { return verbose_; }
  uint64_t value() const { return hash_; }

 private:
  const EventLoop* const loop_;
  const bool verbose_;
  uint64_t hash_ = 0x6361707374616E;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_NETWORK_TRACE_HASH_H_
