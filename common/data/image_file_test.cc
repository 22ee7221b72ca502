#include "common/data/image_file.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "common/data/testing/test_images.h"
#include "common/testing/status_matchers.h"

namespace capstan::image_file_test {
namespace {

using testing::Bytes;
using testing::JpegFile;
using testing::PngFile;

DecodedImage Decode(const Bytes& file, int channels) {
  REQUIRE_OK_AND_ASSIGN(DecodedImage image, DecodeImage("a", file, channels));
  return image;
}

// A red, a green and a blue column, each 8 pixels wide.
Bytes Stripes() {
  Bytes pixels;
  for (int y = 0; y < 8; ++y) {
    for (int x = 0; x < 24; ++x) {
      for (int k = 0; k < 3; ++k) pixels.push_back(x / 8 == k ? 200 : 10);
    }
  }
  return pixels;
}

TEST_CASE("Image file: a PNG has its pixels, as colours or grey", "[data]") {
  const Bytes rgb = {255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 9, 9, 255, 255, 255, 0, 0, 0};
  const DecodedImage image = Decode(PngFile(2, 3, 3, rgb), 3);
  CHECK(image.shape == SampleShape{.h = 2, .w = 3, .c = 3});
  CHECK(image.pixels == rgb);
  const Bytes grey = {0, 100, 255};
  CHECK(Decode(PngFile(1, 3, 1, grey), 1).pixels == grey);
  CHECK(Decode(PngFile(1, 1, 1, {100}), 3).pixels == Bytes{100, 100, 100});
  const DecodedImage from_colours = Decode(PngFile(1, 2, 3, {255, 255, 255, 0, 0, 0}), 1);
  CHECK(from_colours.pixels == Bytes{255, 0});
}

TEST_CASE("Image file: what is transparent stands on black", "[data]") {
  CHECK(Decode(PngFile(1, 2, 4, {255, 255, 255, 0, 255, 255, 255, 255}), 3).pixels ==
        Bytes{0, 0, 0, 255, 255, 255});
}

TEST_CASE("Image file: a JPEG has its colours, nearly", "[data]") {
  const DecodedImage image = Decode(JpegFile(8, 24, 3, Stripes()), 3);
  REQUIRE(image.shape == SampleShape{.h = 8, .w = 24, .c = 3});
  const Bytes expected = Stripes();
  // Colours are stored at half the size: not at the edges.
  for (size_t x : {2u, 4u, 11u, 13u, 20u, 22u}) {
    for (size_t k = 0; k < 3; ++k) {
      const size_t at = (4 * 24 + x) * 3 + k;
      CHECK(std::abs(int{image.pixels[at]} - int{expected[at]}) < 12);
    }
  }
  CHECK(std::abs(int{Decode(JpegFile(8, 8, 1, Bytes(64, 77)), 1).pixels[9]} - 77) < 3);
  CHECK(Decode(JpegFile(8, 8, 1, Bytes(64, 77)), 3).pixels.size() == 192);
  CHECK(Decode(JpegFile(8, 24, 3, Stripes()), 1).pixels.size() == 192);
}

TEST_CASE("Image file: what is damaged is named, wherever it is cut", "[data]") {
  for (const Bytes& file : {PngFile(8, 24, 3, Stripes()), JpegFile(8, 24, 3, Stripes())}) {
    for (size_t bytes = 8; bytes + 12 < file.size(); bytes += 7) {
      CHECK_STATUS(DecodeImage("cat/1", Bytes(file.begin(), file.begin() + ptrdiff_t(bytes)), 3),
                   absl::StatusCode::kDataLoss, "cat/1: a damaged");
    }
  }
  Bytes png = PngFile(8, 24, 3, Stripes());
  png[png.size() / 2] ^= 0x55;
  CHECK_STATUS(DecodeImage("a", png, 3), absl::StatusCode::kDataLoss, "a: a damaged PNG");
}

TEST_CASE("Image file: what is no such image is refused", "[data]") {
  const auto code = absl::StatusCode::kInvalidArgument;
  CHECK_STATUS(DecodeImage("a.gif", Bytes{'G', 'I', 'F', '8'}, 3), code,
               "a.gif: 4 bytes that begin as no JPEG and no PNG does");
  CHECK_STATUS(DecodeImage("a", Bytes{}, 3), code, "a: 0 bytes");
  CHECK_STATUS(DecodeImage("a", JpegFile(8, 8, 4, Bytes(256, 5)), 3), code, "CMYK");
  // A header that promises more than anybody has.
  Bytes png = PngFile(1, 1, 1, {0});
  for (size_t i = 16; i < 24; ++i) png[i] = 0x7f;
  CHECK(DecodeImage("a", png, 3).status().code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("Image file: scaling takes the mean of what a pixel covers", "[data]") {
  const DecodedImage four{.shape = {.h = 2, .w = 2, .c = 1}, .pixels = {0, 100, 50, 250}};
  CHECK(ScaleImage(four, 2, 2).pixels == four.pixels);
  CHECK(ScaleImage(four, 1, 1).pixels == Bytes{100});
  CHECK(ScaleImage(four, 1, 2).pixels == Bytes{25, 175});
  CHECK(ScaleImage(four, 2, 4).pixels == Bytes{0, 0, 100, 100, 50, 50, 250, 250});
  // Three in two: a pixel and a half each.
  const DecodedImage three{.shape = {.h = 1, .w = 3, .c = 1}, .pixels = {30, 60, 90}};
  CHECK(ScaleImage(three, 1, 2).pixels == Bytes{40, 80});
  const DecodedImage colours{.shape = {.h = 1, .w = 2, .c = 3}, .pixels = {0, 10, 20, 2, 12, 22}};
  CHECK(ScaleImage(colours, 1, 1).pixels == Bytes{1, 11, 21});
}

}  // namespace
}  // namespace capstan::image_file_test
