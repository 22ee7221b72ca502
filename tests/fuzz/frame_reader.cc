// Bytes of a data connection, in pieces as a socket brings them, to FrameReader: frames, damaged
// ones and others. However the bytes are cut, and wherever their parts are placed, the reader gives
// the frames that DecodeFrame finds in the whole, and ends where that ends.
#include "common/net/frame/frame_reader.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/net/frame/frame.h"
#include "common/net/frame/testing/whole_frame.h"
#include "common/net/socket/socket_stream.h"
#include "common/storage/files/descriptor.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {
namespace {

constexpr size_t kSmallPiecesMax = 2000;

std::string MakeStream(Input& input) {
  std::string stream;
  while (!input.empty() && stream.size() < (1 << 20)) {
    const uint8_t what = input.Byte() % 8;
    if (what == 0) {
      absl::StrAppend(&stream, input.Take(input.Byte()));
    } else if (what == 1 && !stream.empty()) {
      char& byte = stream[input.Word() % stream.size()];
      byte = static_cast<char>(byte ^ (1 << input.Byte() % 8));
    } else {
      FrameHead head;
      head.kind = static_cast<FrameKind>(input.Byte() % 8);
      head.what = input.Byte();
      head.call = input.Byte();
      const bool large = what == 2;
      stream += EncodeFrame(head, large ? std::string(input.Byte() * size_t{300}, 'x')
                                        : std::string(input.Take(input.Byte())));
    }
  }
  return stream;
}

struct Found {
  std::vector<std::string> frames;  // Head and payload.
  bool failed = false;
};

std::string TextOf(const FrameHead& head, const std::string& payload) {
  const auto bytes = EncodeFrameHead(head);
  return std::string(bytes.data(), bytes.size()) + payload;
}

Found DecodeWhole(absl::string_view stream) {
  Found found;
  while (stream.size() >= kFrameHeadBytes) {
    const absl::StatusOr<FrameHead> head = DecodeFrameHead(stream.substr(0, kFrameHeadBytes));
    found.failed = !head.ok();
    if (found.failed) return found;
    const size_t sum_bytes = head->length > 0 ? kFrameSumBytes : 0;
    const size_t bytes = kFrameHeadBytes + head->length + sum_bytes;
    if (stream.size() < bytes) return found;
    const absl::StatusOr<std::string> payload = DecodeFrame(stream.substr(0, bytes));
    found.failed = !payload.ok();
    if (found.failed) return found;
    FUZZ_CHECK(payload->size() == head->length);
    found.frames.push_back(TextOf(*head, *payload));
    stream.remove_prefix(bytes);
  }
  return found;
}

// Places that follow a script of bytes, some of which cannot be.
class ScriptedPlaces final : public PayloadPlaces {
 public:
  explicit ScriptedPlaces(absl::string_view script) : script_(script) {}

  std::optional<Place> Next(absl::string_view come) override {
    const uint8_t byte = Step();
    if (byte % 4 == 0) return std::nullopt;
    const size_t bytes = std::min<size_t>(size_t{5} * Step(), room_.size() - used_);
    const Place place{.skip = come.size() * (byte % 4) / 2,
                      .to = absl::MakeSpan(room_).subspan(used_, bytes)};
    used_ += bytes;
    return place;
  }

 private:
  uint8_t Step() {
    return script_.empty() ? uint8_t{0} : static_cast<uint8_t>(script_[at_++ % script_.size()]);
  }

  const absl::string_view script_;
  size_t at_ = 0;
  std::vector<char> room_ = std::vector<char>(4096);
  size_t used_ = 0;
};

class Feeder {
 public:
  explicit Feeder(absl::string_view places) : places_(places) {
    int ends[2];
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    ours_.emplace(ends[0]);
    readers_ = PlainStream(Descriptor(ends[1]));
    TakeFrames();
  }

  void Feed(absl::string_view piece) {
    FUZZ_CHECK(send(ours_->get(), piece.data(), piece.size(), 0) ==
               static_cast<ssize_t>(piece.size()));
    size_t left = piece.size();
    while (left > 0 && !found_.failed) {
      const absl::StatusOr<size_t> received = reader_.Receive(*readers_);
      FUZZ_CHECK(received.ok() && *received > 0 && *received <= left);
      left -= *received;
      TakeFrames();
    }
  }
  const Found& found() const { return found_; }

 private:
  void TakeFrames() {
    const auto places_of = [this](const FrameHead&) -> std::shared_ptr<PayloadPlaces> {
      if (places_.empty()) return nullptr;
      lent_.push_back(std::make_shared<ScriptedPlaces>(places_));
      return lent_.back();
    };
    while (true) {
      absl::StatusOr<std::optional<FrameReader::Frame>> frame = reader_.Next(places_of);
      found_.failed = !frame.ok();
      if (found_.failed || !frame->has_value()) return;
      found_.frames.push_back(TextOf((*frame)->head, std::string((*frame)->payload)));
    }
  }

  const absl::string_view places_;
  std::optional<Descriptor> ours_;
  std::unique_ptr<SocketStream> readers_;
  std::vector<std::shared_ptr<PayloadPlaces>> lent_;  // Payloads lie in them.
  FrameReader reader_;
  Found found_;
};

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const absl::string_view cuts = input.Take(input.Byte() % 16);
  const absl::string_view places = input.Take(input.Byte() % 16);
  const std::string stream = MakeStream(input);
  Feeder feeder(places);
  absl::string_view rest = stream;
  for (size_t i = 0; !rest.empty() && !feeder.found().failed; ++i) {
    // Single bytes of all of a long stream would take a second.
    const size_t cut =
        cuts.empty() || i >= kSmallPiecesMax ? 255 : static_cast<uint8_t>(cuts[i % cuts.size()]);
    const absl::string_view piece = rest.substr(0, 1 + cut * cut);
    feeder.Feed(piece);
    rest.remove_prefix(piece.size());
  }
  const Found whole = DecodeWhole(stream);
  FUZZ_CHECK(feeder.found().frames == whole.frames);
  FUZZ_CHECK(feeder.found().failed == whole.failed);
  return 0;
}

}  // namespace capstan::fuzz
