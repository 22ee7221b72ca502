// ReadDataFile: reads a whole data file into memory; decompresses it if its name ends in ".gz".
//
// Never trusts a size: reading stops at `bytes_max`, and that of a .gz in proportion to the file
// (expansion.h), so that a small .gz cannot fill the memory.
// Thread safety: a pure function of the file.
#ifndef CAPSTAN_COMMON_DATA_FILE_READER_H_
#define CAPSTAN_COMMON_DATA_FILE_READER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace capstan {

// The bytes of the regular file `path`, decompressed if the name ends in ".gz". Members of a .gz
// that follow one another give their contents in order, as with gzip.
// Errors: kNotFound          no such file.
//         kPermissionDenied, kResourceExhausted  those of OpenRegularFile; no memory for zlib.
//         kDataLoss          .gz: truncated, corrupt, or bytes follow the compressed data;
//                            more than `bytes_max` bytes (decompressed), or than
//                            DecompressedBytesMax of the file's.
// Every message begins with the path.
absl::StatusOr<std::vector<uint8_t>> ReadDataFile(const std::string& path, int64_t bytes_max);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_DATA_FILE_READER_H_
