#include "common/tensor/safetensors/safetensors.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>

#include "common/tensor/safetensors/safetensors_header.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::safetensors_test {
namespace {

using testing::ReadFile;
using testing::TestPath;

// A file of a header as given and `data_bytes` zero bytes.
std::string FileOf(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + std::string(data_bytes, '\0');
}

absl::StatusOr<std::vector<NamedTensor>> ReadBytes(const std::string& bytes) {
  const std::string path = TestPath("bytes");
  std::ofstream(path, std::ios::binary) << bytes;
  return ReadSafetensors(path);
}

const std::vector<float> kMatrix = {1, 2, 3, 4, 5, 6};
const std::vector<float> kScalar = {0.5f};

TEST_CASE("Safetensors: tensors come back as they were written", "[common][tensor]") {
  const std::string path = TestPath("round_trip");
  REQUIRE_OK(WriteSafetensors(
      path, {{"b.weight", {2, 3}, kMatrix}, {"a", {}, kScalar}, {"none", {0, 4}, {}}}));
  REQUIRE_OK_AND_ASSIGN(const auto tensors, ReadSafetensors(path));
  REQUIRE(tensors.size() == 3);
  CHECK(tensors[0].name == "b.weight");
  CHECK(tensors[0].shape == std::vector<int64_t>{2, 3});
  CHECK(tensors[0].values == kMatrix);
  CHECK(tensors[1].name == "a");
  CHECK(tensors[1].shape.empty());
  CHECK(tensors[1].values == kScalar);
  CHECK(tensors[2].shape == std::vector<int64_t>{0, 4});
}

TEST_CASE("Safetensors: the bytes are those of the format", "[common][tensor]") {
  const std::string path = TestPath("bytes_of_format");
  REQUIRE_OK(WriteSafetensors(path, {{"w", {1}, kScalar}}));
  const std::string header = R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const std::string padded = header + std::string(56 - header.size(), ' ');
  CHECK(ReadFile(path) == FileOf(padded, 0) + std::string("\0\0\0\x3f", 4));
}

TEST_CASE("Safetensors: what does not fit is not written", "[common][tensor]") {
  const std::string path = TestPath("never");
  const auto code = absl::StatusCode::kInvalidArgument;
  CHECK_STATUS(WriteSafetensors(path, {{"w", {7}, kMatrix}}), code,
               "tensor \"w\" has 6 values, expected as many as its shape [7] holds");
  CHECK_STATUS(WriteSafetensors(path, {{"w", {-2, -3}, kMatrix}}), code, "tensor \"w\" has 6");
  CHECK_STATUS(WriteSafetensors(path, {{"", {1}, kScalar}}), code, "tensor name \"\"");
  CHECK_STATUS(WriteSafetensors(path, {{"__metadata__", {1}, kScalar}}), code, "__metadata__");
  CHECK_STATUS(WriteSafetensors(path, {{"w", {1}, kScalar}, {"w", {1}, kScalar}}), code, "\"w\"");
  CHECK(ReadSafetensors(path).status().code() == absl::StatusCode::kNotFound);
  CHECK_STATUS(ReadSafetensors("/dev/zero"), absl::StatusCode::kPermissionDenied,
               "/dev/zero: cannot be read: a device, expected a regular file");
}

TEST_CASE("Safetensors: names are escaped and read back", "[common][tensor]") {
  const std::string path = TestPath("names");
  const std::string name = "q\"b\\s/\n\xc3\xa9";
  REQUIRE_OK(WriteSafetensors(path, {{name, {1}, kScalar}}));
  REQUIRE_OK_AND_ASSIGN(const auto tensors, ReadSafetensors(path));
  CHECK(tensors[0].name == name);
}

TEST_CASE("Safetensors: whole numbers of 64 bits are read", "[common][tensor]") {
  const std::string header = R"({"k":{"dtype":"U64","shape":[2],"data_offsets":[0,16]}})";
  REQUIRE_OK_AND_ASSIGN(const auto tensors, ReadBytes(FileOf(header, 0) + std::string(8, '\xff') +
                                                      std::string("\1\0\0\0\0\0\0\0", 8)));
  REQUIRE(tensors.size() == 1);
  CHECK(tensors[0].keys == std::vector<uint64_t>{~uint64_t{0}, 1});
  CHECK(tensors[0].values.empty());
  std::string half = header;
  half.replace(half.find("[0,16]"), 6, "[0,8]");
  CHECK_STATUS(ReadBytes(FileOf(half, 8)), absl::StatusCode::kDataLoss,
               "shape [2] does not agree with its 8 bytes of U64");
}

TEST_CASE("Safetensors: fp16 and bf16 are widened", "[common][tensor]") {
  // 1, -2 and the smallest fp16; 1 and -2.
  const std::string header = R"({"h":{"dtype":"F16","shape":[3],"data_offsets":[0,6]},)"
                             R"("b":{"dtype":"BF16","shape":[2,1],"data_offsets":[6,10]}})";
  REQUIRE_OK_AND_ASSIGN(
      const auto tensors,
      ReadBytes(FileOf(header, 0) + std::string("\x00\x3c\x00\xc0\x01\x00\x80\x3f\x00\xc0", 10)));
  REQUIRE(tensors.size() == 2);
  CHECK(tensors[0].values == std::vector<float>{1, -2, 0x1p-24f});
  CHECK(tensors[1].values == std::vector<float>{1, -2});
  CHECK(tensors[1].shape == std::vector<int64_t>{2, 1});
}

TEST_CASE("Safetensors: other writers' headers are read", "[common][tensor]") {
  REQUIRE_OK_AND_ASSIGN(
      const auto tensors,
      ReadBytes(FileOf("{ \"__metadata__\": {\"format\": \"pt\"},\n"
                       "\"z\\u00e9\\ud83d\\ude00\": {\"shape\": [1], \"data_offsets\": [4, 8], "
                       "\"dtype\": \"F32\"}, \"e\":{\"dtype\":\"F32\",\"shape\":[0],"
                       "\"data_offsets\":[4,4]}, \"y\":{\"dtype\":\"F32\",\"shape\":[],"
                       "\"data_offsets\":[0,4]}}   ",
                       8)));
  REQUIRE(tensors.size() == 3);
  CHECK(tensors[0].name == "y");
  CHECK(tensors[1].name == "e");
  CHECK(tensors[2].name == "z\xc3\xa9\xf0\x9f\x98\x80");
}

struct BadFile {
  std::string bytes;
  const char* message;
};

std::string OneTensor(const std::string& shape, const std::string& offsets) {
  return R"({"w":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

TEST_CASE("Safetensors: malformed files are refused with the reason", "[common][tensor]") {
  const BadFile cases[] = {
      {"", "the file has 0 bytes, expected at least 8"},
      {"1234567", "the file has 7 bytes"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), "the header's length is"},
      {FileOf("{}", 0).substr(0, 9), "the header's length is out of range, expected at most 1"},
      {FileOf("", 0), "expected '{'"},
      {FileOf("{", 0), "expected '\"'"},
      {FileOf("{} x", 0), "text after the header's object"},
      {FileOf("{}", 4), "the tensors end at byte 0, the data at byte 4"},
      {FileOf("{\"w", 0), "string without end"},
      {FileOf("{\"w\\", 0), "string without end"},
      {FileOf("{\"\\x\":{}}", 0), "unknown escape"},
      {FileOf("{\"\\u12g4\":{}}", 0), "four hexadecimal digits"},
      {FileOf("{\"\\ud800\":{}}", 0), "half of a surrogate pair"},
      {FileOf("{\"\xa4\":{}}", 0), "a string that is not UTF-8"},
      {FileOf("{\"w\":{}}", 0), "tensor \"w\" lacks one of dtype, shape and data_offsets"},
      {FileOf("{\"w\":{\"size\":4}}", 4), "unknown key \"size\""},
      {FileOf(OneTensor("[2]", "[0,4]"), 4), "shape [2] does not agree with its 4 bytes"},
      {FileOf(OneTensor("[1]", "[0,8]"), 4), "expected to begin at 0 and to end by 4"},
      {FileOf(OneTensor("[1]", "[4,8]"), 8), "data_offsets are [4,8], expected to begin at 0"},
      {FileOf(OneTensor("[1]", "[4]"), 4), "data_offsets without two numbers"},
      {FileOf(OneTensor("[-1]", "[0,4]"), 4), "expected a whole number"},
      {FileOf(OneTensor("[01]", "[0,4]"), 4), "expected a whole number"},
      {FileOf(OneTensor("[99999999999999999999]", "[0,4]"), 4), "expected a whole number"},
      {FileOf(OneTensor("[4611686018427387904,4]", "[0,4]"), 4), "does not agree"},
      {FileOf(OneTensor("[1]", "[0,4]") + "{", 4), "text after"},
      {FileOf("{\"__metadata__\":{\"a\":1}}", 0), "expected '\"'"},
  };
  for (const BadFile& bad : cases) {
    INFO(bad.bytes);
    CHECK_STATUS(ReadBytes(bad.bytes), absl::StatusCode::kDataLoss, bad.message);
  }
  std::string twice = OneTensor("[1]", "[0,4]");
  twice.back() = ',';
  twice += OneTensor("[1]", "[4,8]").substr(1);
  CHECK_STATUS(ReadBytes(FileOf(twice, 8)), absl::StatusCode::kDataLoss, "key \"w\" is repeated");
  std::string half = OneTensor("[1]", "[0,2]");
  half.replace(half.find("F32"), 3, "I16");
  CHECK_STATUS(ReadBytes(FileOf(half, 2)), absl::StatusCode::kUnimplemented,
               "tensor \"w\": unknown dtype, expected \"F32\"");
}

TEST_CASE("Safetensors: no prefix of a file is taken for a file", "[common][tensor]") {
  const std::string path = TestPath("prefixes");
  REQUIRE_OK(WriteSafetensors(path, {{"b.weight", {2, 3}, kMatrix}}));
  const std::string whole = ReadFile(path);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    CHECK(ReadBytes(whole.substr(0, bytes)).status().code() == absl::StatusCode::kDataLoss);
  }
}

}  // namespace
}  // namespace capstan::safetensors_test
