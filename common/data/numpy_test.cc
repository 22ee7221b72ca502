#include "common/data/numpy.h"

#include <zlib.h>

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/data/testing/test_files.h"
#include "common/testing/status_matchers.h"

namespace capstan::numpy_test {
namespace {

using testing::Bytes;

constexpr auto kLost = absl::StatusCode::kDataLoss;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

void Put(uint64_t word, int count, Bytes* bytes) {
  for (int i = 0; i < count; ++i) bytes->push_back(static_cast<uint8_t>(word >> (8 * i)));
}

Bytes Npy(const std::string& header, const Bytes& numbers, int version = 1) {
  Bytes file = {0x93, 'N', 'U', 'M', 'P', 'Y', static_cast<uint8_t>(version), 0};
  Put(header.size(), version == 1 ? 2 : 4, &file);
  file.insert(file.end(), header.begin(), header.end());
  file.insert(file.end(), numbers.begin(), numbers.end());
  return file;
}

std::string Header(const std::string& type, const std::string& shape) {
  return absl::StrCat("{'descr': '", type, "', 'fortran_order': False, 'shape': ", shape,
                      ", }  \n");
}

Bytes Deflate(const Bytes& bytes) {
  z_stream stream = {};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  Bytes out(bytes.size() + 100);
  stream.next_in = const_cast<uint8_t*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// An archive of one file under two names: stored, with an extra field, and deflated.
Bytes Zip(const Bytes& file) {
  Bytes zip, directory;
  for (const bool deflated : {false, true}) {
    const std::string name = deflated ? "packed.npy" : "plain.npy";
    const Bytes packed = deflated ? Deflate(file) : file;
    const size_t extra = deflated ? 0 : 4;
    const auto sizes = [&](Bytes* out) {
      Put(deflated ? 8 : 0, 2, out);
      Put(0, 4, out);  // Time and date.
      Put(crc32_z(0, file.data(), file.size()), 4, out);
      Put(packed.size(), 4, out);
      Put(file.size(), 4, out);
      Put(name.size(), 2, out);
    };
    Put(0x02014b50, 4, &directory);
    Put(20, 2, &directory);
    Put(20, 2, &directory);
    Put(0, 2, &directory);
    sizes(&directory);
    Put(0, 12, &directory);  // Extra field, comment, disk, attributes: 2 + 2 + 2 + 2 + 4.
    Put(zip.size(), 4, &directory);
    directory.insert(directory.end(), name.begin(), name.end());
    Put(0x04034b50, 4, &zip);
    Put(20, 2, &zip);
    Put(0, 2, &zip);
    sizes(&zip);
    Put(extra, 2, &zip);
    zip.insert(zip.end(), name.begin(), name.end());
    Put(0, static_cast<int>(extra), &zip);
    zip.insert(zip.end(), packed.begin(), packed.end());
  }
  const size_t begin = zip.size();
  zip.insert(zip.end(), directory.begin(), directory.end());
  Put(0x06054b50, 4, &zip);
  Put(0, 4, &zip);
  Put(2, 2, &zip);
  Put(2, 2, &zip);
  Put(directory.size(), 4, &zip);
  Put(begin, 4, &zip);
  Put(3, 2, &zip);
  zip.insert(zip.end(), {'a', 'b', 'c'});  // A comment.
  return zip;
}

TEST_CASE("NumPy: an array has its type, shape and numbers, in every version", "[data]") {
  for (const int version : {1, 2, 3}) {
    REQUIRE_OK_AND_ASSIGN(const NumpyArray array,
                          ParseNpy("a", Npy(Header("|u1", "(2, 3)"), {1, 2, 3, 4, 5, 6}, version)));
    CHECK(array.type == "|u1");
    CHECK(array.shape == std::vector<int64_t>{2, 3});
    CHECK(array.bytes == Bytes{1, 2, 3, 4, 5, 6});
  }
  REQUIRE_OK_AND_ASSIGN(const NumpyArray one, ParseNpy("a", Npy(Header("<i2", "(1,)"), {1, 0})));
  CHECK(one.shape == std::vector<int64_t>{1});
  REQUIRE_OK_AND_ASSIGN(const NumpyArray scalar, ParseNpy("a", Npy(Header("<f4", "()"), Bytes(4))));
  CHECK(scalar.shape.empty());
}

TEST_CASE("NumPy: what is no array is named", "[data]") {
  CHECK_STATUS(ParseNpy("a", {}), kLost, "a: 0 bytes that do not begin as a .npy file");
  CHECK_STATUS(ParseNpy("a", Npy(Header("|u1", "(2,)"), {1, 2}, 4)), kLost, "version 4");
  CHECK_STATUS(ParseNpy("a", Npy(Header("|u1", "(3,)"), {1, 2})), kLost,
               "2 bytes of numbers, expected those of 3 of |u1");
  CHECK_STATUS(ParseNpy("a", Npy(Header("|u1", "(1,)"), {1, 2})), kLost, "2 bytes of numbers");
  CHECK_STATUS(ParseNpy("a", Npy(Header("<i8", "(4611686018427387904, 4)"), {})), kLost, "0 bytes");
  CHECK_STATUS(ParseNpy("a", Npy(Header("|u1", "(-1,)"), {})), kLost, "no shape");
  CHECK_STATUS(ParseNpy("a", Npy("{'descr': '|u1'}", {})), kLost, "no shape");
  CHECK_STATUS(ParseNpy("a", Npy(Header("|O", "(1,)"), {1})), kInvalid, "expected numbers");
  std::string fortran = Header("|u1", "(1,)");
  fortran.replace(fortran.find("False"), 5, "True");
  CHECK_STATUS(ParseNpy("a", Npy(fortran, {1})), kInvalid, "Fortran's order");
  const Bytes whole = Npy(Header("|u1", "(2,)"), {1, 2});
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    CHECK_FALSE(ParseNpy("a", Bytes(whole.begin(), whole.begin() + ptrdiff_t(bytes))).ok());
  }
}

TEST_CASE("NumPy: members of an archive, stored and deflated", "[data]") {
  const Bytes file = Npy(Header("|u1", "(300,)"), Bytes(300, 7));
  const Bytes zip = Zip(file);
  for (const char* const name : {"plain.npy", "packed.npy"}) {
    REQUIRE_OK_AND_ASSIGN(const Bytes member, ReadZipMember("a.npz", zip, name, 1000));
    CHECK(member == file);
  }
  CHECK_STATUS(ReadZipMember("a.npz", zip, "x.npy", 1000), absl::StatusCode::kNotFound,
               "a.npz: has no x.npy, expected one of plain.npy, packed.npy");
  CHECK_STATUS(ReadZipMember("a.npz", zip, "packed.npy", 100), kLost, "expected at most 100");
}

TEST_CASE("NumPy: a damaged archive is told, and no byte crashes it", "[data]") {
  const Bytes zip = Zip(Npy(Header("|u1", "(300,)"), Bytes(300, 7)));
  CHECK_STATUS(ReadZipMember("a.npz", Bytes(50, 1), "x", 1000), kLost,
               "a.npz: 50 bytes, expected a ZIP archive");
  for (size_t at = 0; at < zip.size(); ++at) {
    Bytes damaged = zip;
    damaged[at] ^= 0xff;
    for (const char* const name : {"plain.npy", "packed.npy"}) {
      const auto member = ReadZipMember("a.npz", damaged, name, 1000);
      // Dates, attributes and comments are not read: then it is the same file.
      if (member.ok()) CHECK(*member == *ReadZipMember("a.npz", zip, name, 1000));
    }
  }
  for (size_t bytes = 0; bytes < zip.size(); ++bytes) {
    const Bytes cut(zip.begin(), zip.begin() + static_cast<ptrdiff_t>(bytes));
    if (bytes + 3 < zip.size()) CHECK_FALSE(ReadZipMember("a.npz", cut, "plain.npy", 1000).ok());
  }
}

TEST_CASE("NumPy: labels are small whole numbers of any width", "[data]") {
  const auto numbers = [](const char* type, const Bytes& bytes) {
    return SmallNumbers("y", {.type = type, .shape = {}, .bytes = bytes}, 10);
  };
  REQUIRE_OK_AND_ASSIGN(const Bytes wide,
                        numbers("<i8", {3, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0}));
  CHECK(wide == Bytes{3, 9});
  REQUIRE_OK_AND_ASSIGN(const Bytes bytes, numbers("|u1", {1, 2}));
  CHECK(bytes == Bytes{1, 2});
  CHECK_STATUS(numbers("<u2", {1, 0, 10, 0}), kInvalid,
               "y: number 1 is out of range, expected 0 to 9");
  CHECK_STATUS(numbers("<i2", {0xff, 0xff}), kInvalid, "number 0 is out of range, expected 0 to 9");
  CHECK_STATUS(numbers("<i8", Bytes(8, 0xff)), kInvalid, "number 0 is out of range");
  CHECK_STATUS(numbers("<f4", Bytes(4)), kInvalid, "numbers of type <f4, expected whole ones");
  CHECK_STATUS(numbers(">i4", Bytes(4)), kInvalid, "little-endian");
}

TEST_CASE("NumPy: labels that are numbers of any type", "[data]") {
  const auto numbers = [](const char* type, const Bytes& bytes) {
    return RealNumbers("y", {.type = type, .shape = {}, .bytes = bytes});
  };
  using Floats = std::vector<float>;
  REQUIRE_OK_AND_ASSIGN(const Floats single, numbers("<f4", {0, 0, 0xc0, 0xbf, 0, 0, 0, 0}));
  CHECK(single == Floats{-1.5f, 0});
  REQUIRE_OK_AND_ASSIGN(const Floats twice, numbers("<f8", {0, 0, 0, 0, 0, 0, 0xf8, 0x3f}));
  CHECK(twice == Floats{1.5f});
  REQUIRE_OK_AND_ASSIGN(const Floats whole, numbers("<i2", {0xfe, 0xff, 3, 0}));
  CHECK(whole == Floats{-2, 3});
  REQUIRE_OK_AND_ASSIGN(const Floats flags, numbers("|b1", {1, 0}));
  CHECK(flags == Floats{1, 0});
  REQUIRE_OK_AND_ASSIGN(const Floats minus, numbers("<i8", Bytes(8, 0xff)));
  CHECK(minus == Floats{-1});
  CHECK_STATUS(numbers("<f4", {0, 0, 0, 0, 0, 0, 0xc0, 0x7f}), kInvalid,
               "y: number 1 is not finite as fp32, expected one that it holds");
  CHECK_STATUS(numbers("<f8", {0, 0, 0, 0, 0, 0, 0xe0, 0x7f}), kInvalid,
               "number 0 is not finite as fp32");
  CHECK_STATUS(numbers("<f2", Bytes(2)), kInvalid, "numbers of type <f2, expected <f4, <f8, or");
  CHECK_STATUS(numbers(">f4", Bytes(4)), kInvalid, "little-endian");
}

TEST_CASE("NumPy: a member that becomes too many bytes for its number is refused", "[data]") {
  const Bytes bomb = Zip(Bytes((64 << 20) + 1, 0));
  CHECK_STATUS(ReadZipMember("a.npz", bomb, "packed.npy", int64_t{8} << 30), kLost,
               "bytes of packed.npy are 67108865 decompressed, expected at most 250 times as many");
  REQUIRE_OK(ReadZipMember("a.npz", bomb, "plain.npy", int64_t{8} << 30));
}

}  // namespace
}  // namespace capstan::numpy_test
