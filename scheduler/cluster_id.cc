#include "scheduler/cluster_id.h"

#include <cstdint>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace capstan::scheduler {
namespace {

constexpr char kKey[] = "cluster";

}  // namespace

std::string RandomHex() {
  std::random_device device;
  const uint64_t number = uint64_t{device()} << 32 | device();
  return absl::StrCat(absl::Hex(number, absl::kZeroPad16));
}

absl::StatusOr<std::string> ClusterIdOf(Store& store, const StoreRows& rows) {
  if (const auto row = rows.find(kKey); row != rows.end()) return row->second;
  const std::string id = RandomHex();
  CAPSTAN_RETURN_IF_ERROR(store.Write({{kKey, id}}));
  return id;
}

}  // namespace capstan::scheduler
