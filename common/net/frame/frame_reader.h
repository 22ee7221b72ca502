// FrameReader: cuts what a stream brings into frames.
//
// Payloads are received into the memory where they stay; small pieces that come along with one are
// copied. The receiver of a payload may say where parts of it belong (PayloadPlaces). A checksum is
// computed as bytes come, unless the stream detects damage by itself, and a frame is given out once
// the checksum is right; until then the bytes in places are not valid. Memory is allocated as bytes
// arrive: a peer that announces a long payload and does not send it gets at most kPieceBytes.
// Thread safety: thread-compatible; only the thread that reads the stream uses it.
#ifndef CAPSTAN_COMMON_NET_FRAME_FRAME_READER_H_
#define CAPSTAN_COMMON_NET_FRAME_FRAME_READER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/net/frame/frame.h"
#include "common/net/socket/socket_stream.h"

namespace capstan {

// Finds out, as a payload comes, where its parts are to be received. Called by the reader's thread.
class PayloadPlaces {
 public:
  virtual ~PayloadPlaces() = default;
  struct Place {
    size_t skip = 0;  // Bytes of `come` in front of it.
    // Lent until the frame is returned or its places are dropped. Empty: the rest of the payload
    // may lie anywhere.
    absl::Span<char> to;
  };
  // `come`: the bytes of the payload that are there; at first from its beginning, later from the
  // end of the last place. None: it needs more bytes, FrameReader::kLookAheadBytes at most.
  virtual std::optional<Place> Next(absl::string_view come) = 0;
};

class FrameReader {
 public:
  // A chunk of 4 MiB of values with what stands around it is one piece.
  static constexpr size_t kPieceBytes = (4 << 20) + (64 << 10);

  static constexpr size_t kLookAheadBytes = 4096;
  // Most bytes of a piece in one Receive, so that they are still in the cache as they are summed
  // up.
  static constexpr size_t kReceiveBytes = 256 << 10;

  // `sums`: each payload is followed by its sum, as FrameWriter sends it.
  explicit FrameReader(bool sums = true) : sums_(sums) {}

  struct Frame {
    FrameHead head;
    absl::Cord payload;  // Parts that have a place lie there.
  };
  using PlacesOf = std::function<std::shared_ptr<PayloadPlaces>(const FrameHead&)>;
  // Returns the next frame of the bytes received; none if more are needed. `places_of`, which may
  // be null and return null, is asked once a frame. Errors: those of DecodeFrameHead and
  // FrameSum::Check; no frame can be read from then on.
  absl::StatusOr<std::optional<Frame>> Next(const PlacesOf& places_of = nullptr);
  // Writes nothing more to the places of this call's payload, which is not valid from then on.
  void DropPlaces(uint64_t call);

  // Receives once, without waiting. Returns the bytes; 0 if there are none now.
  // REQUIRES: Next has just returned none. Errors: kUnavailable  the connection has ended, or is
  // broken; says how.
  absl::StatusOr<size_t> Receive(SocketStream& stream);

 private:
  bool StartPiece();  // False: more must come before it is known where it goes.
  bool StartPlacedPiece(const PayloadPlaces::Place& place, size_t left);
  void OwnPiece(size_t size);
  void TakePiece();
  void Sum(absl::string_view bytes) {
    if (sums_) sum_.Add(bytes);
  }

  const bool sums_;
  std::vector<char> staged_ = std::vector<char>(64 << 10);  // Received and not yet looked at:
  size_t begin_ = 0, end_ = 0;                              // [begin, end).
  std::optional<FrameHead> head_;          // Head of the frame that is being received.
  FrameSum sum_;                           // Sum of the frame that is being received.
  std::shared_ptr<PayloadPlaces> places_;  // Null: all of it may lie anywhere.
  absl::Cord payload_;                     // Its pieces that are whole.
  char* piece_ = nullptr;                  // Null: none has been begun.
  std::unique_ptr<char[]> owned_;          // Owns it; null: it is a place.
  size_t piece_size_ = 0, piece_filled_ = 0;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_FRAME_FRAME_READER_H_
