// RowEviction: which rows of a bucket leave after an update.
//
// A hand (the pointer of CLOCK) goes round the places of the bucket. Each update moves it over so
// many cells of about a hundred rows that it looks at 64 rows and four for each row that the update
// has made. These of them leave:
//   - those that no update has named for `after` versions, or from the version on that SetBefore
//     sets. If that is more than kAgeMax versions ago (row_stamp.h), kAgeMax versions count;
//   - while the bucket has more than `rows_max` rows, those updated longest ago (the rows that it
//     looks at are a random sample, as in Redis, because places are hashes); the hand goes on until
//     there are enough.
// Rows of the update at hand never leave.
//
// The rows that leave are a function of keys, stamps, version and hand, not of where rows lie in
// memory.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_STORE_SPARSE_ROWS_ROW_EVICTION_H_
#define CAPSTAN_SERVER_STORE_SPARSE_ROWS_ROW_EVICTION_H_

#include <cstdint>
#include <vector>

#include "server/store/sparse/rows/key_index.h"
#include "server/store/sparse/rows/row_slab.h"

namespace capstan::server {

class RowEviction {
 public:
  struct Config {
    int64_t after = 0;     // Versions, below kAgeMax (row_stamp.h). 0: never.
    int64_t rows_max = 0;  // Limit of the bucket's rows. 0: no limit.
    bool by_time = false;  // SetBefore may be called: the rows have a time to live.
    bool may_evict() const { return after > 0 || rows_max > 0 || by_time; }
  };
  struct Victim {
    uint64_t place = 0;
    RowNumber row = 0;
    bool by_age = false;  // False: it leaves because of the limit.
  };

  RowEviction(const Config& config, KeyIndex::Places places) : config_(config), places_(places) {}

  // Rows whose stamp is of a lower version are too old from now on. 0: none.
  void SetBefore(int64_t version) { before_ = version; }
  // Returns the rows that leave after the update that made `version` and `made` rows; ascending by
  // place.
  std::vector<Victim> Pick(int64_t version, int64_t made, const KeyIndex& index,
                           const RowSlab& rows);

  uint64_t hand() const { return hand_; }
  void set_hand(uint64_t hand) { hand_ = hand; }

 private:
  struct Candidate {
    int64_t age = 0;
    Victim victim;
  };

  // Rows that the hand has passed.
  struct Seen {
    int64_t rows = 0;
    std::vector<Victim> too_old;
    std::vector<Candidate> others;  // Candidates that the present update did not touch.
  };

  // The age from which on a row is too old at `version`, 1 or more. 0: none is.
  int64_t AgeLimit(int64_t version) const;
  // Moves the hand over its cell, one of 2^cell_bits.
  void PassCell(int cell_bits, int64_t version, int64_t age_limit, const KeyIndex& index,
                const RowSlab& rows, Seen* seen);

  Config config_;
  KeyIndex::Places places_;
  uint64_t hand_ = 0;
  int64_t before_ = 0;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_SPARSE_ROWS_ROW_EVICTION_H_
