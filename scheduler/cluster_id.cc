#include "scheduler/cluster_id.h"

#include "common/process/random_hex.h"
#include "common/status/status_macros.h"

namespace capstan::scheduler {
namespace {

constexpr char kKey[] = "cluster";

}  // namespace

absl::StatusOr<std::string> ClusterIdOf(Store& store, const StoreRows& rows) {
  if (const auto row = rows.find(kKey); row != rows.end()) return row->second;
  const std::string id = RandomHex();
  CAPSTAN_RETURN_IF_ERROR(store.Write({{kKey, id}}));
  return id;
}

}  // namespace capstan::scheduler
