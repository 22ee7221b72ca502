#include "worker/task/computation/update_recorder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/string_view.h"
#include "common/observability/log.h"
#include "common/storage/crc64.h"

namespace capstan::worker {
namespace {

template <typename Value>
uint64_t HashOf(const std::vector<Value>& values) {
  return Crc64Of({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)});
}

// Returns the hash of a table's values, which are in `halves` if that has the table.
uint64_t HashOfTable(size_t table, const TableArrays& floats, const HalfArrays* halves) {
  if (halves != nullptr && table < halves->size() && !(*halves)[table].empty()) {
    return HashOf((*halves)[table]);
  }
  return table < floats.size() ? HashOf(floats[table]) : 0;
}

}  // namespace

std::unique_ptr<UpdateRecorder> UpdateRecorder::Create(const v1::TaskAssignment& assignment) {
  if (!assignment.spec().output().record_updates()) return nullptr;
  return std::make_unique<UpdateRecorder>(assignment.job_id());
}

void UpdateRecorder::Pulled(const TableArrays& parameters, const HalfArrays* halves) {
  parameters_.resize(parameters.size());
  for (size_t table = 0; table < parameters.size(); ++table) {
    parameters_[table] = HashOfTable(table, parameters, halves);
  }
}

void UpdateRecorder::Trained(const Work& work, const GradientArrays& gradient,
                             const AllTableKeys& keys) {
  v1::UpdateHashes record;
  record.set_iteration(work.iteration.value());
  record.set_epoch(work.epoch.value());
  record.set_slot(static_cast<int32_t>(work.slots.begin));
  record.set_begin(work.positions.begin);
  record.set_end(work.positions.end);
  for (size_t table = 0; table < parameters_.size(); ++table) {
    v1::TableHashes& hashes = *record.add_tables();
    hashes.set_table(static_cast<int32_t>(table));
    hashes.set_parameters(parameters_[table]);
    hashes.set_gradient(HashOfTable(table, gradient.floats, &gradient.halves));
    const bool rows = table < keys.size() && keys[table].batch != nullptr;
    if (rows) hashes.set_keys(HashOf(keys[table].batch->keys));
  }
  absl::MutexLock lock(&mutex_);
  if (waiting_.size() < kRecordsMax) {
    waiting_.push_back(std::move(record));
  } else if (!std::exchange(full_, true)) {
    LogWarning({.job = job_, .iteration = work.iteration.value()},
               "{} updates wait for the scheduler: those that follow are not recorded",
               kRecordsMax);
  }
}

bool UpdateRecorder::AddTo(v1::SyncTaskRequest& request, int tables_max) {
  absl::MutexLock lock(&mutex_);
  int tables = 0;
  in_report_ = 0;
  for (const v1::UpdateHashes& record : waiting_) {
    tables += record.tables_size();
    if (tables > tables_max) break;
    *request.add_updates() = record;
    ++in_report_;
  }
  return in_report_ == waiting_.size();
}

void UpdateRecorder::Reported() {
  absl::MutexLock lock(&mutex_);
  const size_t count = std::exchange(in_report_, 0);
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
  full_ = false;
}

}  // namespace capstan::worker
