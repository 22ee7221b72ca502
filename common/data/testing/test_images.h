// Image files for tests: PNG and JPEG of given pixels.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_DATA_TESTING_TEST_IMAGES_H_
#define CAPSTAN_COMMON_DATA_TESTING_TEST_IMAGES_H_

#include <cstdint>

#include "common/data/testing/test_files.h"

namespace capstan::testing {

// `pixels` [h, w, c], c 1 (grey), 3 (RGB) or, PNG, 4 (RGB and opacity).
Bytes PngFile(uint32_t h, uint32_t w, int c, const Bytes& pixels);
Bytes JpegFile(uint32_t h, uint32_t w, int c, const Bytes& pixels);  // Quality 95.

}  // namespace capstan::testing

#endif  // CAPSTAN_COMMON_DATA_TESTING_TEST_IMAGES_H_
