// RowHistory: rows of a bucket as they were at versions that somebody still reads, for example a
// checkpoint that is being written.
//
//   Pin --> an update is about to change or erase a row of a pinned version: Keep
//       --> ImagesAt, ImagesOf: such rows, which the bucket itself no longer has --> Unpin
//
// The image of a row is the row as it was in the versions from its stamp on and below `until`, the
// version of the update which changed it. A row without an image was as it is now, unless its stamp
// is after the pinned version: then it did not exist.
//
// Payloads lie on a disk if there is one, else in memory. A disk that fails ends only the pins;
// their readers get its error. A pin may have an account for memory: it ends as well once the
// account has no room. While any pin has an account, the memory of all images is charged.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_STORE_SPARSE_ROW_HISTORY_H_
#define CAPSTAN_SERVER_STORE_SPARSE_ROW_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/store/kept_rows.h"
#include "server/store/row_disk.h"

namespace capstan::server {

class RowHistory {
 public:
  // `disks` may be null: then payloads are kept in memory. It outlives the history.
  RowHistory(int64_t payload_bytes, RowDisks* disks)
      : payload_bytes_(payload_bytes), disks_(disks) {}

  // From now on the rows of `version`, the present one, can be read; with `account` (the same for
  // all pins that have one) only until that refuses more memory.
  void Pin(PinId pin, int64_t version, std::shared_ptr<KeptRowsAccount> account = nullptr);
  void Unpin(PinId pin);  // An unknown pin is ignored.
  // The reader of `pin` needs no rows below `place` any more.
  void Pass(PinId pin, uint64_t place);
  // Errors: kAborted  there is no such pin. Else why its rows are lost: an error of the disk or
  // account.
  absl::StatusOr<int64_t> VersionOf(PinId pin) const;
  bool empty() const { return pins_.empty(); }

  // Returns whether a reader needs the row with this stamp. `present`: the bucket's version.
  bool Wants(uint64_t place, uint32_t stamp, int64_t present) const;
  struct Image {
    uint64_t place = 0;
    uint64_t key = 0;
    uint32_t stamp = 0;
    const char* payload = nullptr;
  };
  // Keeps rows that are wanted, before the update that makes `until` changes or erases them. Called
  // at most once for each row and update.
  void Keep(absl::Span<const Image> rows, int64_t until);
  // Ends all pins, because of `why`: rows that were wanted could not be read.
  void Lose(const absl::Status& why);

  // The images of a pinned version with places from `begin` on and below `end` (0: up to the last),
  // ordered by place. They are valid until the next Keep, Pass or Unpin, and as long as `payloads`,
  // which gets what is read from disk. `present`: as above. Errors: of the disk.
  absl::StatusOr<std::vector<Image>> ImagesAt(int64_t version, uint64_t begin, uint64_t end,
                                              int64_t present,
                                              std::deque<std::string>* payloads) const;
  // Same as ImagesAt, for these places: one image for each, without a payload where there is none.
  absl::StatusOr<std::vector<Image>> ImagesOf(int64_t version, absl::Span<const uint64_t> places,
                                              int64_t present,
                                              std::deque<std::string>* payloads) const;

  int64_t images() const { return static_cast<int64_t>(images_.size()); }
  int64_t bytes() const;  // Bytes in memory.

 private:
  struct Pinned {
    int64_t version = 0;
    uint64_t from = 0;  // The lowest place that is still read.
    bool accounted = false;
    absl::Status lost;
  };
  // The memory of this history on an account; it is given back with the history.
  class Charge {
   public:
    Charge() = default;
    Charge(Charge&& other) noexcept { *this = std::move(other); }
    Charge& operator=(Charge&& other) noexcept {
      std::swap(account_, other.account_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Charge() { Resize(0).IgnoreError(); }
    void Open(std::shared_ptr<KeptRowsAccount> account) { account_ = std::move(account); }
    absl::Status Resize(int64_t bytes);

   private:
    std::shared_ptr<KeptRowsAccount> account_;  // Shared with the job's other buckets.
    int64_t bytes_ = 0;
  };
  struct Stored {
    uint64_t key = 0;
    uint32_t stamp = 0;
    RowNumber number = 0;             // On disk.
    std::unique_ptr<char[]> payload;  // The payload in memory; null: it is on disk.
  };
  using Images =
      absl::btree_map<std::pair<uint64_t, int64_t>, Stored>;  // Keyed by place and `until`.

  absl::Status Store(absl::Span<const Image> rows, int64_t until);
  RowNumber TakeNumber();
  Images::iterator Erase(Images::iterator image);
  // Erases the images with places in [begin, end) (0: to the last) that nobody reads.
  void Trim(uint64_t begin, uint64_t end);
  bool IsRead(const Images::value_type& image) const;
  void DropImages();
  // Charges the account for what is kept; if it has no room, the pins that have it end.
  void SettleCharge();
  // Reads the payloads of `images` that lie on disk, at these numbers.
  absl::Status ReadPayloads(const std::vector<RowNumber>& numbers, std::vector<Image*> images,
                            std::deque<std::string>* payloads) const;

  int64_t payload_bytes_;
  RowDisks* disks_;
  std::unique_ptr<RowDisk> disk_;  // Null until something is kept.
  absl::btree_map<PinId, Pinned> pins_;
  Images images_;
  RowNumber numbers_ = 0;  // Count of numbers in use or free.
  std::vector<RowNumber> free_;
  Charge charge_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_SPARSE_ROW_HISTORY_H_
