#include "common/data/testing/test_images.h"

#include <jpeglib.h>
#include <png.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>

namespace capstan::testing {

Bytes PngFile(uint32_t h, uint32_t w, int c, const Bytes& pixels) {
  png_image png = {};
  png.version = PNG_IMAGE_VERSION;
  png.height = h;
  png.width = w;
  png.format = c == 1 ? PNG_FORMAT_GRAY : c == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
  png_alloc_size_t bytes = 0;
  REQUIRE(png_image_write_get_memory_size(png, bytes, 0, pixels.data(), 0, nullptr));
  Bytes file(bytes);
  REQUIRE(png_image_write_to_memory(&png, file.data(), &bytes, 0, pixels.data(), 0, nullptr));
  file.resize(bytes);
  return file;
}

Bytes JpegFile(uint32_t h, uint32_t w, int c, const Bytes& pixels) {
  jpeg_compress_struct jpeg = {};
  jpeg_error_mgr errors = {};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long bytes = 0;
  jpeg_mem_dest(&jpeg, &memory, &bytes);
  jpeg.image_height = h;
  jpeg.image_width = w;
  jpeg.input_components = c;
  jpeg.in_color_space = c == 1 ? JCS_GRAYSCALE : c == 4 ? JCS_CMYK : JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 95, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  Bytes row(size_t{w} * static_cast<size_t>(c));
  while (jpeg.next_scanline < h) {
    const auto begin = pixels.begin() + static_cast<ptrdiff_t>(jpeg.next_scanline * row.size());
    row.assign(begin, begin + static_cast<ptrdiff_t>(row.size()));
    JSAMPROW rows = row.data();
    jpeg_write_scanlines(&jpeg, &rows, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  const Bytes file(memory, memory + bytes);
  std::free(memory);
  return file;
}

}  // namespace capstan::testing
