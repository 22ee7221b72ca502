#include "server/replication/replica_checks.h"

#include "common/planted/planted_bug.h"
#include "common/wire/message_checksum.h"

namespace capstan::server {

absl::Status CheckArrived(const v1::ReplicateRequest& request) {
  const bool install = request.has_install();
  const PlantedBug ignored =
      install ? PlantedBug::kIgnoreInstallChecksum : PlantedBug::kIgnoreRecordChecksum;
  if (Planted(ignored)) return absl::OkStatus();
  return CheckSeal(request, install ? "install" : "replicate");
}

absl::Status CheckArrived(const v1::InstallPart& part) {
  if (Planted(PlantedBug::kIgnoreInstallChecksum)) return absl::OkStatus();
  return CheckSeal(part, "install");
}

absl::Status CheckArrived(const v1::ReplicateResponse& response) {
  if (Planted(PlantedBug::kIgnoreRecordChecksum)) return absl::OkStatus();
  return CheckSeal(response, "a replica's answer");
}

}  // namespace capstan::server
