// RowCache: rows of a sparse table that a worker has pulled and may use again within the staleness
// bound, so that rows that occur in every batch need not travel each time.
//
//   wanted = cache.Begin(batch, iteration, rows)   copies the rows that it has to their places in
//                                                  `rows`; the caller pulls the wanted ones
//   read = cache.End(answer, rows)                 keeps the pulled rows; or says that the rows it
//                                                  gave may be too old, and drops all its rows
//
// The process cache of Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel
// Parameter Server", NIPS 2013, section 3: each row is known to contain the updates of the first
// `floor` iterations of all active workers. Under SSP(s) it may be read at iteration c if
// floor >= c - s. The cache does not add what the worker itself has pushed since, because update
// rules that have a state run only on the servers. Under ASP a row only has an age: the iterations
// since it was pulled.
//
// Floors hold for one membership: a worker that joins may begin below them. When an answer reports
// another membership, all rows are dropped.
//
// A full cache makes room as GCLOCK does (Smith, "Disk cache: miss ratio analysis and design
// considerations", TOCS 1985): the CLOCK pointer decrements the use count of each row that it
// passes and evicts a row whose count is zero. It goes round at most once per batch, so that rows
// that are in every batch stay, and new rows that find no room are not kept. A full cache admits a
// new row the second time that it is missed (the doorkeeper of TinyLFU: Einziger, Friedman, Manes,
// TOS 2017), because most keys of a Zipf distribution are seen once.
//
// Pure. Thread safety: thread-compatible.
// Invariants: (1) the cache has at most rows_max rows; (2) Begin gives no row beyond the iteration
// up to which it may be used.
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

// The result of one pull.
struct RowsRead {
  bool again = false;     // The whole pull must be repeated; the other fields are unset then.
  int64_t staleness = 0;  // The staleness of the oldest row read, as servers define it.
  int64_t cached = 0;     // Rows that the cache gave.
  int64_t pulled = 0;     // Rows that were pulled; 0 for models without a cache.
};

class RowCache {
 public:
  struct Options {
    int64_t rows_max = 0;  // > 0.
    int64_t dim = 0;       // Floats per row.
    // True (SSP): a row is used up to iteration floor + bound. False (ASP): up to the iteration of
    // its pull + bound.
    bool by_floor = true;
    int64_t bound = 0;
  };
  // The servers' report with a pull's values.
  struct Answer {
    int64_t staleness = 0;  // The largest iteration - floor of all shards.
    Generation membership;  // The membership of all shards; 0: not known, or not the same.
  };
  explicit RowCache(const Options& options) : options_(options) {}

  // Begins a pull of these keys at `iteration`; a pull that has not ended is forgotten.
  //   rows  [batch keys, dim]
  WantedKeys Begin(std::shared_ptr<const KeyBatch> batch, Iteration iteration,
                   absl::Span<float> rows);
  // Ends the pull; `rows` has the wanted rows. REQUIRES: called once per Begin.
  RowsRead End(const Answer& answer, absl::Span<const float> rows);

  int64_t rows() const { return static_cast<int64_t>(slots_.size()); }
  int64_t bytes() const;  // The memory that it uses, about.

 private:
  struct Slot {
    uint64_t key = 0;
    int64_t floor = 0;
    int64_t until = 0;  // The last iteration that may use it.
    uint8_t uses = 0;   // The recent uses, at most kUsesMax.
  };
  struct Pull {
    std::shared_ptr<const KeyBatch> batch;
    int64_t iteration = 0;
    int64_t oldest = 0;             // The lowest floor of the rows that were given.
    std::vector<uint32_t> wanted;   // The places of wanted keys in the batch.
    std::vector<int64_t> slots_of;  // The slot of each wanted key; kNone: it has none.
  };
  static constexpr int64_t kNone = -1;
  static constexpr uint8_t kUsesMax = 7;
  static constexpr int64_t kChunkRows = 1024;
  static constexpr int64_t kMissedARow = 4;  // Entries of missed_ per row of the cache.

  bool Usable(const Slot& slot, int64_t iteration) const;
  float* RowOf(int64_t slot);
  void Clear();
  void TakeIn(int64_t floor, int64_t until, absl::Span<const float> rows);
  void TakeIn(size_t wanted, int64_t floor, int64_t until, absl::Span<const float> rows,
              int64_t* steps);
  // Returns a slot for a new row; kNone if there is no room. hand_ passes at most *steps slots.
  int64_t MakeRoom(uint64_t key, int64_t* steps);
  int64_t Put(uint64_t key, int64_t slot);  // Returns the slot.
  bool MissedLately(uint64_t key);          // Also notes this miss.

  const Options options_;
  Generation membership_;                         // The membership for which all floors hold.
  absl::flat_hash_map<uint64_t, int64_t> index_;  // Never iterated.
  std::vector<Slot> slots_;
  std::vector<std::vector<float>> chunks_;  // kChunkRows rows each: growing copies none.
  size_t hand_ = 0;                         // The CLOCK pointer: the slot that it passes next.
  std::vector<uint16_t> missed_;            // Parts of the hashes of missed keys; 0: empty.
  uint64_t pulls_ = 0;
  Pull pull_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CORE_ROW_CACHE_H_
