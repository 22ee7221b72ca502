#include "server/sparse_table/row_eviction.h"

#include <algorithm>
#include <bit>

#include "server/sparse_table/row_stamp.h"

namespace capstan::server {
namespace {

// Of these a cell has 64 to 128, on average.
constexpr int64_t kCellRows = 64;
// Rows that are looked at in an update. With four for each new one, a table whose rows all leave by
// age has at most a third more rows than are young enough.
constexpr int64_t kLooks = 64;
constexpr int64_t kLooksPerNewRow = 4;

}  // namespace

std::vector<RowEviction::Victim> RowEviction::Pick(int64_t version, int64_t made,
                                                   const KeyIndex& index, const RowSlab& rows) {
  std::vector<Victim> victims;
  const auto excess = [&] {
    const int64_t left = rows.rows() - static_cast<int64_t>(victims.size());
    return config_.rows_max > 0 ? static_cast<size_t>(std::max<int64_t>(0, left - config_.rows_max))
                                : 0;
  };
  if (config_.after == 0 && excess() == 0) return victims;
  const auto cells_min = static_cast<uint64_t>(std::max<int64_t>(1, rows.rows() / kCellRows));
  const int cell_bits = static_cast<int>(std::bit_width(cells_min)) - 1;
  const int64_t looks_min = kLooks + kLooksPerNewRow * made;
  candidates_.clear();
  int64_t looks = 0;
  for (int64_t cell = 0; cell < int64_t{1} << cell_bits; ++cell) {
    if (looks >= looks_min && candidates_.size() >= excess()) break;
    looks += LookAtCell(cell_bits, version, index, rows, &victims);
  }
  const size_t leaving = std::min(excess(), candidates_.size());
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<int64_t>(leaving),
                    candidates_.end(), [](const Candidate& a, const Candidate& b) {
                      return a.age != b.age ? a.age > b.age : a.victim.place < b.victim.place;
                    });
  for (size_t i = 0; i < leaving; ++i) victims.push_back(candidates_[i].victim);
  std::sort(victims.begin(), victims.end(),
            [](const Victim& a, const Victim& b) { return a.place < b.place; });
  return victims;
}

int64_t RowEviction::LookAtCell(int cell_bits, int64_t version, const KeyIndex& index,
                                const RowSlab& rows, std::vector<Victim>* victims) {
  const uint64_t width_minus_1 = ~uint64_t{0} >> cell_bits;
  const uint64_t first = hand_ & ~width_minus_1;
  const uint64_t last = first | width_minus_1;
  hand_ = last + 1;  // Behind the last cell comes 0.
  numbers_.clear();
  index.AppendBetween(first, last, &numbers_);
  for (const RowNumber row : numbers_) __builtin_prefetch(rows.At(row));
  int64_t looks = 0;
  for (const RowNumber row : numbers_) {
    const uint64_t place = places_.Of(rows.KeyAt(row));
    if (place < first || place > last) continue;
    ++looks;
    const int64_t age = AgeOf(StampAt(rows.At(row)), version);
    if (age == 0) continue;
    const bool by_age = config_.after > 0 && age >= config_.after;
    const Victim victim{.place = place, .row = row, .by_age = by_age};
    if (by_age) {
      victims->push_back(victim);
    } else if (config_.rows_max > 0) {
      candidates_.push_back({.age = age, .victim = victim});
    }
  }
  return looks;
}

}  // namespace capstan::server
