#include "server/store/sparse/rows/row_eviction.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "server/store/sparse/rows/row_stamp.h"

namespace capstan::server {
namespace {

// A cell has 64 to 128 rows on average.
constexpr int64_t kCellRows = 64;
// An update looks at this many rows, and at four more for each new row. With four, a table whose
// rows all leave by age has at most a third more rows than are young enough.
constexpr int64_t kLooks = 64;
constexpr int64_t kLooksPerNewRow = 4;

}  // namespace

int64_t RowEviction::AgeLimit(int64_t version) const {
  if (before_ == 0) return config_.after;
  const int64_t age = std::min(version - before_ + 1, kAgeMax);
  return config_.after == 0 ? age : std::min(config_.after, age);
}

std::vector<RowEviction::Victim> RowEviction::Pick(int64_t version, int64_t made,
                                                   const KeyIndex& index, const RowSlab& rows) {
  Seen seen;
  const auto excess = [&] {  // Counts rows beyond the limit beside those that are too old.
    const int64_t left = rows.rows() - static_cast<int64_t>(seen.too_old.size());
    const int64_t limit = config_.rows_max > 0 ? config_.rows_max : left;
    return static_cast<size_t>(std::max<int64_t>(0, left - limit));
  };
  const int64_t age_limit = AgeLimit(version);
  if (age_limit == 0 && excess() == 0) return {};
  const auto cells_max = static_cast<uint64_t>(std::max<int64_t>(1, rows.rows() / kCellRows));
  const int cell_bits = static_cast<int>(std::bit_width(cells_max)) - 1;
  const int64_t looks = kLooks + kLooksPerNewRow * made;
  for (int64_t cell = 0; cell < int64_t{1} << cell_bits; ++cell) {
    if (seen.rows >= looks && seen.others.size() >= excess()) break;
    PassCell(cell_bits, version, age_limit, index, rows, &seen);
  }
  const size_t leaving = std::min(excess(), seen.others.size());
  std::partial_sort(seen.others.begin(), seen.others.begin() + static_cast<int64_t>(leaving),
                    seen.others.end(), [](const Candidate& a, const Candidate& b) {
                      return a.age != b.age ? a.age > b.age : a.victim.place < b.victim.place;
                    });
  std::vector<Victim> victims = std::move(seen.too_old);
  for (size_t i = 0; i < leaving; ++i) victims.push_back(seen.others[i].victim);
  std::sort(victims.begin(), victims.end(),
            [](const Victim& a, const Victim& b) { return a.place < b.place; });
  return victims;
}

void RowEviction::PassCell(int cell_bits, int64_t version, int64_t age_limit, const KeyIndex& index,
                           const RowSlab& rows, Seen* seen) {
  const uint64_t width_minus_1 = ~uint64_t{0} >> cell_bits;
  const uint64_t first = hand_ & ~width_minus_1;
  const uint64_t last = first | width_minus_1;
  hand_ = last + 1;  // The last cell is followed by the one at 0.
  std::vector<RowNumber> numbers;
  index.AppendBetween(first, last, &numbers);
  for (const RowNumber row : numbers) __builtin_prefetch(rows.At(row));
  for (const RowNumber row : numbers) {
    const uint64_t place = places_.Of(rows.KeyAt(row));
    if (place < first || place > last) continue;
    ++seen->rows;
    const int64_t age = AgeOf(StampAt(rows.At(row)), version);
    const bool too_old = age_limit > 0 && age >= age_limit;
    const Victim victim{.place = place, .row = row, .by_age = too_old};
    if (too_old) {
      seen->too_old.push_back(victim);
    } else if (age > 0 && config_.rows_max > 0) {
      seen->others.push_back({.age = age, .victim = victim});
    }
  }
}

}  // namespace capstan::server
