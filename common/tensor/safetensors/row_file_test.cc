#include "common/tensor/safetensors/row_file.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "common/tensor/safetensors/row_key_reader.h"
#include "common/tensor/safetensors/safetensors.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::row_file_test {
namespace {

using testing::ReadFile;
using testing::TestPath;

// A folder of its own, whose files can be counted.
std::string Folder(const std::string& name) {
  const std::string folder = TestPath(name);
  REQUIRE_OK(MakeDirectories(folder));
  return folder;
}

int64_t FilesIn(const std::string& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

struct Rows {
  std::vector<uint64_t> keys;
  std::vector<float> values;
};

Rows MakeRows(uint64_t count, int64_t dim) {
  Rows rows;
  for (uint64_t i = 0; i < count; ++i) rows.keys.push_back(i * 0x9E3779B97F4A7C15);
  for (uint64_t i = 0; i < count * static_cast<uint64_t>(dim); ++i) {
    rows.values.push_back(static_cast<float>(i) / 4);
  }
  return rows;
}

// Writes in pieces of `piece` rows.
absl::Status Write(const std::string& path, const Rows& rows, int64_t dim, size_t piece) {
  auto writer = RowFileWriter::Create(path, dim);
  if (!writer.ok()) return writer.status();
  for (size_t at = 0; at < rows.keys.size(); at += piece) {
    const auto keys = absl::MakeConstSpan(rows.keys).subspan(at, piece);
    const auto dims = static_cast<size_t>(dim);
    const auto values = absl::MakeConstSpan(rows.values).subspan(at * dims, keys.size() * dims);
    if (const absl::Status added = writer->Add(keys, values); !added.ok()) return added;
  }
  CHECK(writer->rows() == static_cast<int64_t>(rows.keys.size()));
  return writer->Finish();
}

TEST_CASE("Row file: keys and rows come back by the reader of safetensors", "[common][tensor]") {
  const uint64_t count = GENERATE(0, 1, 7, 1000);
  const int64_t dim = GENERATE(1, 3, 16);
  const std::string folder =
      Folder("round_trip_" + std::to_string(count) + "_" + std::to_string(dim));
  const std::string path = folder + "/rows";
  const Rows rows = MakeRows(count, dim);
  REQUIRE_OK(Write(path, rows, dim, 10));
  REQUIRE_OK_AND_ASSIGN(const auto tensors, ReadSafetensors(path));
  REQUIRE(tensors.size() == 2);
  CHECK(tensors[0].name == "keys");
  CHECK(tensors[0].shape == std::vector<int64_t>{static_cast<int64_t>(count)});
  CHECK(tensors[0].keys == rows.keys);
  CHECK(tensors[1].name == "rows");
  CHECK(tensors[1].shape == std::vector<int64_t>{static_cast<int64_t>(count), dim});
  CHECK(tensors[1].values == rows.values);
  CHECK(FilesIn(folder) == 1);
}

TEST_CASE("Row file: the bytes are those of the format, aligned, and depend on the rows alone",
          "[common][tensor]") {
  const std::string folder = Folder("bytes");
  const Rows rows = MakeRows(3, 1);
  REQUIRE_OK(Write(folder + "/at_once", rows, 1, 3));
  REQUIRE_OK(Write(folder + "/one_by_one", rows, 1, 1));
  const std::string bytes = ReadFile(folder + "/at_once");
  CHECK(bytes == ReadFile(folder + "/one_by_one"));
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  CHECK(header_bytes % 8 == 0);
  REQUIRE(bytes.size() == 8 + header_bytes + 3 * 8 + 3 * 4);
  const std::string header = R"({"keys":{"dtype":"U64","shape":[3],"data_offsets":[0,24]},)"
                             R"("rows":{"dtype":"F32","shape":[3,1],"data_offsets":[24,36]}})";
  CHECK(bytes.substr(8, header.size()) == header);
  CHECK(bytes.substr(8, header_bytes).find_last_not_of(' ') == header.size() - 1);
  uint64_t second = 0;
  std::memcpy(&second, bytes.data() + 8 + header_bytes + 8, 8);
  CHECK(second == rows.keys[1]);
}

TEST_CASE("Row file: every bit of a number is kept, NaN's and infinity's too", "[common][tensor]") {
  const std::string path = Folder("special") + "/rows";
  const Rows rows = {{0, 1, ~uint64_t{0}},
                     {std::nanf("7"), -0.0f, std::numeric_limits<float>::infinity()}};
  REQUIRE_OK(Write(path, rows, 1, 3));
  REQUIRE_OK_AND_ASSIGN(const auto tensors, ReadSafetensors(path));
  CHECK(tensors[0].keys == rows.keys);
  CHECK(std::memcmp(tensors[1].values.data(), rows.values.data(), 12) == 0);
}

TEST_CASE("Row file: Python reads it with its standard library alone", "[common][tensor]") {
  const std::string folder = Folder("python");
  REQUIRE_OK(Write(folder + "/rows", MakeRows(3, 2), 2, 2));
  const std::string command =
      "/usr/bin/python3 -B common/tensor/read_rows.py " + folder + "/rows > " + folder + "/lines";
  REQUIRE(std::system(command.c_str()) == 0);
  CHECK(ReadFile(folder + "/lines") ==
        "[0, [0.0, 0.25]]\n"
        "[11400714819323198485, [0.5, 0.75]]\n"
        "[4354685564936845354, [1.0, 1.25]]\n");
}

TEST_CASE("Row file: until it is whole nothing is there, and nothing is left of what is let go",
          "[common][tensor]") {
  const std::string folder = Folder("partial");
  const std::string path = folder + "/rows";
  REQUIRE_OK(Write(path, MakeRows(1, 1), 1, 1));
  const std::string before = ReadFile(path);
  {
    REQUIRE_OK_AND_ASSIGN(RowFileWriter writer, RowFileWriter::Create(path, 1));
    REQUIRE_OK(writer.Add({1, 2}, {1.0f, 2.0f}));
    CHECK(ReadFile(path) == before);
    CHECK_STATUS(writer.Add({1, 2}, {1.0f}), absl::StatusCode::kInvalidArgument,
                 "2 keys with 1 numbers: expected 1 for each");
  }
  CHECK(ReadFile(path) == before);
  CHECK(FilesIn(folder) == 1);
  CHECK_STATUS(Write(folder + "/none/rows", MakeRows(1, 1), 1, 1), absl::StatusCode::kNotFound,
               folder + "/none/rows");
}

TEST_CASE("Row file: a disk that takes no more is told by name, and nothing is left on it",
          "[common][tensor]") {
  const std::string folder = Folder("full");
  const Rows rows = MakeRows(1000, 4);
  REQUIRE_OK(Write(folder + "/rows", rows, 4, 100));
  const std::string whole = ReadFile(folder + "/rows");
  rlimit before;
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  // The rows, the keys, or the rows behind the keys do not fit.
  const rlim_t limit = GENERATE(2'000, 10'000, 20'000);
  const rlimit small = {.rlim_cur = limit, .rlim_max = before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const absl::Status status = Write(folder + "/rows", rows, 4, 100);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, old_handler);
  CHECK_FALSE(status.ok());
  CHECK(status.message().find("cannot write " + folder + "/rows") != absl::string_view::npos);
  CHECK(ReadFile(folder + "/rows") == whole);
  CHECK(FilesIn(folder) == 1);
}

TEST_CASE("Row file: a table whose name is no file's is refused", "[common][tensor]") {
  CHECK(RowFileName("wide-1.b_2").value() == "rows-wide-1.b_2.safetensors");
  for (const char* name : {"", "a/b", "a b", "../x", "a\n"}) {
    CHECK_STATUS(RowFileName(name), absl::StatusCode::kInvalidArgument,
                 "no file can be named by it");
  }
}

TEST_CASE("RowKeyReader: all keys come, also more than a block, and of a file without numbers",
          "[common]") {
  const size_t count = GENERATE(0, 1, 8192, 20000);
  const int64_t dim = GENERATE(0, 2);
  const std::string path = TestPath("keys.safetensors");
  std::vector<uint64_t> keys;
  for (uint64_t i = 0; i < count; ++i) keys.push_back(i * 7 + 1);
  const std::vector<float> rows(count * static_cast<size_t>(dim), 0.5f);
  REQUIRE_OK_AND_ASSIGN(RowFileWriter file, RowFileWriter::Create(path, dim));
  REQUIRE_OK(file.Add(keys, rows));
  REQUIRE_OK(file.Finish());
  REQUIRE_OK_AND_ASSIGN(RowKeyReader reader, RowKeyReader::Open(path));
  size_t read = 0;
  for (; reader.key().has_value(); ++read) {
    REQUIRE(*reader.key() == keys[read]);
    REQUIRE_OK(reader.Next());
  }
  CHECK(read == count);
}

TEST_CASE("RowKeyReader: what is no file of rows is refused by name", "[common]") {
  const std::string path = TestPath("none.safetensors");
  CHECK_STATUS(RowKeyReader::Open(path), absl::StatusCode::kNotFound, path);
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  CHECK_STATUS(RowKeyReader::Open(path), absl::StatusCode::kPermissionDenied,
               path + ": cannot be read: a pipe, expected a regular file");
  REQUIRE(std::filesystem::remove(path));
  std::ofstream(path) << "short";
  CHECK_STATUS(RowKeyReader::Open(path), absl::StatusCode::kDataLoss, path);
  std::ofstream(path) << "12345678901234567890";
  CHECK_STATUS(RowKeyReader::Open(path), absl::StatusCode::kDataLoss, "a header of");
}

}  // namespace
}  // namespace capstan::row_file_test
