#include "common/net/frame_reader.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status/status_macros.h"

namespace capstan {

void FrameReader::StartPiece() {
  piece_size_ = std::min<size_t>(head_->length - body_.size(), kPieceBytes);
  piece_filled_ = 0;
  piece_.reset(new char[piece_size_]);  // Not cleared: it is overwritten.
}

void FrameReader::TakePiece() {
  const absl::string_view bytes(piece_.get(), piece_size_);
  char* owned = piece_.release();
  body_.Append(absl::MakeCordFromExternal(bytes, [owned] { delete[] owned; }));
}

absl::StatusOr<std::optional<FrameReader::Frame>> FrameReader::Next() {
  if (!head_.has_value()) {
    if (end_ - begin_ < kFrameHeadBytes) return std::nullopt;
    CAPSTAN_ASSIGN_OR_RETURN(head_, DecodeFrameHead({staged_.data() + begin_, kFrameHeadBytes}));
    begin_ += kFrameHeadBytes;
  }
  while (body_.size() < head_->length) {
    if (piece_ == nullptr) StartPiece();
    const size_t count = std::min(end_ - begin_, piece_size_ - piece_filled_);
    if (count > 0) std::memcpy(piece_.get() + piece_filled_, staged_.data() + begin_, count);
    begin_ += count;
    piece_filled_ += count;
    if (piece_filled_ < piece_size_) return std::nullopt;
    TakePiece();
  }
  Frame frame{.head = *head_, .body = std::exchange(body_, {})};
  head_.reset();
  return frame;
}

absl::StatusOr<size_t> FrameReader::Receive(int socket) {
  if (begin_ > 0) {  // Less than a head, if a piece has not taken it all.
    std::memmove(staged_.data(), staged_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  const size_t missing = piece_ == nullptr ? 0 : piece_size_ - piece_filled_;
  iovec places[] = {
      {.iov_base = piece_.get() + (piece_ == nullptr ? 0 : piece_filled_), .iov_len = missing},
      {.iov_base = staged_.data() + end_, .iov_len = staged_.size() - end_}};
  msghdr message{};
  message.msg_iov = missing > 0 ? places : places + 1;
  message.msg_iovlen = missing > 0 ? 2 : 1;
  const ssize_t received = recvmsg(socket, &message, MSG_DONTWAIT);
  if (received == 0) return absl::UnavailableError("the peer has closed the connection");
  if (received < 0) {
    if (errno == EAGAIN || errno == EINTR) return 0;
    return absl::UnavailableError(absl::StrCat("receiving: ", std::strerror(errno)));
  }
  const auto bytes = static_cast<size_t>(received);
  const size_t in_piece = std::min(bytes, missing);
  piece_filled_ += in_piece;
  end_ += bytes - in_piece;
  return bytes;
}

}  // namespace capstan
