#include "common/examples/files/line_reader.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/examples/streams/open_stream.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr absl::string_view kByteOrderMark = "\xef\xbb\xbf";

// Returns the place of the first newline in [from, end) of `bytes`, or `end`.
size_t FindNewline(const char* bytes, size_t from, size_t end) {
  const void* found = from < end ? std::memchr(bytes + from, '\n', end - from) : nullptr;
  return found == nullptr ? end : static_cast<size_t>(static_cast<const char*>(found) - bytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<LineReader>> LineReader::Open(FileRange range,
                                                             const Options& options) {
  std::unique_ptr<LineReader> reader(new LineReader(std::move(range), options));
  CAPSTAN_ASSIGN_OR_RETURN(reader->stream_,
                           OpenStream(reader->range_.path, reader->buffer_offset_));
  return reader;
}

LineReader::LineReader(FileRange range, const Options& options)
    : range_(std::move(range)), options_(options), compressed_(IsCompressed(range_.path)) {
  assert(options.line_bytes_max >= 1 && options.window_bytes >= 0 && options.read_bytes >= 1);
  assert(range_.begin >= 0 && range_.begin <= range_.end && (!compressed_ || range_.begin == 0));
  const int64_t window = options.window_bytes;
  if (range_.begin > 0) {
    // The byte before the range shows whether a line begins with the range. With windows, the bytes
    // since the window's beginning show it.
    buffer_offset_ = range_.begin - 1;
    if (window > 0) buffer_offset_ -= buffer_offset_ % window;
  }
  // Byte 0 is a multiple of the window as well, but nothing stands before it that could be cut off.
  if (window > 0) window_offset_ = std::max(buffer_offset_, window);
}

absl::StatusOr<bool> LineReader::Next(absl::string_view* line) {
  if (!failed_.ok()) return failed_;
  absl::StatusOr<bool> found = FindNext(line);
  if (!found.ok()) failed_ = found.status();
  return found;
}

absl::StatusOr<bool> LineReader::FindNext(absl::string_view* line) {
  if (!started_) {
    CAPSTAN_RETURN_IF_ERROR(range_.begin == 0 ? SkipByteOrderMark() : GoToFirstLine());
    started_ = true;
  }
  if (!compressed_ && OffsetOf(next_) - mark_bytes_ >= range_.end) return false;
  size_t from = next_;
  while (true) {
    const size_t cut = FindCut(from);
    if (cut < filled_ || (stream_ended_ && next_ < filled_)) {
      CAPSTAN_RETURN_IF_ERROR(Take(cut, line));
      return true;
    }
    if (stream_ended_) return false;
    const size_t seen = filled_ - next_;
    // The line may have one byte more: a "\r" that may turn out to belong to its end.
    if (seen > static_cast<size_t>(options_.line_bytes_max) + 1) return TooLong();
    CAPSTAN_RETURN_IF_ERROR(Fill());
    from = next_ + seen;
  }
}

// Goes to the first line of a range that does not begin with the file. Goes behind the range if no
// line begins in it.
absl::Status LineReader::GoToFirstLine() {
  while (true) {
    const size_t cut = FindCut(next_);
    next_ = std::min(cut + 1, filled_);
    if (cut < filled_) {
      if (OffsetOf(next_) >= range_.begin) break;
      continue;
    }
    if (stream_ended_ || OffsetOf(next_) >= range_.end) break;
    CAPSTAN_RETURN_IF_ERROR(Fill());
  }
  next_position_ = {.base = OffsetOf(next_), .newlines = 0};
  return absl::OkStatus();
}

absl::Status LineReader::SkipByteOrderMark() {
  while (filled_ < kByteOrderMark.size() && !stream_ended_) CAPSTAN_RETURN_IF_ERROR(Fill());
  if (absl::StartsWith(absl::string_view(buffer_.data(), filled_), kByteOrderMark)) {
    next_ = kByteOrderMark.size();
    mark_bytes_ = OffsetOf(next_);
  }
  return absl::OkStatus();
}

// Returns the place of the next cut at or after `from`, or filled_. Callers pass each byte only
// once.
size_t LineReader::FindCut(size_t from) {
  if (options_.window_bytes == 0) return FindNewline(buffer_.data(), from, filled_);
  const int64_t until_window = std::max<int64_t>(window_offset_ - OffsetOf(from), 0);
  const size_t window =
      from + static_cast<size_t>(std::min(until_window, static_cast<int64_t>(filled_ - from)));
  size_t cut = FindNewline(buffer_.data(), from, window);
  if (cut < window) return cut;
  while (cut < filled_ && !absl::ascii_isspace(static_cast<unsigned char>(buffer_[cut]))) ++cut;
  if (cut < filled_)
    window_offset_ = (OffsetOf(cut) / options_.window_bytes + 1) * options_.window_bytes;
  return cut;
}

// Makes room in the buffer and reads into it. Moves the bytes from next_ on to the front.
absl::Status LineReader::Fill() {
  if (next_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + next_, filled_ - next_);
    buffer_offset_ += static_cast<int64_t>(next_);
    filled_ -= next_;
    next_ = 0;
  }
  const auto read_bytes = static_cast<size_t>(options_.read_bytes);
  if (filled_ == buffer_.size()) {
    const size_t most = static_cast<size_t>(options_.line_bytes_max) + 2 + read_bytes;
    buffer_.resize(std::min(std::max(read_bytes, 2 * buffer_.size()), most));
  }
  CAPSTAN_ASSIGN_OR_RETURN(const size_t got,
                           stream_->Read(absl::MakeSpan(buffer_).subspan(filled_)));
  filled_ += got;
  if (got > 0) return absl::OkStatus();
  stream_ended_ = true;
  if (compressed_ || OffsetOf(filled_) >= range_.end) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(range_.path, ": ", OffsetOf(filled_),
                                          " bytes, expected at least ", range_.end,
                                          ": it changed since its size was asked for"));
}

absl::Status LineReader::Take(size_t cut, absl::string_view* line) {
  *line = absl::string_view(buffer_.data() + next_, cut - next_);
  if (absl::EndsWith(*line, "\r")) line->remove_suffix(1);
  if (line->size() > static_cast<size_t>(options_.line_bytes_max)) return TooLong();
  line_begin_ = OffsetOf(next_);
  position_ = next_position_;
  if (cut < filled_ && buffer_[cut] == '\n') ++next_position_.newlines;
  next_ = std::min(cut + 1, filled_);
  mark_bytes_ = 0;
  return absl::OkStatus();
}

absl::Status LineReader::TooLong() const {
  return absl::DataLossError(absl::StrCat(Locate(range_.path, next_position_),
                                          ": a line of more than ", options_.line_bytes_max,
                                          " bytes, expected at most that; is this a text file?"));
}

}  // namespace capstan
