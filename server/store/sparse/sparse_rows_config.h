// The configuration of a sparse table's bucket, from the table's specification.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_SERVER_STORE_SPARSE_SPARSE_ROWS_CONFIG_H_
#define CAPSTAN_SERVER_STORE_SPARSE_SPARSE_ROWS_CONFIG_H_

#include <cstdint>

#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"
#include "server/optimizer/config/optimizer_config.h"
#include "server/store/sparse/sparse_rows.h"

namespace capstan::server {

// `disks`: where rows lie beyond spec.memory_bytes, if it has a limit.
// REQUIRES: ValidateTable (common/model/tables.h) accepts the table.
SparseRows::Config SparseRowsConfig(const v1::SparseSpec& spec, TableId table, uint64_t seed,
                                    const OptimizerConfig& rule, RowDisks* disks);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_SPARSE_SPARSE_ROWS_CONFIG_H_
