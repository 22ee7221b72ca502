#include "common/examples/files/line_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "common/data/testing/test_files.h"
#include "common/examples/files/line_position.h"
#include "common/examples/streams/testing/stream_checks.h"
#include "common/examples/testing/example_files.h"
#include "common/status/status_macros.h"
#include "common/testing/status_matchers.h"

namespace capstan::line_reader_test {
namespace {

using ::capstan::testing::Bytes;
using ::capstan::testing::Concatenate;
using ::capstan::testing::Gzip;
using ::capstan::testing::TemporaryFolder;
using ::capstan::testing::ToBytes;
using ::capstan::testing::Zstd;
using Lines = std::vector<std::string>;
using Options = LineReader::Options;

// Appends the lines of a range to `lines`, each checked for its number and place in `text`.
absl::Status AppendLines(const FileRange& range, const Options& options, const std::string& text,
                         Lines* lines) {
  CAPSTAN_ASSIGN_OR_RETURN(const auto reader, LineReader::Open(range, options));
  absl::string_view line;
  while (true) {
    CAPSTAN_ASSIGN_OR_RETURN(const bool more, reader->Next(&line));
    if (!more) break;
    lines->emplace_back(line);
    const auto begin = static_cast<size_t>(reader->line_begin());
    REQUIRE(text.substr(begin, line.size()) == line);
    const auto newlines = std::count(text.begin(), text.begin() + reader->line_begin(), '\n');
    REQUIRE(Locate(range.path, reader->position()) ==
            range.path + ":" + std::to_string(newlines + 1));
  }
  CAPSTAN_ASSIGN_OR_RETURN(const bool more, reader->Next(&line));
  REQUIRE_FALSE(more);
  return absl::OkStatus();
}

absl::StatusOr<Lines> ReadLines(const std::string& path, const std::string& text,
                                const Options& options = {}) {
  Lines lines;
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path));
  CAPSTAN_RETURN_IF_ERROR(AppendLines({path, 0, bytes}, options, text, &lines));
  return lines;
}

constexpr absl::string_view kMark = "\xef\xbb\xbf";

// The rule of line_reader.h, one byte at a time.
Lines Pieces(const std::string& text, size_t window) {
  Lines pieces;
  std::string piece;
  size_t due = window;  // The next multiple that is still to be cut at.
  for (size_t i = 0; i < text.size(); ++i) {
    const bool space = std::string(" \t\n\v\f\r").find(text[i]) != std::string::npos;
    const bool at_window = window > 0 && space && i >= due;
    if (at_window) due = (i / window + 1) * window;
    if (text[i] != '\n' && !at_window) {
      piece += text[i];
      continue;
    }
    if (!piece.empty() && piece.back() == '\r') piece.pop_back();
    pieces.push_back(piece);
    piece.clear();
  }
  if (!piece.empty() && piece.back() == '\r') piece.pop_back();
  if (!text.empty() && text.back() != '\n') pieces.push_back(piece);
  if (absl::StartsWith(text, kMark)) pieces.front().erase(0, kMark.size());
  return pieces;
}

TEST_CASE("Line reader: line ends of both kinds, and none at the end", "[common][examples]") {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& text) {
    REQUIRE_OK_AND_ASSIGN(const Lines lines, ReadLines(folder.Write("f", ToBytes(text)), text));
    return lines;
  };
  CHECK(read("a\nbc\n") == Lines{"a", "bc"});
  CHECK(read("a\r\nbc") == Lines{"a", "bc"});
  CHECK(read("\n\r\n\n") == Lines{"", "", ""});
  CHECK(read("").empty());
  CHECK(read("a\rb\r\r\n") == Lines{"a\rb\r"});
  CHECK(read("a\r") == Lines{"a"});
  CHECK(read(std::string("\0\n\0\xff", 4)) == Lines{std::string(1, '\0'), {'\0', '\xff'}});
  CHECK(read("\xef\xbb\xbf"
             "a\nb") == Lines{"a", "b"});
  CHECK(read("\xef\xbb\xbf").empty());
  CHECK(read("a\n\xef\xbb\xbf") == Lines{"a", "\xef\xbb\xbf"});
  CHECK(read("\xef\xbb") == Lines{"\xef\xbb"});
}

TEST_CASE("Line reader: however a file is cut, each line comes once", "[common][examples]") {
  const TemporaryFolder folder;
  for (const std::string text : {"aaa\nbbbbbbbb\r\ncc\n\nd", "\n\na b  c d\te\n", "x", "one word\n",
                                 "no newline but blanks", "   \r\n \n",
                                 "\xef\xbb\xbf"
                                 "a b\nc\n",
                                 "\xef\xbb\xbf\r\n\xef\xbb\xbf"}) {
    const std::string path = folder.Write("f", ToBytes(text));
    const auto size = static_cast<int64_t>(text.size());
    for (const int64_t window : {0, 1, 2, 5, 100}) {
      const Lines expected = Pieces(text, static_cast<size_t>(window));
      for (const int64_t read_bytes : {1, 3, 1000}) {
        for (int64_t i = 0; i <= size; ++i) {
          for (int64_t j = i; j <= size; ++j) {
            Lines lines;
            const Options options = {.window_bytes = window, .read_bytes = read_bytes};
            for (const auto& [begin, end] : {std::pair(int64_t{0}, i), {i, j}, {j, size}}) {
              REQUIRE_OK(AppendLines({path, begin, end}, options, text, &lines));
            }
            INFO("'" << text << "' cut at " << i << ", " << j << "; window " << window);
            REQUIRE(lines == expected);
          }
        }
      }
    }
  }
}

TEST_CASE("Line reader: compressed files in several parts", "[common][examples]") {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "line " + std::to_string(i) + "\r\n";
  const Bytes first = ToBytes(text.substr(0, 333'333));
  const Bytes second = ToBytes(text.substr(333'333));
  for (const std::string& path :
       {folder.Write("a.gz", Concatenate({Gzip(first), Gzip(second)})),
        folder.Write("a.zst", Concatenate({Zstd(first), Zstd(second)}))}) {
    absl::string_view line;
    REQUIRE_OK_AND_ASSIGN(const auto reader, LineReader::Open({path, 0, 1}, {}));
    for (int i = 0; i < 100'000; ++i) {
      REQUIRE_OK_AND_ASSIGN(const bool more, reader->Next(&line));
      REQUIRE(more);
      REQUIRE(line == "line " + std::to_string(i));
    }
    CHECK(Locate(path, reader->position()) == path + ":100000");
    REQUIRE_OK_AND_ASSIGN(const bool more, reader->Next(&line));
    CHECK_FALSE(more);
  }
}

TEST_CASE("Line reader: truncated compression fails after the lines before it",
          "[common][examples]") {
  const TemporaryFolder folder;
  for (Bytes whole : {Gzip(ToBytes("a\nb\nc\n")), Zstd(ToBytes("a\nb\nc\n"))}) {
    const bool gzip = whole[0] == 0x1f;
    whole.pop_back();
    const std::string path = folder.Write(gzip ? "f.gz" : "f.zst", whole);
    CHECK_STATUS(ReadLines(path, "a\nb\nc\n"), absl::StatusCode::kDataLoss, path + ": truncated");
  }
}

TEST_CASE("Line reader: a line over the limit fails with file and number", "[common][examples]") {
  const TemporaryFolder folder;
  const Options options = {.line_bytes_max = 10, .read_bytes = 4};
  const std::string fits = "a\n0123456789\r\n0123456789\n0123456789";
  REQUIRE_OK_AND_ASSIGN(const Lines lines,
                        ReadLines(folder.Write("fits", ToBytes(fits)), fits, options));
  CHECK(lines.size() == 4);
  for (const std::string text :
       {"a\nb\n0123456789x\n", "a\nb\n0123456789x", "a\nb\n0123456789xx"}) {
    const std::string path = folder.Write("f", ToBytes(text));
    CHECK_STATUS(ReadLines(path, text, options), absl::StatusCode::kDataLoss,
                 path + ":3: a line of more than 10 bytes");
    // From the middle of the file on, the number is the same.
    Lines ignored;
    const auto size = static_cast<int64_t>(text.size());
    CHECK_STATUS(AppendLines({path, 3, size}, options, text, &ignored), absl::StatusCode::kDataLoss,
                 path + ":3: a line of more than 10 bytes");
    // The rest of a long line is the matter of the range that holds its begin.
    REQUIRE_OK(AppendLines({path, 5, size}, options, text, &ignored));
  }
}

TEST_CASE("Line reader: a small file that decompresses to a long line is refused",
          "[common][examples]") {
  const TemporaryFolder folder;
  const Bytes zeros(16 << 20, 0);
  for (const std::string& path :
       {folder.Write("bomb.gz", Concatenate({Gzip(zeros), Gzip(zeros), Gzip(zeros)})),
        folder.Write("bomb.zst", Concatenate({Zstd(zeros), Zstd(zeros), Zstd(zeros)}))}) {
    REQUIRE_OK_AND_ASSIGN(const auto reader, LineReader::Open({path, 0, 1}, {}));
    absl::string_view line;
    CHECK_STATUS(reader->Next(&line), absl::StatusCode::kDataLoss,
                 path + ":1: a line of more than 16777216 bytes");
  }
}

TEST_CASE("Line reader: an error stays", "[common][examples]") {
  const TemporaryFolder folder;
  const std::string path = folder.Write("f", ToBytes("0123456789\nb\n"));
  REQUIRE_OK_AND_ASSIGN(const auto reader, LineReader::Open({path, 0, 13}, {.line_bytes_max = 5}));
  absl::string_view line;
  for (int i = 0; i < 3; ++i) {
    CHECK_STATUS(reader->Next(&line), absl::StatusCode::kDataLoss, path + ":1: a line of more");
  }
}

TEST_CASE("Line reader: a file that became shorter is noticed", "[common][examples]") {
  const TemporaryFolder folder;
  const std::string path = folder.Write("f", ToBytes("a\nb\n"));
  Lines lines;
  CHECK_STATUS(AppendLines({path, 0, 5}, {}, "a\nb\n", &lines), absl::StatusCode::kDataLoss,
               "f: 4 bytes, expected at least 5");
  CHECK_STATUS(AppendLines({path, 7, 9}, {}, "a\nb\n", &lines), absl::StatusCode::kDataLoss,
               "expected at least 9");
}

TEST_CASE("Line reader: in a file of 100 GB it reads what it must, and no more",
          "[common][examples]") {
  // Sparse: a hole of zeros, then lines. The hole is one endless line.
  const TemporaryFolder folder;
  const std::string path = folder.Write("f", ToBytes("a\n"));
  const int64_t size = 100'000'000'000;
  const std::string tail = "\nb\nc";
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const auto tail_bytes = static_cast<ssize_t>(tail.size());
  const bool written = pwrite(fd, tail.data(), tail.size(), size - tail_bytes) == tail_bytes;
  close(fd);
  REQUIRE(written);
  absl::string_view line;
  REQUIRE_OK_AND_ASSIGN(const auto last, LineReader::Open({path, size - 1000, size}, {}));
  for (const char* expected : {"b", "c"}) {
    REQUIRE_OK_AND_ASSIGN(const bool more, last->Next(&line));
    REQUIRE(more);
    CHECK(line == expected);
  }
  REQUIRE_OK_AND_ASSIGN(const auto middle,
                        LineReader::Open({path, size / 2, size / 2 + 100'000'000}, {}));
  REQUIRE_OK_AND_ASSIGN(const bool any, middle->Next(&line));
  CHECK_FALSE(any);
  REQUIRE_OK_AND_ASSIGN(const auto first, LineReader::Open({path, 0, 10}, {}));
  REQUIRE_OK_AND_ASSIGN(const bool more, first->Next(&line));
  CHECK(more);
  CHECK_STATUS(first->Next(&line), absl::StatusCode::kDataLoss,
               path + ":2: a line of more than 16777216 bytes");
}

}  // namespace
}  // namespace capstan::line_reader_test
