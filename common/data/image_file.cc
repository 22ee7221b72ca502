#include "common/data/image_file.h"

#include <jpeglib.h>
#include <png.h>

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace capstan {
namespace {

constexpr uint8_t kPngMagic[] = {0x89, 'P', 'N', 'G', 0x0d, 0x0a, 0x1a, 0x0a};
constexpr uint8_t kJpegMagic[] = {0xff, 0xd8, 0xff};

template <size_t N>
bool BeginsWith(absl::Span<const uint8_t> bytes, const uint8_t (&magic)[N]) {
  return bytes.size() >= N && std::equal(magic, magic + N, bytes.begin());
}

absl::Status TooLarge(absl::string_view name, int64_t h, int64_t w) {
  return absl::DataLossError(absl::StrCat(name, ": ", h, " x ", w, " pixels, expected at most ",
                                          kImagePixelsMax, " in all"));
}

bool Fits(int64_t h, int64_t w) { return h >= 1 && w >= 1 && h <= kImagePixelsMax / w; }

// ---------------------------------------------------------------- PNG

absl::StatusOr<DecodedImage> DecodePng(absl::string_view name, absl::Span<const uint8_t> bytes,
                                       int channels) {
  png_image png = {};
  png.version = PNG_IMAGE_VERSION;
  const auto damaged = [&] {
    const std::string why = png.message;
    png_image_free(&png);
    return absl::DataLossError(absl::StrCat(name, ": a damaged PNG: ", why));
  };
  if (png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()) == 0) return damaged();
  if (!Fits(png.height, png.width)) {
    png_image_free(&png);
    return TooLarge(name, png.height, png.width);
  }
  png.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  DecodedImage image{.shape = {.h = png.height, .w = png.width, .c = channels}};
  image.pixels.resize(static_cast<size_t>(image.shape.count()));
  const png_color black = {};
  if (png_image_finish_read(&png, &black, image.pixels.data(), 0, nullptr) == 0) return damaged();
  // An image that libpng had to repair is not the one that was written.
  if (png.warning_or_error != 0) return damaged();
  return image;
}

// ---------------------------------------------------------------- JPEG

struct JpegErrors {
  jpeg_error_mgr manager;  // The first member, because libjpeg knows only its address.
  std::jmp_buf failed;
  char message[JMSG_LENGTH_MAX];
};

void LeaveJpeg(j_common_ptr jpeg) {
  auto* errors = reinterpret_cast<JpegErrors*>(jpeg->err);
  errors->manager.format_message(jpeg, errors->message);
  std::longjmp(errors->failed, 1);
}

// Treats a warning as an error: it reports damaged data, which libjpeg would fill with grey.
void NoteJpeg(j_common_ptr jpeg, int level) {
  if (level < 0) LeaveJpeg(jpeg);
}

// Objects with destructors belong to the caller, because libjpeg may jump out of this function.
// Returns false on an error, which `errors->message` describes.
bool ReadJpegHeader(jpeg_decompress_struct* jpeg, JpegErrors* errors,
                    absl::Span<const uint8_t> bytes) {
  if (setjmp(errors->failed) != 0) return false;
  jpeg_create_decompress(jpeg);
  jpeg_mem_src(jpeg, bytes.data(), bytes.size());
  jpeg_read_header(jpeg, TRUE);
  return true;
}

bool ReadJpegPixels(jpeg_decompress_struct* jpeg, JpegErrors* errors, uint8_t* pixels) {
  if (setjmp(errors->failed) != 0) return false;
  // Only this transform of libjpeg gives the same bits on every processor.
  jpeg->dct_method = JDCT_ISLOW;
  jpeg_start_decompress(jpeg);
  while (jpeg->output_scanline < jpeg->output_height) {
    JSAMPROW row = pixels + size_t{jpeg->output_scanline} * jpeg->output_width *
                                static_cast<size_t>(jpeg->output_components);
    jpeg_read_scanlines(jpeg, &row, 1);
  }
  jpeg_finish_decompress(jpeg);
  return true;
}

absl::StatusOr<DecodedImage> DecodeJpeg(absl::string_view name, absl::Span<const uint8_t> bytes,
                                        int channels) {
  JpegErrors errors = {};
  jpeg_decompress_struct jpeg = {};
  jpeg.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = LeaveJpeg;
  errors.manager.emit_message = NoteJpeg;
  const auto result = [&]() -> absl::StatusOr<DecodedImage> {
    const auto damaged = [&] {
      return absl::DataLossError(absl::StrCat(name, ": a damaged JPEG: ", errors.message));
    };
    if (!ReadJpegHeader(&jpeg, &errors, bytes)) return damaged();
    if (!Fits(jpeg.image_height, jpeg.image_width)) {
      return TooLarge(name, jpeg.image_height, jpeg.image_width);
    }
    if (jpeg.num_components == 4) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": a JPEG of four colours (CMYK), expected RGB or grey"));
    }
    jpeg.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    DecodedImage image{.shape = {.h = jpeg.image_height, .w = jpeg.image_width, .c = channels}};
    image.pixels.resize(static_cast<size_t>(image.shape.count()));
    if (!ReadJpegPixels(&jpeg, &errors, image.pixels.data())) return damaged();
    return image;
  }();
  jpeg_destroy_decompress(&jpeg);
  return result;
}

// Says which of `from` pixels one of `to` pixels covers, and by how much.
struct Cover {
  int64_t first = 0;
  std::vector<double> shares;  // They add up to 1.
};

std::vector<Cover> CoverOf(int64_t from, int64_t to) {
  std::vector<Cover> covers;
  for (int64_t i = 0; i < to; ++i) {
    // The unit is 1 / `to` of a pixel, so edges are whole numbers and exact.
    const int64_t begin = i * from, end = (i + 1) * from;
    Cover cover{.first = begin / to};
    for (int64_t p = cover.first; p * to < end; ++p) {
      const int64_t covered = std::min(end, (p + 1) * to) - std::max(begin, p * to);
      cover.shares.push_back(static_cast<double>(covered) / static_cast<double>(from));
    }
    covers.push_back(std::move(cover));
  }
  return covers;
}

}  // namespace

absl::StatusOr<DecodedImage> DecodeImage(absl::string_view name, absl::Span<const uint8_t> bytes,
                                         int channels) {
  if (BeginsWith(bytes, kPngMagic)) return DecodePng(name, bytes, channels);
  if (BeginsWith(bytes, kJpegMagic)) return DecodeJpeg(name, bytes, channels);
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": ", bytes.size(), " bytes that begin as no JPEG and no PNG does"));
}

DecodedImage ScaleImage(const DecodedImage& image, int64_t h, int64_t w) {
  if (image.shape.h == h && image.shape.w == w) return image;
  const std::vector<Cover> rows = CoverOf(image.shape.h, h), columns = CoverOf(image.shape.w, w);
  const int64_t c = image.shape.c;
  DecodedImage scaled{.shape = {.h = h, .w = w, .c = c}};
  scaled.pixels.reserve(static_cast<size_t>(scaled.shape.count()));
  for (const Cover& row : rows) {
    for (const Cover& column : columns) {
      for (int64_t k = 0; k < c; ++k) {
        double sum = 0;
        for (size_t y = 0; y < row.shares.size(); ++y) {
          const int64_t line = (row.first + static_cast<int64_t>(y)) * image.shape.w;
          for (size_t x = 0; x < column.shares.size(); ++x) {
            const int64_t pixel = line + column.first + static_cast<int64_t>(x);
            sum +=
                row.shares[y] * column.shares[x] * image.pixels[static_cast<size_t>(pixel * c + k)];
          }
        }
        scaled.pixels.push_back(static_cast<uint8_t>(std::lround(sum)));
      }
    }
  }
  return scaled;
}

}  // namespace capstan
