#include "server/sparse_table/sparse_rows.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "common/status/status_macros.h"
#include "server/optimizer/optimizer.h"
#include "server/optimizer/update_loops.h"

namespace capstan::server {
namespace {

constexpr int64_t kCacheLine = 64;

int64_t RowBytes(int64_t dim, const OptimizerConfig& rule) {
  const int64_t floats = dim + StateFloats(rule, dim) + (CountsUpdates(rule) ? 1 : 0);
  constexpr int64_t kKey = sizeof(uint64_t);
  return kKey + (floats * int64_t{sizeof(float)} + kKey - 1) / kKey * kKey;
}

void Prefetch(const char* data, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kCacheLine) __builtin_prefetch(data + at);
}

}  // namespace

SparseRows::SparseRows(const Config& config, KeyIndex index)
    : config_(config),
      places_{config.buckets},
      state_floats_(StateFloats(config.rule, config.dim)),
      row_bytes_(RowBytes(config.dim, config.rule)),
      slab_(row_bytes_),
      index_(std::move(index)) {}

absl::StatusOr<SparseRows> SparseRows::Make(const Config& config) {
  CAPSTAN_ASSIGN_OR_RETURN(KeyIndex index, KeyIndex::Make({config.buckets}));
  return SparseRows(config, std::move(index));
}

// Three passes, each of which asks for the memory that the next one needs.
void SparseRows::Locate(absl::Span<const uint64_t> keys, int64_t bytes, Rows* rows) const {
  std::array<uint64_t, kBatch> places;
  for (size_t i = 0; i < keys.size(); ++i) {
    places[i] = places_.Of(keys[i]);
    index_.Prefetch(places[i]);
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    (*rows)[i] = index_.Guess(places[i]);
    if ((*rows)[i] != KeyIndex::kNone) Prefetch(slab_.At((*rows)[i]), bytes);
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    const RowNumber guess = (*rows)[i];
    if (guess == KeyIndex::kNone || slab_.KeyAt(guess) == keys[i]) continue;
    (*rows)[i] = index_.Find(keys[i], places[i], slab_);
  }
}

void SparseRows::Read(absl::Span<const uint64_t> keys, float* out) const {
  const int64_t bytes = config_.dim * int64_t{sizeof(float)};
  Rows rows;
  for (; !keys.empty(); keys.remove_prefix(std::min(kBatch, keys.size()))) {
    const absl::Span<const uint64_t> batch = keys.subspan(0, kBatch);
    Locate(batch, kWeightsAt + bytes, &rows);
    for (size_t i = 0; i < batch.size(); ++i, out += config_.dim) {
      if (rows[i] == KeyIndex::kNone) {
        config_.initializer.Fill(batch[i], out);
      } else {
        std::memcpy(out, WeightsAt(rows[i]), static_cast<size_t>(bytes));
      }
    }
  }
}

int64_t SparseRows::CountMissing(absl::Span<const uint64_t> keys) const {
  int64_t missing = 0;
  Rows rows;
  for (; !keys.empty(); keys.remove_prefix(std::min(kBatch, keys.size()))) {
    const absl::Span<const uint64_t> batch = keys.subspan(0, kBatch);
    Locate(batch, 0, &rows);
    missing += std::count(rows.begin(), rows.begin() + static_cast<int64_t>(batch.size()),
                          KeyIndex::kNone);
  }
  return missing;
}

absl::Status SparseRows::Update(int64_t step, absl::Span<const uint64_t> keys,
                                const WireValues& gradients) {
  CAPSTAN_RETURN_IF_ERROR(MakeRoom(static_cast<int64_t>(keys.size())));
  const InstructionSet set = BestInstructionSet();
  const size_t batch_max =
      std::min(kBatch, static_cast<size_t>(WireValues::kBlockElements / config_.dim));
  std::vector<float> block(static_cast<size_t>(WireValues::kBlockElements));
  Rows rows;
  std::array<float*, kBatch> weights;
  std::array<uint32_t, kBatch> counts;
  for (size_t begin = 0; begin < keys.size(); begin += batch_max) {
    const absl::Span<const uint64_t> batch = keys.subspan(begin, batch_max);
    Locate(batch, row_bytes_, &rows);
    for (size_t i = 0; i < batch.size(); ++i) {
      if (rows[i] == KeyIndex::kNone) {
        CAPSTAN_ASSIGN_OR_RETURN(rows[i], Create(batch[i]));
      }
      weights[i] = WeightsAt(rows[i]);
      if (!counts_updates()) continue;
      const uint32_t before = CountOf(weights[i]);
      counts[i] = std::max(before, before + 1);  // The largest stays.
      SetCount(counts[i], weights[i]);
    }
    const auto elements = static_cast<int64_t>(batch.size()) * config_.dim;
    ApplyRows(set, config_.rule, step,
              {.dim = config_.dim,
               .rows = absl::MakeConstSpan(weights.data(), batch.size()),
               .gradients = gradients.Read(static_cast<int64_t>(begin) * config_.dim, elements,
                                           block.data()),
               .counts = absl::MakeConstSpan(counts.data(), batch.size())});
  }
  return absl::OkStatus();
}

absl::Status SparseRows::MakeRoom(int64_t more) {
  return more > rows() ? index_.Reserve(rows() + more, slab_) : absl::OkStatus();
}

absl::StatusOr<RowNumber> SparseRows::AddRow(uint64_t key) {
  CAPSTAN_ASSIGN_OR_RETURN(const RowNumber row, slab_.Allocate(key));
  const absl::Status inserted = index_.Insert(places_.Of(key), row, slab_);
  if (inserted.ok()) return row;
  slab_.Free(row);
  return inserted;
}

absl::StatusOr<RowNumber> SparseRows::Create(uint64_t key) {
  CAPSTAN_ASSIGN_OR_RETURN(const RowNumber row, AddRow(key));
  float* const weights = WeightsAt(row);
  config_.initializer.Fill(key, weights);
  // Adagrad's is the only state that may start above 0, and the only one it has.
  std::fill(weights + config_.dim, weights + config_.dim + state_floats_,
            InitialState(config_.rule, 0));
  if (counts_updates()) SetCount(0, weights);
  return row;
}

uint64_t SparseRows::AppendRows(uint64_t place, std::vector<Row>* rows) const {
  std::vector<RowNumber> numbers;
  const uint64_t next = index_.AppendRun(place, &numbers);
  for (const RowNumber row : numbers) Prefetch(slab_.At(row), kCacheLine);
  std::vector<std::pair<uint64_t, RowNumber>> order;
  order.reserve(numbers.size());
  for (const RowNumber row : numbers) {
    const uint64_t at = places_.Of(slab_.KeyAt(row));
    if (at >= place && (next == 0 || at < next)) order.emplace_back(at, row);
  }
  std::sort(order.begin(), order.end());
  for (const auto& [unused_place, row] : order) {
    const float* const weights = WeightsAt(row);
    rows->push_back({.key = slab_.KeyAt(row),
                     .weights = weights,
                     .count = counts_updates() ? CountOf(weights) : 0});
  }
  return next;
}

absl::Status SparseRows::Put(const Row& row) {
  CAPSTAN_ASSIGN_OR_RETURN(const RowNumber number, AddRow(row.key));
  float* const weights = WeightsAt(number);
  std::copy_n(row.weights, config_.dim + state_floats_, weights);
  if (counts_updates()) SetCount(row.count, weights);
  return absl::OkStatus();
}

uint32_t SparseRows::CountOf(const float* weights) const {
  uint32_t count;
  std::memcpy(&count, weights + config_.dim + state_floats_, sizeof(count));
  return count;
}

void SparseRows::SetCount(uint32_t count, float* weights) const {
  std::memcpy(weights + config_.dim + state_floats_, &count, sizeof(count));
}

}  // namespace capstan::server
