// MemoryRowDisks: RowDisks for tests: payloads in a map, and errors on request.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_STORE_SPARSE_TESTING_MEMORY_ROW_DISKS_H_
#define CAPSTAN_SERVER_STORE_SPARSE_TESTING_MEMORY_ROW_DISKS_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "server/store/row_disk.h"

namespace capstan::server {

class MemoryRowDisks final : public RowDisks {
 public:
  absl::StatusOr<std::unique_ptr<RowDisk>> Open(int64_t payload_bytes) override {
    return std::make_unique<Disk>(this, static_cast<size_t>(payload_bytes));
  }

  // Calls fail with these, unless they are OK.
  absl::Status write_error;
  absl::Status read_error;
  // Called in the middle of each fetch: stands for what other threads do meanwhile.
  std::function<void()> on_fetch;
  int64_t written = 0;  // Payloads.
  int64_t read = 0;

 private:
  struct Payload {
    std::string bytes;
    int64_t number = 0;  // The number of the write that brought it.
  };
  struct Fetch final : RowFetch {
    explicit Fetch(MemoryRowDisks* disks) : all(disks) {}
    void Start() override {}
    void Finish() override {
      if (all->on_fetch) all->on_fetch();
      if (!all->read_error.ok()) return;
      all->read += static_cast<int64_t>(payloads.size());
      arrived = true;
    }
    int64_t bytes() const override {
      int64_t sum = 0;
      for (const auto& [row, payload] : payloads) sum += static_cast<int64_t>(payload.bytes.size());
      return sum;
    }

    MemoryRowDisks* const all;
    std::vector<std::pair<RowNumber, Payload>> payloads;
    bool arrived = false;
  };

  class Disk final : public RowDisk {
   public:
    Disk(MemoryRowDisks* all, size_t payload_bytes) : all_(all), payload_bytes_(payload_bytes) {}

    absl::Status Write(absl::Span<const RowNumber> rows,
                       absl::Span<const char* const> payloads) override {
      if (!all_->write_error.ok()) return all_->write_error;
      for (size_t i = 0; i < rows.size(); ++i) {
        payloads_[rows[i]] = {.bytes = std::string(payloads[i], payload_bytes_),
                              .number = ++all_->numbers_};
      }
      all_->written += static_cast<int64_t>(rows.size());
      return absl::OkStatus();
    }

    absl::Status Read(absl::Span<const RowNumber> rows, absl::Span<char* const> payloads) override {
      if (!all_->read_error.ok()) return all_->read_error;
      for (size_t i = 0; i < rows.size(); ++i) {
        const auto it = payloads_.find(rows[i]);
        if (it == payloads_.end()) {
          return absl::DataLossError(absl::StrCat("row ", rows[i], " is not on disk"));
        }
        std::memcpy(payloads[i], it->second.bytes.data(), payload_bytes_);
      }
      all_->read += static_cast<int64_t>(rows.size());
      return absl::OkStatus();
    }

    std::unique_ptr<RowFetch> BeginFetch(absl::Span<const RowNumber> rows) const override {
      auto fetch = std::make_unique<Fetch>(all_);
      for (const RowNumber row : rows) fetch->payloads.emplace_back(row, payloads_.at(row));
      return fetch;
    }
    std::vector<FetchedPayload> Arrived(const RowFetch& fetch) const override {
      std::vector<FetchedPayload> arrived;
      const auto& of_mine = static_cast<const Fetch&>(fetch);
      if (!of_mine.arrived) return arrived;
      for (const auto& [row, payload] : of_mine.payloads) {
        const auto it = payloads_.find(row);
        if (it == payloads_.end() || it->second.number != payload.number) continue;
        arrived.push_back({.row = row, .payload = payload.bytes.data()});
      }
      return arrived;
    }
    void Forget(RowNumber row) override { payloads_.erase(row); }
    int64_t bytes() const override { return 0; }

   private:
    MemoryRowDisks* const all_;
    const size_t payload_bytes_;
    absl::flat_hash_map<RowNumber, Payload> payloads_;
  };

  int64_t numbers_ = 0;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_SPARSE_TESTING_MEMORY_ROW_DISKS_H_
