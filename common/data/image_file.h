// DecodeImage: decodes a JPEG or PNG file to pixels, by libjpeg-turbo and libpng.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_DATA_IMAGE_FILE_H_
#define CAPSTAN_COMMON_DATA_IMAGE_FILE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model/model_plan.h"

namespace capstan {

inline constexpr int64_t kImagePixelsMax = int64_t{1} << 26;  // 64 million.

struct DecodedImage {
  SampleShape shape;            // c is the number of channels asked for.
  std::vector<uint8_t> pixels;  // [h, w, c].
};

// `bytes` are a whole file, whose first bytes decide whether it is JPEG or PNG; `name` stands for
// it in messages.
//   channels  3: RGB; 1: grey. Colours are converted; transparent pixels are drawn on black
// Errors: kInvalidArgument  neither JPEG nor PNG; a JPEG of four colours (CMYK).
//         kDataLoss         damaged, truncated, or of more than kImagePixelsMax pixels.
absl::StatusOr<DecodedImage> DecodeImage(absl::string_view name, absl::Span<const uint8_t> bytes,
                                         int channels);

// The image in h x w pixels: each is the mean of the area that it covers, to the nearest number.
// REQUIRES: h >= 1, w >= 1; the image has a pixel.
DecodedImage ScaleImage(const DecodedImage& image, int64_t h, int64_t w);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_DATA_IMAGE_FILE_H_
