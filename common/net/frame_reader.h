// FrameReader: cuts what a socket brings into frames.
//
// Bodies are received where they stay; small pieces that come along with one are copied. Memory is
// taken as bytes arrive: whoever announces a long body and does not send it has been given at most
// kPieceBytes.
// Thread safety: thread-compatible; of the thread that reads the socket.
#ifndef CAPSTAN_COMMON_NET_FRAME_READER_H_
#define CAPSTAN_COMMON_NET_FRAME_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "common/net/frame.h"

namespace capstan {

class FrameReader {
 public:
  // A chunk of 4 MiB of values with what stands around it is one piece.
  static constexpr size_t kPieceBytes = (4 << 20) + (64 << 10);

  struct Frame {
    FrameHead head;
    absl::Cord body;
  };
  // The next frame of what has been received; none if more must be. Errors: those of
  // DecodeFrameHead; none can be read from then on.
  absl::StatusOr<std::optional<Frame>> Next();

  // Receives once, without waiting. Returns the bytes; 0 if there are none now.
  // REQUIRES: Next has just returned none. Errors: kUnavailable  the connection has ended, or is
  // broken; says how.
  absl::StatusOr<size_t> Receive(int socket);

 private:
  void StartPiece();
  void TakePiece();

  std::vector<char> staged_ = std::vector<char>(64 << 10);  // Received and not yet looked at:
  size_t begin_ = 0, end_ = 0;                              // [begin, end).
  std::optional<FrameHead> head_;                           // Of the frame that is being received.
  absl::Cord body_;                                         // Its pieces that are whole.
  std::unique_ptr<char[]> piece_;                           // Null: none has been begun.
  size_t piece_size_ = 0, piece_filled_ = 0;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_FRAME_READER_H_
