// Checkpoint export: writes the model of a checkpoint, which has all tables at one moment.
//
// Thread safety: functions of their arguments and of the files.
#ifndef CAPSTAN_SCHEDULER_CLI_OPERATIONS_CHECKPOINT_EXPORT_H_
#define CAPSTAN_SCHEDULER_CLI_OPERATIONS_CHECKPOINT_EXPORT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/storage/disk.h"

namespace capstan::cli {

// Writes the checkpoint in `folder` as model files into `directory`, which is created if missing.
// Returns their names. A later export may be a delta since this one, as since any other. Memory:
// the dense tables, and one shard.
// Errors: kNotFound  there is no complete checkpoint. kDataLoss  it is damaged; names the file.
//         Those of RowFileWriter and WriteModelFiles.
absl::StatusOr<std::vector<std::string>> ExportCheckpoint(Disk& disk, const std::string& folder,
                                                          const std::string& directory);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_OPERATIONS_CHECKPOINT_EXPORT_H_
