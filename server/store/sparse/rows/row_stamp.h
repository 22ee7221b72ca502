// Stamps: the stamp of a row is the version that its last update made, modulo 2^32.
//
//   row = key (8 bytes), stamp (4 bytes), what else belongs to it
//
// The owner of the rows sets stamps that are older than kAgeMax to that age, at every version that
// is a multiple of kRenewEvery: ages are exact up to kAgeMax, and none ever comes near 2^32, where
// an old row would look young.
// Thread safety: pure functions.
#ifndef CAPSTAN_SERVER_STORE_SPARSE_ROWS_ROW_STAMP_H_
#define CAPSTAN_SERVER_STORE_SPARSE_ROWS_ROW_STAMP_H_

#include <cstdint>
#include <cstring>

namespace capstan::server {

inline constexpr int64_t kStampAt = 8;  // The stamp's place in a row.
inline constexpr int64_t kAgeMax = int64_t{1} << 31;
inline constexpr int64_t kRenewEvery = int64_t{1} << 30;

constexpr uint32_t StampOf(int64_t version) { return static_cast<uint32_t>(version); }

// The count of updates since that of the stamp, at `version`.
constexpr int64_t AgeOf(uint32_t stamp, int64_t version) {
  return static_cast<uint32_t>(StampOf(version) - stamp);
}

// Whether the stamp is of a version after `since`, at `version`; true also if that is too long ago
// to be known.
constexpr bool ChangedSince(int64_t since, uint32_t stamp, int64_t version) {
  return version - since > kAgeMax || AgeOf(stamp, version) < version - since;
}

inline uint32_t StampAt(const char* row) {
  uint32_t stamp;
  std::memcpy(&stamp, row + kStampAt, sizeof(stamp));
  return stamp;
}
inline void SetStamp(uint32_t stamp, char* row) {
  std::memcpy(row + kStampAt, &stamp, sizeof(stamp));
}

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_SPARSE_ROWS_ROW_STAMP_H_
