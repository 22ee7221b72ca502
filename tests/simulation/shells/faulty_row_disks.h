// FaultyRowDisks: the disks that one server keeps rows on, which may break: from then on they are
// full, unreadable or damaged, until they are mended.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_SHELLS_FAULTY_ROW_DISKS_H_
#define CAPSTAN_TESTS_SIMULATION_SHELLS_FAULTY_ROW_DISKS_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/status/status_macros.h"
#include "server/store/row_disk.h"

namespace capstan::sim {

class FaultyRowDisks final : public server::RowDisks {
 public:
  // `whole` outlives it: where the rows lie.
  explicit FaultyRowDisks(server::RowDisks* whole) : whole_(whole) {}

  absl::StatusOr<std::unique_ptr<server::RowDisk>> Open(int64_t payload_bytes) override {
    CAPSTAN_RETURN_IF_ERROR(write_error);
    CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<server::RowDisk> disk, whole_->Open(payload_bytes));
    return std::make_unique<Disk>(this, std::move(disk));
  }

  // The next calls fail with them.
  absl::Status write_error;
  absl::Status read_error;

 private:
  using Rows = absl::Span<const server::RowNumber>;

  class Disk final : public server::RowDisk {
   public:
    Disk(const FaultyRowDisks* all, std::unique_ptr<server::RowDisk> whole)
        : all_(all), whole_(std::move(whole)) {}

    absl::Status Write(Rows rows, absl::Span<const char* const> payloads) override {
      CAPSTAN_RETURN_IF_ERROR(all_->write_error);
      return whole_->Write(rows, payloads);
    }
    absl::Status Read(Rows rows, absl::Span<char* const> payloads) override {
      CAPSTAN_RETURN_IF_ERROR(all_->read_error);
      return whole_->Read(rows, payloads);
    }
    std::unique_ptr<server::RowFetch> BeginFetch(Rows rows) const override {
      return whole_->BeginFetch(rows);
    }
    std::vector<server::FetchedPayload> Arrived(const server::RowFetch& fetch) const override {
      if (!all_->read_error.ok()) return {};
      return whole_->Arrived(fetch);
    }
    void Forget(server::RowNumber row) override { whole_->Forget(row); }
    int64_t bytes() const override { return whole_->bytes(); }

   private:
    const FaultyRowDisks* const all_;
    const std::unique_ptr<server::RowDisk> whole_;
  };

  server::RowDisks* const whole_;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_SHELLS_FAULTY_ROW_DISKS_H_
