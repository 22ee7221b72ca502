// UpdateLog: a job's updates.csv: hashes of each update's parameters and gradients, by which two
// runs are compared (`capstan diff`).
//
//   # capstan updates 1 of <unique id of the job>
//   iteration,epoch,slot,begin,end,table,parameters,gradient,keys,rank
//   0,1,0,0,16,parameters,9f86d081884c7d65,2c26b46b68ffc68f,,0
//
// One line stands for one table in one micro-batch of a BSP iteration. Hashes are 16 hexadecimal
// digits. Lines are in the order in which they arrived, some perhaps twice; a line that a crash of
// the machine has torn is no line.
// Thread safety: UpdateLog is thread-compatible; the functions have no state.
#ifndef CAPSTAN_COMMON_REPORT_UPDATE_LOG_H_
#define CAPSTAN_COMMON_REPORT_UPDATE_LOG_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/report/line_file.h"
#include "common/types/ids.h"

namespace capstan {

inline constexpr char kUpdateLogName[] = "updates.csv";  // In a job's output folder.

// The parameters of a table that a worker got for a micro-batch, and the gradient that it pushed.
struct TableUpdate {
  int64_t iteration = 0;
  int32_t epoch = 0;  // Counts from 1.
  int32_t slot = 0;
  Range positions = {};     // Samples: positions in the epoch's order.
  int32_t table = 0;        // An index of the list of names that comes with it.
  uint64_t parameters = 0;  // Hash of the values with which the gradient was computed.
  uint64_t gradient = 0;    // Hash of what the worker pushed.
  uint64_t keys = 0;        // Tables of rows: hash of the batch's keys. Others: 0.
  int32_t rank = 0;         // The worker task that computed it.
  friend bool operator==(const TableUpdate&, const TableUpdate&) = default;
};

class UpdateLog {
 public:
  // Opens the log of a job for appending; `job` is its unique id. A log of another job at `path` is
  // replaced.
  // Errors: those of LineFile::Open and ReplaceFile.
  static absl::StatusOr<std::unique_ptr<UpdateLog>> Open(const std::string& path,
                                                         absl::string_view job);

  // Appends a line for each update. REQUIRES: table < table_names.size(); no name has a comma or a
  // newline. Errors: those of LineFile::Append.
  absl::Status Append(const std::vector<TableUpdate>& updates,
                      const std::vector<std::string>& table_names);

 private:
  explicit UpdateLog(std::unique_ptr<LineFile> file) : file_(std::move(file)) {}

  const std::unique_ptr<LineFile> file_;
};

struct LoggedUpdates {
  std::vector<std::string> table_names;  // In the order of their first line.
  std::vector<TableUpdate> updates;      // In the order of the lines.
  int64_t torn_lines = 0;                // Lines that cannot be read, and are left out.
};

// Reads a whole log.
// Errors: those of OpenRegularFile; kInvalidArgument  it is no updates.csv, or has more than
//         kUpdateLogBytesMax bytes.
inline constexpr int64_t kUpdateLogBytesMax = int64_t{4} << 30;
absl::StatusOr<LoggedUpdates> ReadUpdateLog(const std::string& path);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_REPORT_UPDATE_LOG_H_
