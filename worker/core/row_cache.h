// RowCache: rows of a sparse table that a worker has pulled and may use again within the staleness
// bound, so that what stands in every batch need not travel each time.
//
//   wanted = cache.Begin(batch, iteration, rows)   what it has is in its places in `rows` now; the
//                                                  rest is to be pulled to the others
//   read = cache.End(answer, rows)                 takes in what was pulled; or says that what it
//                                                  gave may be too old, and it has nothing any more
//
// The process cache of Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel
// Parameter Server", NIPS 2013, section 3: of each row it is known that the updates of the first
// `floor` iterations of all active workers are in it. Under SSP(s) it may be read at iteration c if
// floor >= c - s. What the worker itself pushed since is not added: rules with a state of their own
// are the servers'. Under ASP a row has an age alone: iterations since it was pulled.
//
// Floors are those of one membership: a worker that comes in may begin below them. Once answers
// tell of another membership, all rows are dropped.
//
// A full cache makes room as GCLOCK does (Smith, "Disk cache: miss ratio analysis and design
// considerations", TOCS 1985): a hand takes one use off each row that it passes and puts one
// without any out. It goes round once a batch at most, so that what is in every batch stays, and
// new rows that find no room are not kept. A new row is let in the second time that it is missed
// (the doorkeeper of TinyLFU: Einziger, Friedman, Manes, TOS 2017), for most keys of a Zipf law are
// seen once.
//
// Pure. Thread safety: thread-compatible.
// Invariants: (1) at most rows_max rows. (2) Begin gives no row beyond the iteration up to which it
// may be used.
#ifndef CAPSTAN_WORKER_CORE_ROW_CACHE_H_
#define CAPSTAN_WORKER_CORE_ROW_CACHE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "common/sparse/key_batch.h"
#include "common/sparse/wanted_keys.h"
#include "common/types/ids.h"

namespace capstan::worker {

// What a pull came to.
struct RowsRead {
  bool again = false;     // All of it must be asked for once more; the rest says nothing then.
  int64_t staleness = 0;  // Of the oldest that was read, as servers say it.
  int64_t cached = 0;     // Rows that did not travel,
  int64_t pulled = 0;     // and those that did, of models with a cache.
};

class RowCache {
 public:
  struct Options {
    int64_t rows_max = 0;  // > 0.
    int64_t dim = 0;       // Floats a row.
    // SSP: a row is used up to iteration floor + bound; else up to that of its pull + bound.
    bool by_floor = true;
    int64_t bound = 0;
  };
  // What servers said with a pull's values.
  struct Answer {
    int64_t staleness = 0;  // The largest: iteration - floor.
    Generation membership;  // Of all of them; 0: not known, or not the same.
  };
  explicit RowCache(const Options& options) : options_(options) {}

  // A pull of these keys at `iteration` begins; one that has not ended is forgotten.
  //   rows  [batch keys, dim]
  WantedKeys Begin(std::shared_ptr<const KeyBatch> batch, Iteration iteration,
                   absl::Span<float> rows);
  // It has ended, and `rows` has what was wanted. REQUIRES: Begin was called; once.
  RowsRead End(const Answer& answer, absl::Span<const float> rows);

  int64_t rows() const { return static_cast<int64_t>(slots_.size()); }
  int64_t bytes() const;  // In memory, about.

 private:
  struct Slot {
    uint64_t key = 0;
    int64_t floor = 0;
    int64_t until = 0;  // The last iteration that may use it.
    uint8_t uses = 0;   // Lately, up to kUsesMax.
  };
  struct Pull {
    std::shared_ptr<const KeyBatch> batch;
    int64_t iteration = 0;
    int64_t oldest = 0;             // Floor of what was given.
    std::vector<uint32_t> wanted;   // Places.
    std::vector<int64_t> slots_of;  // Of each wanted one, if it has a slot; kNone else.
  };
  static constexpr int64_t kNone = -1;
  static constexpr uint8_t kUsesMax = 7;
  static constexpr int64_t kChunkRows = 1024;
  static constexpr int64_t kMissedARow = 4;  // Entries of missed_, for a row of the cache.

  bool Usable(const Slot& slot, int64_t iteration) const;
  float* RowOf(int64_t slot);
  void Clear();
  void TakeIn(int64_t floor, int64_t until, absl::Span<const float> rows);
  void TakeIn(size_t wanted, int64_t floor, int64_t until, absl::Span<const float> rows,
              int64_t* steps);
  // A slot for a new row; kNone if there is no room. The hand passes at most *steps slots.
  int64_t MakeRoom(uint64_t key, int64_t* steps);
  int64_t Put(uint64_t key, int64_t slot);  // Returns the slot.
  bool MissedLately(uint64_t key);          // And notes that it was missed.

  const Options options_;
  Generation membership_;                         // Of all rows here.
  absl::flat_hash_map<uint64_t, int64_t> index_;  // Never iterated.
  std::vector<Slot> slots_;
  std::vector<std::vector<float>> chunks_;  // Of kChunkRows rows each, so that growing copies none.
  size_t hand_ = 0;
  std::vector<uint16_t> missed_;  // What is left of the hash of a key; 0: of none.
  uint64_t pulls_ = 0;
  Pull pull_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CORE_ROW_CACHE_H_
