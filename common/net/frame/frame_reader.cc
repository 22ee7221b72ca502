#include "common/net/frame/frame_reader.h"

#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status/status_macros.h"

namespace capstan {

void FrameReader::OwnPiece(size_t size) {
  owned_.reset(new char[size]);  // It is not cleared, since all of it is overwritten.
  piece_ = owned_.get();
}

bool FrameReader::StartPlacedPiece(const PayloadPlaces::Place& place, size_t left) {
  const size_t come = end_ - begin_;
  if (place.to.empty() || place.skip > come || place.skip > left ||
      place.to.size() > left - place.skip) {
    return false;
  }
  const absl::string_view skipped(staged_.data() + begin_, place.skip);
  payload_.Append(skipped);
  Sum(skipped);
  begin_ += place.skip;
  piece_ = place.to.data();
  piece_size_ = place.to.size();
  return true;
}

bool FrameReader::StartPiece() {
  const size_t left = head_->length - payload_.size();
  piece_filled_ = 0;
  if (places_ != nullptr) {
    const absl::string_view come(staged_.data() + begin_, std::min(end_ - begin_, left));
    const std::optional<PayloadPlaces::Place> place = places_->Next(come);
    if (!place.has_value() && come.size() < std::min(left, kLookAheadBytes)) return false;
    if (place.has_value() && StartPlacedPiece(*place, left)) return true;
    places_.reset();
  }
  piece_size_ = std::min(left, kPieceBytes);
  OwnPiece(piece_size_);
  return true;
}

void FrameReader::TakePiece() {
  const absl::string_view bytes(std::exchange(piece_, nullptr), piece_size_);
  char* owned = owned_.release();  // Null is fine with delete.
  payload_.Append(absl::MakeCordFromExternal(bytes, [owned] { delete[] owned; }));
}

void FrameReader::DropPlaces(uint64_t call) {
  if (!head_.has_value() || head_->call != call) return;
  places_.reset();
  if (piece_ != nullptr && owned_ == nullptr) OwnPiece(piece_size_);
}

absl::StatusOr<std::optional<FrameReader::Frame>> FrameReader::Next(const PlacesOf& places_of) {
  if (!head_.has_value()) {
    if (end_ - begin_ < kFrameHeadBytes) return std::nullopt;
    const absl::string_view head(staged_.data() + begin_, kFrameHeadBytes);
    CAPSTAN_ASSIGN_OR_RETURN(head_, DecodeFrameHead(head));
    sum_ = FrameSum(head);
    begin_ += kFrameHeadBytes;
    if (places_of) places_ = places_of(*head_);
  }
  while (payload_.size() < head_->length) {
    if (piece_ == nullptr && !StartPiece()) return std::nullopt;
    const size_t count = std::min(end_ - begin_, piece_size_ - piece_filled_);
    if (count > 0) {
      std::memcpy(piece_ + piece_filled_, staged_.data() + begin_, count);
      Sum({staged_.data() + begin_, count});
    }
    begin_ += count;
    piece_filled_ += count;
    if (piece_filled_ < piece_size_) return std::nullopt;
    TakePiece();
  }
  if (sums_ && head_->length > 0) {
    if (end_ - begin_ < kFrameSumBytes) return std::nullopt;
    CAPSTAN_RETURN_IF_ERROR(sum_.Check(*head_, {staged_.data() + begin_, kFrameSumBytes}));
    begin_ += kFrameSumBytes;
  }
  Frame frame{.head = *head_, .payload = std::exchange(payload_, {})};
  head_.reset();
  places_.reset();
  return frame;
}

absl::StatusOr<size_t> FrameReader::Receive(SocketStream& stream) {
  if (begin_ > 0) {  // Few bytes are left: less than a head or kLookAheadBytes.
    std::memmove(staged_.data(), staged_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  const size_t missing = piece_ == nullptr ? 0 : piece_size_ - piece_filled_;
  // Bytes behind a placed piece may have a place as well, so few of them are received into staged_,
  // from where they are copied.
  const size_t room = places_ == nullptr ? staged_.size() : 2 * kLookAheadBytes;
  const size_t wanted = std::min(missing, kReceiveBytes);
  iovec places[] = {
      {.iov_base = missing == 0 ? nullptr : piece_ + piece_filled_, .iov_len = wanted},
      {.iov_base = staged_.data() + end_, .iov_len = room - end_}};
  const bool only_piece = missing > 0 && wanted < missing;
  const absl::Span<const iovec> all(places);
  CAPSTAN_ASSIGN_OR_RETURN(const size_t bytes, stream.Receive(missing == 0 ? all.subspan(1)
                                                              : only_piece ? all.first(1)
                                                                           : all));
  const size_t in_piece = std::min(bytes, missing);
  if (in_piece > 0) Sum({piece_ + piece_filled_, in_piece});
  piece_filled_ += in_piece;
  end_ += bytes - in_piece;
  return bytes;
}

}  // namespace capstan
