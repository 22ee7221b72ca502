// Reads arrays from NumPy's files: .npy, and members of an .npz.
//
// Formats: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html (versions 1 to
// 3); an .npz is a ZIP archive of .npy files, stored or deflated.
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_DATA_NUMPY_H_
#define CAPSTAN_COMMON_DATA_NUMPY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace capstan {

struct NumpyArray {
  std::string type;            // The file's name for it: "|u1", "<i8".
  std::vector<int64_t> shape;  // Every dimension >= 0; empty: one number.
  std::vector<uint8_t> bytes;  // The last dimension varies fastest.
};

// `name` stands for the file in messages; all of `bytes` is one .npy file.
// Errors: kDataLoss         no .npy file, or one whose size does not fit its header.
//         kInvalidArgument  an array in Fortran's order, of objects or of structures.
absl::StatusOr<NumpyArray> ParseNpy(absl::string_view name, std::vector<uint8_t> bytes);

// The file `member` of a ZIP archive.
// Errors: kNotFound         no such member; the message names the members.
//         kDataLoss         no ZIP archive, damaged (its CRC-32 differs), more than `bytes_max`,
//                           or than DecompressedBytesMax (expansion.h) of its compressed bytes.
//         kInvalidArgument  encrypted, or compressed by another method than deflate.
//         kResourceExhausted  no memory for zlib.
absl::StatusOr<std::vector<uint8_t>> ReadZipMember(absl::string_view name,
                                                   const std::vector<uint8_t>& bytes,
                                                   const std::string& member, int64_t bytes_max);

// The array's numbers as fp32, the nearest.
// Errors: kInvalidArgument  they are no whole numbers or floats of 4 or 8 bytes, little-endian, or
//                           one is not finite as fp32: names its index.
absl::StatusOr<std::vector<float>> RealNumbers(absl::string_view name, const NumpyArray& array);

// The array's numbers.
// Errors: kInvalidArgument  they are no whole numbers of 1, 2, 4 or 8 bytes, little-endian, or one
//                           is not in [0, below): names its index.
absl::StatusOr<std::vector<uint8_t>> SmallNumbers(absl::string_view name, const NumpyArray& array,
                                                  int64_t below);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_DATA_NUMPY_H_
