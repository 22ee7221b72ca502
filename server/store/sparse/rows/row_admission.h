// RowAdmission: decides whether an update makes a row for a key that has none.
//
// Decisions are a function of the bucket's updates and their order, so that every copy of a bucket
// decides alike. Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_STORE_SPARSE_ROWS_ROW_ADMISSION_H_
#define CAPSTAN_SERVER_STORE_SPARSE_ROWS_ROW_ADMISSION_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/types/ids.h"
#include "server/store/sparse/rows/admission_filter.h"

namespace capstan::server {

class RowAdmission {
 public:
  struct Config {
    int32_t after = 1;         // Pushes, including the one that makes the row: 1 to 255.
    int64_t filter_keys = 1;   // Keys that are counted at a time; >= 1.
    float probability = 1.0f;  // Chance that such a push makes the row, in (0, 1].
    uint64_t stream = 0;       // Stream of the table's random draws.
  };
  static uint64_t StreamOf(uint64_t seed, TableId table);

  // Errors: kResourceExhausted  no memory.
  static absl::StatusOr<RowAdmission> Make(const Config& config);

  bool admits_all() const { return !filter_.has_value() && threshold_ > UINT32_MAX; }
  void Prefetch(uint64_t key) const {
    if (filter_.has_value()) filter_->Prefetch(key);
  }
  // Decides on `key`, which has no row and is named by the update that makes `version`.
  bool Admits(uint64_t key, int64_t version);

  // The state to be saved; empty if pushes are not counted.
  absl::string_view counters() const {
    return filter_.has_value() ? filter_->counters() : absl::string_view();
  }
  // Errors: kDataLoss  they are of another size; says which.
  absl::Status Restore(absl::string_view counters);

  int64_t bytes() const { return filter_.has_value() ? filter_->bytes() : 0; }

 private:
  RowAdmission(const Config& config, std::optional<AdmissionFilter> filter);

  int32_t after_;
  uint64_t threshold_;  // A draw of 32 bits below it makes a row.
  uint64_t stream_;
  std::optional<AdmissionFilter> filter_;  // None: the first push may make a row.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_SPARSE_ROWS_ROW_ADMISSION_H_
