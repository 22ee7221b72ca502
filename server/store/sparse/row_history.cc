#include "server/store/sparse/row_history.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"
#include "common/status/status_macros.h"
#include "server/store/sparse/rows/row_stamp.h"

namespace capstan::server {

absl::Status RowHistory::Charge::Resize(int64_t bytes) {
  if (account_ == nullptr || bytes == bytes_) return absl::OkStatus();
  CAPSTAN_RETURN_IF_ERROR(account_->Resize(bytes_, bytes));
  bytes_ = bytes;
  return absl::OkStatus();
}

void RowHistory::Pin(PinId pin, int64_t version, std::shared_ptr<KeptRowsAccount> account) {
  pins_[pin] = {.version = version, .accounted = account != nullptr, .lost = {}};
  if (account == nullptr) return;
  charge_.Open(std::move(account));
  SettleCharge();  // Charges what is kept for other pins already.
}

void RowHistory::Unpin(PinId pin) {
  if (pins_.erase(pin) == 0) return;
  if (pins_.empty()) {
    DropImages();
  } else {
    Trim(0, 0);
  }
  SettleCharge();
}

void RowHistory::DropImages() {
  images_.clear();
  free_ = std::vector<RowNumber>();
  numbers_ = 0;
  disk_.reset();
}

void RowHistory::SettleCharge() {
  const auto accounted = [](const auto& entry) {
    return entry.second.accounted && entry.second.lost.ok();
  };
  const bool any = std::any_of(pins_.begin(), pins_.end(), accounted);
  const absl::Status room = charge_.Resize(any ? bytes() : 0);
  if (room.ok()) return;
  for (auto& entry : pins_) {
    if (accounted(entry)) entry.second.lost = room;
  }
  Trim(0, 0);
  charge_.Resize(0).IgnoreError();  // Less always fits.
}

void RowHistory::Pass(PinId pin, uint64_t place) {
  const auto it = pins_.find(pin);
  if (it == pins_.end()) return;
  Trim(std::exchange(it->second.from, place), place);
  SettleCharge();
}

absl::StatusOr<int64_t> RowHistory::VersionOf(PinId pin) const {
  const auto it = pins_.find(pin);
  if (it == pins_.end()) {
    return absl::AbortedError("the rows of that version are kept no more: the shard was made anew");
  }
  CAPSTAN_RETURN_IF_ERROR(it->second.lost);
  return it->second.version;
}

bool RowHistory::Wants(uint64_t place, uint32_t stamp, int64_t present) const {
  if (Planted(PlantedBug::kForgetPinnedRow)) return false;
  return std::any_of(pins_.begin(), pins_.end(), [&](const auto& entry) {
    const Pinned& pin = entry.second;
    return pin.lost.ok() && pin.from <= place && !ChangedSince(pin.version, stamp, present);
  });
}

void RowHistory::Keep(absl::Span<const Image> rows, int64_t until) {
  if (rows.empty()) return;
  const absl::Status stored = Store(rows, until);
  if (!stored.ok()) return Lose(stored);
  SettleCharge();
}

void RowHistory::Lose(const absl::Status& why) {
  for (auto& [id, pin] : pins_) pin.lost.Update(why);
  DropImages();
  SettleCharge();
}

absl::Status RowHistory::Store(absl::Span<const Image> rows, int64_t until) {
  const auto size = static_cast<size_t>(payload_bytes_);
  if (disks_ != nullptr && disk_ == nullptr) {
    CAPSTAN_ASSIGN_OR_RETURN(disk_, disks_->Open(payload_bytes_));
  }
  std::vector<RowNumber> numbers;
  std::vector<const char*> payloads;
  for (const Image& row : rows) {
    Stored& stored = images_[{row.place, until}];
    stored = {.key = row.key, .stamp = row.stamp, .payload = nullptr};
    if (disk_ == nullptr) {
      stored.payload = std::make_unique<char[]>(size);
      std::memcpy(stored.payload.get(), row.payload, size);
      continue;
    }
    stored.number = TakeNumber();
    numbers.push_back(stored.number);
    payloads.push_back(row.payload);
  }
  return disk_ == nullptr ? absl::OkStatus() : disk_->Write(numbers, payloads);
}

RowNumber RowHistory::TakeNumber() {
  if (free_.empty()) return numbers_++;
  const RowNumber number = free_.back();
  free_.pop_back();
  return number;
}

RowHistory::Images::iterator RowHistory::Erase(Images::iterator image) {
  if (disk_ != nullptr) {
    disk_->Forget(image->second.number);
    free_.push_back(image->second.number);
  }
  return images_.erase(image);
}

// Also true of an image that began after the pinned version; such an image goes with the pin.
bool RowHistory::IsRead(const Images::value_type& image) const {
  const auto& [place, until] = image.first;
  return std::any_of(pins_.begin(), pins_.end(), [place = place, until = until](auto& entry) {
    const Pinned& pin = entry.second;
    return pin.lost.ok() && pin.from <= place && pin.version < until;
  });
}

void RowHistory::Trim(uint64_t begin, uint64_t end) {
  auto it = images_.lower_bound({begin, 0});
  while (it != images_.end() && (end == 0 || it->first.first < end)) {
    it = IsRead(*it) ? std::next(it) : Erase(it);
  }
}

absl::StatusOr<std::vector<RowHistory::Image>> RowHistory::ImagesAt(
    int64_t version, uint64_t begin, uint64_t end, int64_t present,
    std::deque<std::string>* payloads) const {
  std::vector<Image> images;
  std::vector<RowNumber> numbers;
  std::vector<Image*> on_disk;
  for (auto it = images_.lower_bound({begin, 0}); it != images_.end();) {
    const uint64_t place = it->first.first;
    if (end != 0 && place >= end) break;
    // Finds the first image that ends after the version; it counts if it began by then.
    while (it != images_.end() && it->first.first == place && it->first.second <= version) ++it;
    if (it == images_.end()) break;
    if (it->first.first != place) continue;
    const Stored& stored = it->second;
    if (!ChangedSince(version, stored.stamp, present)) {
      images.push_back({.place = place,
                        .key = stored.key,
                        .stamp = stored.stamp,
                        .payload = stored.payload.get()});
      if (stored.payload == nullptr) numbers.push_back(stored.number);
    }
    while (it != images_.end() && it->first.first == place) ++it;
  }
  for (Image& image : images) {
    if (image.payload == nullptr) on_disk.push_back(&image);
  }
  CAPSTAN_RETURN_IF_ERROR(ReadPayloads(numbers, std::move(on_disk), payloads));
  return images;
}

absl::StatusOr<std::vector<RowHistory::Image>> RowHistory::ImagesOf(
    int64_t version, absl::Span<const uint64_t> places, int64_t present,
    std::deque<std::string>* payloads) const {
  std::vector<Image> images(places.size());
  std::vector<RowNumber> numbers;
  std::vector<Image*> on_disk;
  for (size_t i = 0; i < places.size(); ++i) {
    // Finds the first image that ends after the version; it counts if it began by then.
    const auto it = images_.upper_bound({places[i], version});
    if (it == images_.end() || it->first.first != places[i]) continue;
    const Stored& stored = it->second;
    if (ChangedSince(version, stored.stamp, present)) continue;
    images[i] = {.place = places[i],
                 .key = stored.key,
                 .stamp = stored.stamp,
                 .payload = stored.payload.get()};
    if (stored.payload != nullptr) continue;
    numbers.push_back(stored.number);
    on_disk.push_back(&images[i]);
  }
  CAPSTAN_RETURN_IF_ERROR(ReadPayloads(numbers, std::move(on_disk), payloads));
  return images;
}

absl::Status RowHistory::ReadPayloads(const std::vector<RowNumber>& numbers,
                                      std::vector<Image*> images,
                                      std::deque<std::string>* payloads) const {
  if (numbers.empty()) return absl::OkStatus();
  const auto size = static_cast<size_t>(payload_bytes_);
  std::string& read = payloads->emplace_back(numbers.size() * size, '\0');
  std::vector<char*> to;
  for (Image* const image : images) {
    to.push_back(read.data() + to.size() * size);
    image->payload = to.back();
  }
  return disk_->Read(numbers, to);
}

int64_t RowHistory::bytes() const {
  // A node of the tree is three quarters full or less.
  const int64_t each = static_cast<int64_t>(sizeof(Images::value_type)) * 3 / 2 +
                       (disk_ == nullptr ? payload_bytes_ : 0);
  return images() * each + (disk_ == nullptr ? 0 : disk_->bytes()) +
         static_cast<int64_t>(free_.capacity() * sizeof(RowNumber));
}

}  // namespace capstan::server
