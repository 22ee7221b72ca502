#include "common/data/image_folder.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "common/data/testing/test_images.h"
#include "common/testing/status_matchers.h"

namespace capstan::image_folder_test {
namespace {

using testing::Bytes;
using testing::PngFile;
using testing::TemporaryFolder;

constexpr int64_t kBytesMax = 1 << 20;
const std::vector<std::string> kClasses = {"cat", "dog"};

// cat/2.png, cat/10.PNG, dog/1.jpg: grey ones, 1 x 1.
struct Pets {
  Pets() {
    for (const char* const name : {"cat", "dog", ".git"}) {
      std::filesystem::create_directory(folder.Path(name));
    }
    folder.Write("cat/2.png", PngFile(1, 1, 1, {2}));
    folder.Write("cat/10.PNG", PngFile(1, 1, 1, {10}));
    folder.Write("cat/notes.txt", {1});
    folder.Write("cat/.hidden.png", {1});
    folder.Write("dog/1.jpg", PngFile(1, 1, 1, {77}));  // A PNG: the bytes decide.
    folder.Write("README", {1});
    options.set_channels(1);
  }
  absl::StatusOr<Dataset> Load(const std::vector<std::string>& classes = kClasses) const {
    return LoadImageFolder(folder.Path("."), classes, options, kBytesMax);
  }

  TemporaryFolder folder;
  v1::ImageFolder options;
};

TEST_CASE("Image folder: classes are folders, images are ordered by their names", "[data]") {
  const Pets pets;
  REQUIRE_OK_AND_ASSIGN(const auto classes, ClassFolders(pets.folder.Path(".")));
  CHECK(classes == kClasses);
  REQUIRE_OK_AND_ASSIGN(const Dataset dataset, pets.Load());
  CHECK(dataset.count == 3);
  CHECK(dataset.classes == 2);
  CHECK(dataset.shape == SampleShape{.h = 1, .w = 1, .c = 1});
  CHECK(dataset.pixels == Bytes{10, 2, 77});
  CHECK(dataset.labels == Bytes{0, 0, 1});
}

TEST_CASE("Image folder: labels are those of the names that are given", "[data]") {
  const Pets pets;
  // The folder is like a test set without birds.
  REQUIRE_OK_AND_ASSIGN(const Dataset dataset, pets.Load({"dog", "bird", "cat"}));
  CHECK(dataset.labels == Bytes{0, 2, 2});
  CHECK(dataset.classes == 3);
  CHECK_STATUS(pets.Load({"bird", "cat"}), absl::StatusCode::kInvalidArgument,
               "dog: is no class, expected one of bird, cat");
}

TEST_CASE("Image folder: images have one size, or are scaled to one", "[data]") {
  Pets pets;
  pets.folder.Write("dog/2.png", PngFile(2, 2, 1, {0, 0, 40, 40}));
  CHECK_STATUS(pets.Load(), absl::StatusCode::kInvalidArgument, "2.png: is 2x2x1, expected 1 as ");
  pets.options.set_height(1);
  pets.options.set_width(1);
  REQUIRE_OK_AND_ASSIGN(const Dataset dataset, pets.Load());
  CHECK(dataset.pixels == Bytes{10, 2, 77, 20});
}

TEST_CASE("Image folder: colours are the default", "[data]") {
  Pets pets;
  pets.options.clear_channels();
  REQUIRE_OK_AND_ASSIGN(const Dataset dataset, pets.Load());
  CHECK(dataset.shape.c == 3);
  CHECK(dataset.pixels.size() == 9);
}

TEST_CASE("Image folder: what is wrong is named", "[data]") {
  const Pets pets;
  CHECK_STATUS(ClassFolders("/none"), absl::StatusCode::kNotFound, "/none");
  CHECK_STATUS(ClassFolders(pets.folder.Path("cat")), absl::StatusCode::kInvalidArgument,
               "cat: has 0 folders, expected one for each class, 2 to 256");
  CHECK_STATUS(LoadImageFolder(pets.folder.Path("cat"), kClasses, {}, kBytesMax),
               absl::StatusCode::kInvalidArgument, "cat: no image in any class");
  CHECK_STATUS(LoadImageFolder(pets.folder.Path("."), kClasses, pets.options, 2),
               absl::StatusCode::kDataLoss, "more than 2 bytes of pixels");
  pets.folder.Write("dog/3.png", {1, 2, 3});
  CHECK_STATUS(pets.Load(), absl::StatusCode::kInvalidArgument,
               "dog/3.png: 3 bytes that begin as no JPEG and no PNG does");
}

}  // namespace
}  // namespace capstan::image_folder_test
