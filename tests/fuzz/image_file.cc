// Bytes as a JPEG or a PNG, or as the chunks of a PNG whose checksums the target makes: the image
// is refused, or has the pixels that its shape says, the same ones each time, and none of another
// value once it is scaled.
#include "common/data/image_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {
namespace {

constexpr int64_t kScaledPixelsMax = 1 << 14;

void AppendBigEndian(uint32_t number, std::string* out) {
  for (int shift = 24; shift >= 0; shift -= 8) out->push_back(static_cast<char>(number >> shift));
}

std::string Compressed(absl::string_view bytes) {
  uLongf room = compressBound(bytes.size());
  std::string out(room, '\0');
  FUZZ_CHECK(compress2(reinterpret_cast<Bytef*>(out.data()), &room,
                       reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), 1) == Z_OK);
  out.resize(room);
  return out;
}

std::string MakePng(Input& input) {
  constexpr std::array<absl::string_view, 6> kTypes = {"IHDR", "PLTE", "tRNS",
                                                       "gAMA", "IDAT", "IEND"};
  std::string png = "\x89PNG\r\n\x1a\n";
  while (!input.empty()) {
    const uint8_t what = input.Byte() % 8;
    std::string chunk(what < kTypes.size() ? kTypes[what] : input.Take(4));
    const absl::string_view bytes = input.Take(input.Byte());
    chunk += what == 4 ? Compressed(bytes) : std::string(bytes);
    chunk.resize(std::max<size_t>(chunk.size(), 4), 'x');
    AppendBigEndian(static_cast<uint32_t>(chunk.size() - 4), &png);
    png += chunk;
    AppendBigEndian(static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(chunk.data()),
                                                static_cast<uInt>(chunk.size()))),
                    &png);
  }
  return png;
}

void CheckScaled(const DecodedImage& image, int64_t h, int64_t w) {
  const DecodedImage scaled = ScaleImage(image, h, w);
  FUZZ_CHECK(static_cast<int64_t>(scaled.pixels.size()) == h * w * image.shape.c);
  const auto [low, high] = std::minmax_element(image.pixels.begin(), image.pixels.end());
  for (const uint8_t pixel : scaled.pixels) FUZZ_CHECK(*low <= pixel && pixel <= *high);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const uint8_t what = input.Byte();
  const int channels = what % 2 == 0 ? 1 : 3;
  const int64_t h = 1 + what / 2 % 4, w = 1 + what / 8 % 4;
  const std::string bytes = what < 128 ? std::string(input.Rest()) : MakePng(input);
  const absl::Span<const uint8_t> file(reinterpret_cast<const uint8_t*>(bytes.data()),
                                       bytes.size());
  const absl::StatusOr<DecodedImage> image = DecodeImage("image", file, channels);
  if (!image.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(image.status()) || absl::IsDataLoss(image.status()));
    return 0;
  }
  const SampleShape& shape = image->shape;
  FUZZ_CHECK(shape.h >= 1 && shape.w >= 1 && shape.c == channels);
  FUZZ_CHECK(shape.h * shape.w <= kImagePixelsMax);
  FUZZ_CHECK(static_cast<int64_t>(image->pixels.size()) == shape.count());
  const absl::StatusOr<DecodedImage> again = DecodeImage("image", file, channels);
  FUZZ_CHECK(again.ok() && again->pixels == image->pixels);
  if (shape.h * shape.w <= kScaledPixelsMax) CheckScaled(*image, h, w);
  return 0;
}

}  // namespace capstan::fuzz
