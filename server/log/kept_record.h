// Kept record: the scheduler's record of where a job stands, as a file beside the job's log.
//
//   "CAPREC01" | CRC-32C of the record (4 bytes) | the record
//
// The record is the scheduler's (TableAssignment.record): a server only keeps it.
// Thread safety: as the disk.
#ifndef CAPSTAN_SERVER_LOG_KEPT_RECORD_H_
#define CAPSTAN_SERVER_LOG_KEPT_RECORD_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/disk.h"

namespace capstan::server {

inline constexpr int64_t kRecordBytesMax = int64_t{1} << 20;

// The path of the record in a log's folder. A write replaces the file as a whole or not at all.
std::string KeptRecordPath(const std::string& log_folder);

// Errors: the disk's.
absl::Status WriteKeptRecord(Disk& disk, const std::string& log_folder, const std::string& record);

// Errors: kNotFound  there is none.   kDataLoss  it is damaged; names the file.   The disk's.
absl::StatusOr<std::string> ReadKeptRecord(Disk& disk, const std::string& log_folder);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_LOG_KEPT_RECORD_H_
