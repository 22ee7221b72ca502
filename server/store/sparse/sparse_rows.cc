#include "server/store/sparse/sparse_rows.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "common/status/status_macros.h"
#include "common/types/instruction_set.h"
#include "server/optimizer/optimizer.h"
#include "server/store/sparse/prefetch.h"

namespace capstan::server {
namespace {

constexpr size_t kHeldMax = 4096;  // The limit of payloads that are brought into memory at a time.

int64_t PayloadBytes(int64_t dim, const OptimizerConfig& rule) {
  const int64_t floats = dim + StateFloats(rule, dim) + (CountsUpdates(rule) ? 1 : 0);
  return floats * int64_t{sizeof(float)};
}

int64_t RowBytes(int64_t head, int64_t payload) {
  constexpr int64_t kKey = sizeof(uint64_t);  // Rounding puts a key in one cache line.
  return (head + payload + kKey - 1) / kKey * kKey;
}

absl::StatusOr<std::unique_ptr<PayloadCache>> CacheOf(const SparseRows::Config& config) {
  if (config.memory_bytes == 0) return nullptr;
  const int64_t payload_bytes = PayloadBytes(config.dim, config.rule);
  absl::StatusOr<std::unique_ptr<RowDisk>> disk = config.disks->Open(payload_bytes);
  if (!disk.ok()) return PayloadCache::LostCopy(disk.status());
  return std::make_unique<PayloadCache>(payload_bytes, *std::move(disk));
}

}  // namespace

SparseRows::SparseRows(const Config& config, std::unique_ptr<PayloadCache> cache, KeyIndex index,
                       RowAdmission admission)
    : config_(config),
      places_{config.buckets},
      state_floats_(StateFloats(config.rule, config.dim)),
      payload_bytes_(PayloadBytes(config.dim, config.rule)),
      cache_(std::move(cache)),
      slab_(cache_ == nullptr ? RowBytes(kPayloadAt, payload_bytes_) : PayloadCache::kHeadBytes),
      index_(std::move(index)),
      admission_(std::move(admission)),
      eviction_(config.eviction, places_),
      history_(payload_bytes_, config.memory_bytes > 0 ? config.disks : nullptr) {}

absl::StatusOr<SparseRows> SparseRows::Make(const Config& config) {
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<PayloadCache> cache, CacheOf(config));
  CAPSTAN_ASSIGN_OR_RETURN(KeyIndex index, KeyIndex::Make({config.buckets}));
  CAPSTAN_ASSIGN_OR_RETURN(RowAdmission admission, RowAdmission::Make(config.admission));
  return SparseRows(config, std::move(cache), std::move(index), std::move(admission));
}

// Makes three passes, each of which prefetches the memory that the next one needs.
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
  if (cache_ == nullptr || bytes <= kPayloadAt) return;
  for (size_t i = 0; i < keys.size(); ++i) {
    const RowNumber row = (*rows)[i];
    if (row == KeyIndex::kNone || IsOnDisk(row)) continue;
    Prefetch(cache_->Of(slab_.At(row)), bytes - kPayloadAt);
  }
}

absl::Status SparseRows::FitMemory() const {
  if (cache_ == nullptr) return absl::OkStatus();
  return cache_->SetMemory(config_.memory_bytes - fixed_bytes() - history_.bytes(), &slab_);
}

size_t SparseRows::BatchMax() const {
  const size_t block =
      std::min(kBatch, static_cast<size_t>(WireValues::kBlockElements / config_.dim));
  return cache_ == nullptr ? block : std::min(block, cache_->held_max());
}

std::vector<RowNumber> SparseRows::RowsOf(absl::Span<const uint64_t> keys) const {
  std::vector<RowNumber> found;
  found.reserve(keys.size());
  Rows rows;
  for (; !keys.empty(); keys.remove_prefix(std::min(kBatch, keys.size()))) {
    const absl::Span<const uint64_t> batch = keys.subspan(0, kBatch);
    Locate(batch, 0, &rows);
    found.insert(found.end(), rows.begin(), rows.begin() + static_cast<int64_t>(batch.size()));
  }
  return found;
}

std::unique_ptr<RowFetch> SparseRows::BeginFetch(absl::Span<const uint64_t> keys) const {
  if (cache_ == nullptr) return nullptr;
  std::vector<RowNumber> rows = RowsOf(keys);
  std::erase(rows, KeyIndex::kNone);
  return cache_->BeginFetch(rows, slab_);
}

absl::Status SparseRows::TakeIn(const RowFetch& fetch) const {
  CAPSTAN_RETURN_IF_ERROR(FitMemory());
  return cache_ == nullptr ? absl::OkStatus() : cache_->TakeIn(fetch, &slab_);
}

absl::Status SparseRows::LocateHeld(absl::Span<const uint64_t> keys, size_t begin, int64_t bytes,
                                    std::vector<RowNumber>* held, Rows* rows) const {
  const size_t batch_max = BatchMax();
  if (cache_ == nullptr)
    return Locate(keys.subspan(begin, batch_max), bytes, rows), absl::OkStatus();
  const size_t together = std::min(kHeldMax, cache_->held_max()) / batch_max * batch_max;
  if (begin % together == 0) {
    *held = RowsOf(keys.subspan(begin, together));
    std::vector<RowNumber> there = *held;
    std::erase(there, KeyIndex::kNone);
    CAPSTAN_RETURN_IF_ERROR(cache_->Hold(there, &slab_));
  }
  const auto batch = absl::MakeConstSpan(*held).subspan(begin % together, batch_max);
  std::copy(batch.begin(), batch.end(), rows->begin());
  for (const RowNumber row : batch) {
    if (row != KeyIndex::kNone) Prefetch(cache_->Of(slab_.At(row)), bytes - kPayloadAt);
  }
  return absl::OkStatus();
}

absl::Status SparseRows::Read(absl::Span<const uint64_t> keys, float* out) const {
  CAPSTAN_RETURN_IF_ERROR(FitMemory());
  const int64_t bytes = config_.dim * int64_t{sizeof(float)};
  const size_t batch_max = BatchMax();
  std::vector<RowNumber> held;
  Rows rows;
  for (size_t begin = 0; begin < keys.size(); begin += batch_max) {
    CAPSTAN_RETURN_IF_ERROR(LocateHeld(keys, begin, kPayloadAt + bytes, &held, &rows));
    const absl::Span<const uint64_t> batch = keys.subspan(begin, batch_max);
    NewRows missing;
    for (size_t i = 0; i < batch.size(); ++i, out += config_.dim) {
      if (rows[i] == KeyIndex::kNone) {
        missing.Add(batch[i], out);
      } else {
        std::memcpy(out, WeightsAt(rows[i]), static_cast<size_t>(bytes));
      }
    }
    config_.initializer.Fill(missing.keys(), missing.rows());
  }
  return absl::OkStatus();
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
                                const WireValues& gradients, Effects* effects) {
  if (admission_.admits_all()) {
    CAPSTAN_RETURN_IF_ERROR(MakeRoom(static_cast<int64_t>(keys.size())));
  }
  CAPSTAN_RETURN_IF_ERROR(FitMemory());
  const int64_t version = step + 1;
  const int64_t admitted_before = counts_.admitted();
  const InstructionSet set = BestInstructionSet();
  const size_t batch_max = BatchMax();
  std::vector<float> block(static_cast<size_t>(WireValues::kBlockElements));
  std::vector<RowNumber> held;
  Rows rows;
  std::array<float*, kBatch> weights;
  std::array<uint32_t, kBatch> counts;
  for (size_t begin = 0; begin < keys.size(); begin += batch_max) {
    CAPSTAN_RETURN_IF_ERROR(LocateHeld(keys, begin, kPayloadAt + payload_bytes_, &held, &rows));
    const absl::Span<const uint64_t> batch = keys.subspan(begin, batch_max);
    CAPSTAN_RETURN_IF_ERROR(MakeMissing(batch, version, &rows));
    const auto elements = static_cast<int64_t>(batch.size()) * config_.dim;
    const UnalignedFloat* const values =
        gradients.Read(static_cast<int64_t>(begin) * config_.dim, elements, block.data());
    for (size_t i = 0; i < batch.size();) {
      if (rows[i] == KeyIndex::kNone) {
        if (effects != nullptr) effects->refused.push_back(begin + i);
        counts_.set_refused(counts_.refused() + 1);
        ++i;
        continue;
      }
      const size_t first = i;  // The first of a run of rows that exist.
      while (i < batch.size() && rows[i] != KeyIndex::kNone) ++i;
      Touch(absl::MakeConstSpan(rows).subspan(first, i - first), version, weights.data(),
            counts.data());
      ApplyRows(set, config_.rule, step,
                {.dim = config_.dim,
                 .rows = absl::MakeConstSpan(weights.data(), i - first),
                 .gradients = values + static_cast<int64_t>(first) * config_.dim,
                 .counts = absl::MakeConstSpan(counts.data(), i - first)});
    }
  }
  version_ = version;
  CAPSTAN_RETURN_IF_ERROR(Evict(counts_.admitted() - admitted_before, effects));
  if (version % kRenewEvery == 0) RenewStamps();
  return absl::OkStatus();
}

absl::Status SparseRows::MakeMissing(absl::Span<const uint64_t> keys, int64_t version, Rows* rows) {
  const bool admits_all = admission_.admits_all();
  for (size_t i = 0; i < keys.size() && !admits_all; ++i) {
    if ((*rows)[i] == KeyIndex::kNone) admission_.Prefetch(keys[i]);
  }
  NewRows made;
  absl::Status status;
  for (size_t i = 0; i < keys.size() && status.ok(); ++i) {
    if ((*rows)[i] != KeyIndex::kNone) continue;
    if (!admits_all && !admission_.Admits(keys[i], version)) continue;
    const absl::StatusOr<RowNumber> row = AddRow(keys[i]);
    status = row.status();
    if (!status.ok()) break;
    (*rows)[i] = *row;
    made.Add(keys[i], WeightsAt(*row));
    SetStamp(StampOf(version), slab_.At(*row));  // The row did not exist before.
    counts_.set_admitted(counts_.admitted() + 1);
  }
  Initialize(made);  // Includes the rows before one that could not be made.
  return status;
}

void SparseRows::Touch(absl::Span<const RowNumber> rows, int64_t version, float** weights,
                       uint32_t* counts) {
  Keep(rows, version);
  const uint32_t stamp = StampOf(version);
  for (size_t i = 0; i < rows.size(); ++i) {
    char* const head = slab_.At(rows[i]);
    SetStamp(stamp, head);
    if (cache_ != nullptr) cache_->SetChanged(head);
    weights[i] = WeightsAt(rows[i]);
    if (!counts_updates()) continue;
    const uint32_t before = CountOf(weights[i]);
    counts[i] = std::max(before, before + 1);  // The largest count stays.
    SetCount(counts[i], weights[i]);
  }
}

absl::Status SparseRows::Evict(int64_t made, Effects* effects) {
  const std::vector<RowEviction::Victim> victims = eviction_.Pick(version_, made, index_, slab_);
  if (effects != nullptr) {
    for (const RowEviction::Victim& victim : victims) {
      effects->evicted.push_back(slab_.KeyAt(victim.row));
    }
  }
  if (effects != nullptr && effects->want_weights) {
    effects->evicted_weights.resize(victims.size() * static_cast<size_t>(config_.dim));
    CAPSTAN_RETURN_IF_ERROR(Read(effects->evicted, effects->evicted_weights.data()));
  }
  std::vector<RowNumber> leaving;
  for (const RowEviction::Victim& victim : victims) leaving.push_back(victim.row);
  Keep(leaving, version_);
  for (const RowEviction::Victim& victim : victims) {
    if (cache_ != nullptr) cache_->Free(victim.row, slab_);
    index_.Erase(victim.place, victim.row);
    slab_.Free(victim.row);
    if (victim.by_age) {
      counts_.set_evicted_by_age(counts_.evicted_by_age() + 1);
    } else {
      counts_.set_evicted_by_limit(counts_.evicted_by_limit() + 1);
    }
  }
  return absl::OkStatus();
}

void SparseRows::RenewStamps() {
  std::vector<RowNumber> numbers;
  uint64_t place = 0;
  do {
    numbers.clear();
    place = index_.AppendRows(place, &numbers);
    std::erase_if(numbers, [this](RowNumber row) {
      return AgeOf(StampAt(slab_.At(row)), version_) <= kAgeMax;
    });
    Keep(numbers, version_);
    for (const RowNumber row : numbers) SetStamp(StampOf(version_ - kAgeMax), slab_.At(row));
  } while (place != 0);
}

absl::Status SparseRows::MakeRoom(int64_t more) {
  return more > rows() ? index_.Reserve(rows() + more, slab_) : absl::OkStatus();
}

absl::StatusOr<RowNumber> SparseRows::AddRow(uint64_t key) {
  CAPSTAN_ASSIGN_OR_RETURN(const RowNumber row, slab_.Allocate(key));
  absl::Status added = cache_ == nullptr ? absl::OkStatus() : cache_->Add(row, &slab_);
  if (added.ok()) {
    added = index_.Insert(places_.Of(key), row, slab_);
    if (added.ok()) return row;
    if (cache_ != nullptr) cache_->Free(row, slab_);
  }
  slab_.Free(row);
  return added;
}

void SparseRows::Initialize(const NewRows& made) {
  config_.initializer.Fill(made.keys(), made.rows());
  // Only Adagrad's state may start above 0, and Adagrad has no other state.
  const float state = InitialState(config_.rule, 0);
  for (float* const weights : made.rows()) {
    std::fill_n(weights + config_.dim, state_floats_, state);
    if (counts_updates()) SetCount(0, weights);
  }
}

absl::Status SparseRows::Put(const Row& row) {
  CAPSTAN_RETURN_IF_ERROR(FitMemory());
  CAPSTAN_ASSIGN_OR_RETURN(const RowNumber number, AddRow(row.key));
  SetStamp(row.stamp, slab_.At(number));
  float* const weights = WeightsAt(number);
  std::copy_n(row.weights, config_.dim + state_floats_, weights);
  if (counts_updates()) SetCount(row.count, weights);
  return absl::OkStatus();
}

SparseRows::Lifetime SparseRows::lifetime() const {
  Lifetime lifetime{.version = version_,
                    .counts = counts_,
                    .hand = eviction_.hand(),
                    .counters = admission_.counters()};
  lifetime.counts.set_held(rows());
  return lifetime;
}

absl::Status SparseRows::SetLifetime(const Lifetime& lifetime) {
  CAPSTAN_RETURN_IF_ERROR(admission_.Restore(lifetime.counters));
  version_ = lifetime.version;
  counts_ = lifetime.counts;
  eviction_.set_hand(lifetime.hand);
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
