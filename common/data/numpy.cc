#include "common/data/numpy.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/data/expansion.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

using Bytes = std::vector<uint8_t>;

// Reads a little-endian number of `count` bytes. REQUIRES: `bytes` holds them.
uint64_t Word(const Bytes& bytes, size_t at, size_t count) {
  uint64_t word = 0;
  for (size_t i = 0; i < count; ++i) word |= uint64_t{bytes[at + i]} << (8 * i);
  return word;
}

// ---------------------------------------------------------------- .npy

constexpr absl::string_view kNpyMagic = "\x93NUMPY";

// Returns the value of `key` in a header such as {'descr': '<i8', 'shape': (3, 4), }, up to the
// comma that ends it; empty if there is none.
absl::string_view ValueOf(absl::string_view header, absl::string_view key) {
  const std::string quoted = absl::StrCat("'", key, "':");
  const size_t at = header.find(quoted);
  if (at == absl::string_view::npos) return "";
  absl::string_view rest = absl::StripAsciiWhitespace(header.substr(at + quoted.size()));
  const bool tuple = absl::StartsWith(rest, "(");
  const size_t end = tuple ? rest.find(')') : rest.find_first_of(",}");
  if (end == absl::string_view::npos) return "";
  return absl::StripAsciiWhitespace(rest.substr(0, tuple ? end + 1 : end));
}

std::optional<std::vector<int64_t>> ShapeOf(absl::string_view text) {
  if (!absl::ConsumePrefix(&text, "(") || !absl::ConsumeSuffix(&text, ")")) return std::nullopt;
  std::vector<int64_t> shape;
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(part, &size) || size < 0) return std::nullopt;
    shape.push_back(size);
  }
  return shape;
}

// Returns the bytes of one number of `type`; 0 if it is no type of numbers of 1 to 16 bytes.
int64_t BytesOf(absl::string_view type) {
  int64_t bytes = 0;
  if (type.size() < 3 || !absl::SimpleAtoi(type.substr(2), &bytes)) return 0;
  return absl::StrContains("biuf", type[1]) && bytes >= 1 && bytes <= 16 ? bytes : 0;
}

// ---------------------------------------------------------------- ZIP

constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kEntrySignature = 0x02014b50;
constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr size_t kEndBytes = 22, kEntryBytes = 46, kLocalBytes = 30;
constexpr size_t kCommentBytesMax = 65535;
constexpr uint64_t kStored = 0, kDeflated = 8;

struct ZipEntry {
  uint64_t flags = 0, method = 0, crc = 0, packed = 0, size = 0, local = 0;
};

absl::Status DamagedZip(absl::string_view name, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(name, ": a damaged ZIP archive: ", what));
}

// Returns where the record at the archive's end begins.
std::optional<size_t> FindEnd(const Bytes& bytes) {
  if (bytes.size() < kEndBytes) return std::nullopt;
  const size_t last = bytes.size() - kEndBytes;
  const size_t first = last > kCommentBytesMax ? last - kCommentBytesMax : 0;
  for (size_t at = last + 1; at-- > first;) {
    if (Word(bytes, at, 4) == kEndSignature) return at;
  }
  return std::nullopt;
}

absl::StatusOr<ZipEntry> FindEntry(absl::string_view name, const Bytes& bytes,
                                   const std::string& member) {
  const std::optional<size_t> end = FindEnd(bytes);
  if (!end.has_value()) {
    return absl::DataLossError(absl::StrCat(name, ": ", bytes.size(),
                                            " bytes, expected a ZIP "
                                            "archive (.npz)"));
  }
  const uint64_t count = Word(bytes, *end + 10, 2);
  uint64_t at = Word(bytes, *end + 16, 4);
  std::vector<std::string> members;
  for (uint64_t i = 0; i < count; ++i) {
    if (at + kEntryBytes > *end || Word(bytes, at, 4) != kEntrySignature) {
      return DamagedZip(name, "its directory is cut off");
    }
    const uint64_t name_bytes = Word(bytes, at + 28, 2);
    const uint64_t next =
        at + kEntryBytes + name_bytes + Word(bytes, at + 30, 2) + Word(bytes, at + 32, 2);
    if (next > *end) return DamagedZip(name, "its directory is cut off");
    const auto begin = bytes.begin() + static_cast<ptrdiff_t>(at + kEntryBytes);
    members.emplace_back(begin, begin + static_cast<ptrdiff_t>(name_bytes));
    if (members.back() == member) {
      return ZipEntry{.flags = Word(bytes, at + 8, 2),
                      .method = Word(bytes, at + 10, 2),
                      .crc = Word(bytes, at + 16, 4),
                      .packed = Word(bytes, at + 20, 4),
                      .size = Word(bytes, at + 24, 4),
                      .local = Word(bytes, at + 42, 4)};
    }
    at = next;
  }
  return absl::NotFoundError(
      absl::StrCat(name, ": has no ", member, ", expected one of ", absl::StrJoin(members, ", ")));
}

// Decompresses deflated data. It is an error if they do not give exactly `size` bytes.
absl::StatusOr<Bytes> Inflate(absl::string_view name, const uint8_t* packed, size_t packed_bytes,
                              size_t size) {
  Bytes out(size);
  z_stream stream = {};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) {
    return absl::ResourceExhaustedError(absl::StrCat(name, ": zlib has no memory"));
  }
  // Sizes have 32 bits in an archive without ZIP64, so zlib's counters hold them.
  stream.next_in = const_cast<uint8_t*>(packed);
  stream.avail_in = static_cast<uInt>(packed_bytes);
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(size);
  const int ended = inflate(&stream, Z_FINISH);
  const bool whole = ended == Z_STREAM_END && stream.avail_out == 0 && stream.avail_in == 0;
  inflateEnd(&stream);
  if (!whole) return DamagedZip(name, "its compressed data are");
  return out;
}

// Returns the number of `kind` ('b', 'i', 'u' or 'f') that the `width` bytes at `at` hold.
double NumberAt(const Bytes& bytes, size_t at, size_t width, char kind) {
  const uint64_t word = Word(bytes, at, width);
  if (kind == 'f' && width == 4) {
    return double{std::bit_cast<float>(static_cast<uint32_t>(word))};
  }
  if (kind == 'f') return std::bit_cast<double>(word);
  const bool negative = kind == 'i' && (word >> (8 * width - 1)) != 0;
  const uint64_t above = negative && width < 8 ? ~uint64_t{0} << (8 * width) : 0;
  return negative ? static_cast<double>(static_cast<int64_t>(word | above))
                  : static_cast<double>(word);
}

}  // namespace

absl::StatusOr<NumpyArray> ParseNpy(absl::string_view name, std::vector<uint8_t> bytes) {
  const auto wrong = [&](absl::string_view what) {
    return absl::DataLossError(absl::StrCat(name, ": ", what));
  };
  if (bytes.size() < 12 || !std::equal(kNpyMagic.begin(), kNpyMagic.end(), bytes.begin(),
                                       [](char a, uint8_t b) { return uint8_t(a) == b; })) {
    return wrong(absl::StrCat(bytes.size(), " bytes that do not begin as a .npy file"));
  }
  const int version = bytes[6];
  if (version < 1 || version > 3) {
    return wrong(absl::StrCat("version ", version, " of .npy, expected 1 to 3"));
  }
  const size_t length_bytes = version == 1 ? 2 : 4;
  const uint64_t data = 8 + length_bytes + Word(bytes, 8, length_bytes);
  if (data > bytes.size()) return wrong("its header is cut off");
  const std::string header(bytes.begin() + 8 + static_cast<ptrdiff_t>(length_bytes),
                           bytes.begin() + static_cast<ptrdiff_t>(data));
  NumpyArray array;
  absl::string_view type = ValueOf(header, "descr");
  const bool quoted = absl::ConsumePrefix(&type, "'") && absl::ConsumeSuffix(&type, "'");
  array.type = std::string(type);
  const int64_t number_bytes = quoted ? BytesOf(type) : 0;
  if (number_bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": holds values of another type, expected numbers"));
  }
  const absl::string_view order = ValueOf(header, "fortran_order");
  if (order == "True") {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": an array in Fortran's order, expected C's (numpy.ascontiguousarray)"));
  }
  const std::optional<std::vector<int64_t>> shape = ShapeOf(ValueOf(header, "shape"));
  if (order != "False" || !shape.has_value()) return wrong("its header has no shape or order");
  array.shape = *shape;
  int64_t expected = number_bytes;
  bool overflow = false;
  for (const int64_t size : array.shape) {
    overflow = __builtin_mul_overflow(expected, size, &expected) || overflow;
  }
  const auto found = static_cast<int64_t>(bytes.size() - data);
  if (overflow || found != expected) {
    return wrong(absl::StrCat(found, " bytes of numbers, expected those of ",
                              absl::StrJoin(array.shape, " x "), " of ", array.type));
  }
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(data));
  array.bytes = std::move(bytes);
  return array;
}

absl::StatusOr<std::vector<uint8_t>> ReadZipMember(absl::string_view name,
                                                   const std::vector<uint8_t>& bytes,
                                                   const std::string& member, int64_t bytes_max) {
  CAPSTAN_ASSIGN_OR_RETURN(const ZipEntry entry, FindEntry(name, bytes, member));
  if ((entry.flags & 1) != 0 || (entry.method != kStored && entry.method != kDeflated)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", member, " is encrypted or compressed by method ", entry.method,
                     ", expected it stored (0) or deflated (8)"));
  }
  if (entry.size > static_cast<uint64_t>(bytes_max)) {
    return DamagedZip(
        name, absl::StrCat(member, " has ", entry.size, " bytes, expected at most ", bytes_max));
  }
  if (entry.local + kLocalBytes > bytes.size() || Word(bytes, entry.local, 4) != kLocalSignature) {
    return DamagedZip(name, absl::StrCat(member, " is not where its directory says"));
  }
  const uint64_t begin = entry.local + kLocalBytes + Word(bytes, entry.local + 26, 2) +
                         Word(bytes, entry.local + 28, 2);
  if (begin + entry.packed > bytes.size() ||
      (entry.method == kStored && entry.packed != entry.size)) {
    return DamagedZip(name, absl::StrCat(member, " is cut off"));
  }
  const auto packed_bytes = static_cast<int64_t>(entry.packed);
  if (entry.method == kDeflated &&
      static_cast<int64_t>(entry.size) > DecompressedBytesMax(packed_bytes, bytes_max)) {
    return DamagedZip(
        name, absl::StrCat("the ", packed_bytes, " bytes of ", member, " are ", entry.size,
                           " decompressed, expected at most ", kExpansionMax, " times as many, or ",
                           kAnyExpansionBytes, "; one that is so on purpose can be stored"));
  }
  const uint8_t* const packed = bytes.data() + begin;
  Bytes out;
  if (entry.method == kStored) {
    out.assign(packed, packed + entry.packed);
  } else {
    CAPSTAN_ASSIGN_OR_RETURN(out, Inflate(name, packed, entry.packed, entry.size));
  }
  if (crc32_z(0, out.data(), out.size()) != entry.crc) {
    return DamagedZip(name, absl::StrCat("the CRC-32 of ", member, " differs"));
  }
  return out;
}

absl::StatusOr<std::vector<float>> RealNumbers(absl::string_view name, const NumpyArray& array) {
  const int64_t bytes = BytesOf(array.type);
  const char order = array.type[0], kind = array.type[1];
  const bool whole = (kind == 'u' || kind == 'i' || kind == 'b') && bytes <= 8;
  const bool real = kind == 'f' && (bytes == 4 || bytes == 8);
  if ((!whole && !real) || (order == '>' && bytes > 1)) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": numbers of type ", array.type,
                                                   ", expected <f4, <f8, or whole ones, "
                                                   "little-endian"));
  }
  const auto width = static_cast<size_t>(bytes);
  std::vector<float> numbers;
  numbers.reserve(array.bytes.size() / width);
  for (size_t at = 0; at < array.bytes.size(); at += width) {
    const double number = NumberAt(array.bytes, at, width, kind);
    numbers.push_back(static_cast<float>(number));
    if (std::isfinite(numbers.back())) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, ": number ", numbers.size() - 1,
                                                   " is not finite as fp32, expected one that it "
                                                   "holds"));
  }
  return numbers;
}

absl::StatusOr<std::vector<uint8_t>> SmallNumbers(absl::string_view name, const NumpyArray& array,
                                                  int64_t below) {
  const int64_t bytes = BytesOf(array.type);
  const char order = array.type[0], kind = array.type[1];
  const bool whole = kind == 'u' || kind == 'i' || kind == 'b';
  if (!whole || bytes > 8 || (order == '>' && bytes > 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": numbers of type ", array.type, ", expected whole ones, little-endian (|u1, <i8)"));
  }
  const auto width = static_cast<size_t>(bytes);
  std::vector<uint8_t> numbers;
  numbers.reserve(array.bytes.size() / width);
  for (size_t at = 0; at < array.bytes.size(); at += width) {
    const uint64_t word = Word(array.bytes, at, width);
    const bool negative = kind == 'i' && (word >> (8 * width - 1)) != 0;
    if (negative || word >= static_cast<uint64_t>(below)) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, ": number ", numbers.size(), " is out of range, expected 0 to ", below - 1));
    }
    numbers.push_back(static_cast<uint8_t>(word));
  }
  return numbers;
}

}  // namespace capstan
