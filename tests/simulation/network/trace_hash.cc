#include "tests/simulation/network/trace_hash.h"

#include <cstdio>

#include "absl/time/time.h"
#include "common/random/philox.h"

namespace capstan::sim {

void TraceHash::Add(uint64_t word) { hash_ = MixKey(hash_, word); }

void TraceHash::Add(absl::string_view text) {
  uint64_t hash = 0xCBF29CE484222325;  // FNV-1a.
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  Add(hash);
}

void TraceHash::Event(std::initializer_list<uint64_t> words) {
  Add(static_cast<uint64_t>(absl::ToInt64Nanoseconds(loop_->Now().SinceOrigin())));
  for (const uint64_t word : words) Add(word);
}

void TraceHash::Narrate(absl::string_view text) {
  Event({});
  Add(text);
  if (!verbose_) return;
  std::printf("%12.6f  %.*s\n", absl::ToDoubleSeconds(loop_->Now().SinceOrigin()),
              static_cast<int>(text.size()), text.data());
}

}  // namespace capstan::sim
