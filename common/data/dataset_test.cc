#include "common/data/dataset.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <iostream>
#include <vector>

#include "common/data/testing/test_files.h"
#include "common/data/testing/test_images.h"
#include "common/testing/status_matchers.h"

namespace capstan::dataset_test {
namespace {

using ::capstan::testing::Bytes;
using ::capstan::testing::Concatenate;
using ::capstan::testing::Gzip;
using ::capstan::testing::IdxFile;
using ::capstan::testing::IdxImagesFile;
using ::capstan::testing::IdxLabelsFile;
using ::capstan::testing::NoisyBytes;
using ::capstan::testing::TemporaryFolder;

absl::StatusOr<Dataset> LoadSplit(v1::Data::Format format, const v1::Split& split) {
  v1::Data data;
  data.set_format(format);
  return LoadDataset(data, split);
}

// A .npy file of bytes.
Bytes Npy(const std::string& shape, const Bytes& numbers) {
  const std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': " + shape + ", }";
  Bytes file = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, static_cast<uint8_t>(header.size()), 0};
  file.insert(file.end(), header.begin(), header.end());
  return Concatenate({file, numbers});
}

// A split of two files written into a temporary folder.
struct IdxFixture {
  absl::StatusOr<Dataset> Load(const Bytes& images, const Bytes& labels) const {
    v1::Split split;
    split.set_images(folder.Write("images", images));
    split.set_labels(folder.Write("labels", labels));
    return LoadSplit(v1::Data::IDX, split);
  }
  TemporaryFolder folder;
};

TEST_CASE("Dataset: IDX images and labels, plain and gzip", "[common][data]") {
  const TemporaryFolder folder;
  v1::Split split;
  split.set_images(folder.Write("images.gz", Gzip(IdxImagesFile(2, 3, 4))));
  split.set_labels(folder.Write("labels", IdxLabelsFile({7, 0})));
  REQUIRE_OK_AND_ASSIGN(const Dataset dataset, LoadSplit(v1::Data::IDX, split));
  CHECK(dataset.shape == SampleShape{.h = 3, .w = 4, .c = 1});
  CHECK(dataset.count == 2);
  CHECK(dataset.classes == 10);
  CHECK(dataset.pixels == NoisyBytes(24));
  CHECK(dataset.labels == Bytes{7, 0});
}

TEST_CASE("Dataset: NumPy's arrays of images, with and without channels", "[common][data]") {
  const TemporaryFolder folder;
  v1::Split split;
  split.set_images(folder.Write("x.npy", Npy("(2, 1, 3)", {1, 2, 3, 4, 5, 6})));
  split.set_labels(folder.Write("y.npy", Npy("(2,)", {200, 0})));
  REQUIRE_OK_AND_ASSIGN(const Dataset grey, LoadSplit(v1::Data::NUMPY, split));
  CHECK(grey.shape == SampleShape{.h = 1, .w = 3, .c = 1});
  CHECK(grey.count == 2);
  CHECK(grey.pixels == Bytes{1, 2, 3, 4, 5, 6});
  CHECK(grey.labels == Bytes{200, 0});
  split.set_images(folder.Write("x.npy", Npy("(2, 1, 1, 3)", {1, 2, 3, 4, 5, 6})));
  REQUIRE_OK_AND_ASSIGN(const Dataset colours, LoadSplit(v1::Data::NUMPY, split));
  CHECK(colours.shape == SampleShape{.h = 1, .w = 1, .c = 3});
  split.set_images(folder.Write("x.npy", Npy("(3, 1, 1)", {1, 2, 3})));
  CHECK_STATUS(LoadSplit(v1::Data::NUMPY, split), absl::StatusCode::kDataLoss,
               "y.npy: labels [2], expected [3], one for each image of ");
  split.set_images(folder.Write("x.npy", Npy("(2, 3)", {1, 2, 3, 4, 5, 6})));
  CHECK_STATUS(LoadSplit(v1::Data::NUMPY, split), absl::StatusCode::kInvalidArgument,
               "an array [2, 3] of |u1, expected bytes (uint8) [n, h, w] or [n, h, w, c]");
  split.set_images(folder.Path("none.npz:x"));
  CHECK_STATUS(LoadSplit(v1::Data::NUMPY, split), absl::StatusCode::kNotFound, "none.npz: ");
}

TEST_CASE("Dataset: NumPy's labels may be numbers, or several flags", "[common][data]") {
  const TemporaryFolder folder;
  v1::Data data;
  data.set_format(v1::Data::NUMPY);
  v1::Split& split = *data.mutable_train();
  split.set_images(folder.Write("x.npy", Npy("(2, 1, 1)", {1, 2})));
  split.set_labels(folder.Write("y.npy", Npy("(2, 3)", {0, 1, 1, 1, 0, 1})));
  for (const LabelKind kind : {LabelKind::kNumbers, LabelKind::kFlags}) {
    REQUIRE_OK_AND_ASSIGN(const Dataset dataset, LoadDataset(data, split, kind));
    CHECK(dataset.classes == 3);
    CHECK(dataset.labels.empty());
    CHECK(dataset.targets == std::vector<float>{0, 1, 1, 1, 0, 1});
  }
  split.set_labels(folder.Write("y.npy", Npy("(2,)", {7, 1})));
  REQUIRE_OK_AND_ASSIGN(const Dataset one, LoadDataset(data, split, LabelKind::kNumbers));
  CHECK(one.classes == 1);
  CHECK(one.targets == std::vector<float>{7, 1});
  CHECK_STATUS(LoadDataset(data, split, LabelKind::kFlags), absl::StatusCode::kInvalidArgument,
               "y.npy: number 0 is another one, expected 0 or 1");
  split.set_labels(folder.Write("y.npy", Npy("(3,)", {7, 1, 2})));
  CHECK_STATUS(LoadDataset(data, split, LabelKind::kNumbers), absl::StatusCode::kDataLoss,
               "y.npy: labels [3], expected [2] or [2, k], numbers for each image of ");
  data.set_format(v1::Data::IDX);
  CHECK_STATUS(LoadDataset(data, split, LabelKind::kNumbers), absl::StatusCode::kInvalidArgument,
               "data format IDX has labels that are classes, expected NUMPY");
}

TEST_CASE("Dataset: a test split of folders has the labels of the training split",
          "[common][data]") {
  const TemporaryFolder folder;
  for (const char* const name :
       {"train", "train/ant", "train/bee", "train/cow", "test", "test/ant", "test/cow"}) {
    std::filesystem::create_directory(folder.Path(name));
  }
  const auto png = [&](const std::string& name, uint8_t pixel) {
    folder.Write(name, testing::PngFile(1, 1, 1, {pixel}));
  };
  png("train/ant/1.png", 1);
  png("train/bee/1.png", 2);
  png("train/cow/1.png", 3);
  png("test/ant/1.png", 4);
  png("test/cow/1.png", 5);
  v1::Data data;
  data.set_format(v1::Data::IMAGE_FOLDER);
  data.mutable_image_folder()->set_channels(1);
  data.mutable_train()->set_images(folder.Path("train"));
  data.mutable_test()->set_images(folder.Path("test"));
  REQUIRE_OK_AND_ASSIGN(Dataset test, LoadDataset(data, data.test()));
  CHECK(test.labels == Bytes{0, 2});
  CHECK(test.classes == 3);
  // The job's check writes the names down, so the training images may be elsewhere afterwards.
  REQUIRE_OK_AND_ASSIGN(const std::vector<std::string> names, ClassNamesOf(data));
  data.mutable_class_names()->Assign(names.begin(), names.end());
  data.mutable_train()->set_images("/none");
  REQUIRE_OK_AND_ASSIGN(test, LoadDataset(data, data.test()));
  CHECK(test.labels == Bytes{0, 2});
  data.mutable_test()->set_labels("x");
  CHECK_STATUS(LoadDataset(data, data.test()), absl::StatusCode::kInvalidArgument,
               "expected a folder in the first and nothing else");
}

TEST_CASE("Dataset: CIFAR-10 files are concatenated", "[common][data]") {
  const TemporaryFolder folder;
  v1::Split split;
  split.add_files(folder.Write("1.bin", Concatenate({{3}, Bytes(3072, 30)})));
  split.add_files(folder.Write("2.bin.gz", Gzip(Concatenate({{4}, Bytes(3072, 40)}))));
  REQUIRE_OK_AND_ASSIGN(const Dataset dataset, LoadSplit(v1::Data::CIFAR10_BINARY, split));
  CHECK(dataset.shape == SampleShape{.h = 32, .w = 32, .c = 3});
  CHECK(dataset.count == 2);
  CHECK(dataset.classes == 10);
  CHECK(dataset.labels == Bytes{3, 4});
  CHECK(dataset.pixels == Concatenate({Bytes(3072, 30), Bytes(3072, 40)}));
}

TEST_CASE("Dataset: paths that the format needs must be there, and no others", "[common][data]") {
  v1::Split split;
  CHECK_STATUS(LoadSplit(v1::Data::IDX, split), absl::StatusCode::kInvalidArgument,
               "expected the path of a file in each");
  CHECK_STATUS(LoadSplit(v1::Data::CIFAR10_BINARY, split), absl::StatusCode::kInvalidArgument,
               "files is empty");
  CHECK_STATUS(LoadSplit(v1::Data::FORMAT_UNSPECIFIED, split), absl::StatusCode::kInvalidArgument,
               "expected IDX, CIFAR10_BINARY, IMAGE_FOLDER or NUMPY");
  split.set_images("i");
  split.set_labels("l");
  split.add_files("batch.bin");
  CHECK_STATUS(LoadSplit(v1::Data::IDX, split), absl::StatusCode::kInvalidArgument,
               "files names 'batch.bin', expected none");
  CHECK_STATUS(LoadSplit(v1::Data::CIFAR10_BINARY, split), absl::StatusCode::kInvalidArgument,
               "expected neither");
}

TEST_CASE("Dataset: every bad IDX file is refused by name", "[common][data]") {
  const IdxFixture idx;
  const Bytes images = IdxImagesFile(2, 3, 3);
  const Bytes labels = IdxLabelsFile({1, 2});
  REQUIRE_OK(idx.Load(images, labels));

  CHECK_STATUS(idx.Load(images, IdxLabelsFile({1, 2, 3})), absl::StatusCode::kDataLoss,
               "labels: 3 labels, expected 2, one for each image of");
  CHECK_STATUS(idx.Load(images, IdxLabelsFile({1, 10})), absl::StatusCode::kInvalidArgument,
               "labels: label number 1 is out of range, expected 0 to 9");
  CHECK_STATUS(idx.Load({}, labels), absl::StatusCode::kDataLoss, "images: 0 bytes");
  CHECK_STATUS(idx.Load(images, {}), absl::StatusCode::kDataLoss, "labels: 0 bytes");
  CHECK_STATUS(idx.Load(labels, images), absl::StatusCode::kDataLoss, "images: magic number");
  CHECK_STATUS(idx.Load(IdxFile(0x803, {3, 3, 3}, NoisyBytes(18)), labels),
               absl::StatusCode::kDataLoss, "images: 18 bytes after the header");
}

TEST_CASE("Dataset: missing and damaged files are refused by name", "[common][data]") {
  const TemporaryFolder folder;
  v1::Split split;
  split.set_images(folder.Path("images.gz"));
  split.set_labels(folder.Write("labels", IdxLabelsFile({7, 0})));
  CHECK_STATUS(LoadSplit(v1::Data::IDX, split), absl::StatusCode::kNotFound, "images.gz");
  Bytes compressed = Gzip(IdxImagesFile(2, 3, 4));
  compressed.resize(compressed.size() - 3);
  folder.Write("images.gz", compressed);
  CHECK_STATUS(LoadSplit(v1::Data::IDX, split), absl::StatusCode::kDataLoss, "truncated");
  split.Clear();
  split.add_files(folder.Path("none.bin"));
  CHECK_STATUS(LoadSplit(v1::Data::CIFAR10_BINARY, split), absl::StatusCode::kNotFound, "none.bin");
}

TEST_CASE("Dataset: the real Fashion-MNIST has 10 balanced classes", "[common][data]") {
  const std::string folder = "/usr/share/datasets/fashion-mnist";
  if (!std::filesystem::exists(folder)) {
    std::cout << "skipped: " << folder << " is missing (package dataset-fashion-mnist)\n";
    return;
  }
  const auto check = [&folder](const std::string& prefix, int64_t count) {
    v1::Split split;
    split.set_images(folder + "/" + prefix + "-images-idx3-ubyte.gz");
    split.set_labels(folder + "/" + prefix + "-labels-idx1-ubyte.gz");
    REQUIRE_OK_AND_ASSIGN(const Dataset dataset, LoadSplit(v1::Data::IDX, split));
    CHECK(dataset.shape == SampleShape{.h = 28, .w = 28, .c = 1});
    CHECK(dataset.count == count);
    CHECK(dataset.pixels.size() == static_cast<size_t>(count) * 28 * 28);
    for (uint8_t label = 0; label < 10; ++label) {
      CHECK(std::count(dataset.labels.begin(), dataset.labels.end(), label) == count / 10);
    }
  };
  check("train", 60000);
  check("t10k", 10000);
}

}  // namespace
}  // namespace capstan::dataset_test
