#include "server/replication/replica_checks.h"

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"
#include "common/wire/message_checksum.h"

namespace capstan::server {
namespace {

absl::Status CheckCount(size_t messages, const v1::ReplicateBatchAnswer& answer) {
  if (answer.results().size() == static_cast<int>(messages)) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("a replica's answer has ", answer.results_size(),
                                          " results: expected ", messages, ", one a message"));
}

}  // namespace

absl::Status CheckArrived(const v1::ReplicateBatch& batch) {
  if (Planted(PlantedBug::kIgnoreRecordChecksum)) return absl::OkStatus();
  return CheckSeal(batch, "replicate");
}

absl::Status CheckArrived(const v1::ReplicateBatchAnswer& answer) {
  if (Planted(PlantedBug::kIgnoreRecordChecksum)) return absl::OkStatus();
  return CheckSeal(answer, "a replica's answer");
}

absl::Status CheckArrived(const v1::ReplicateRequest& install) {
  if (Planted(PlantedBug::kIgnoreInstallChecksum)) return absl::OkStatus();
  return CheckSeal(install, "install");
}

absl::Status CheckArrived(const v1::InstallPart& part) {
  if (Planted(PlantedBug::kIgnoreInstallChecksum)) return absl::OkStatus();
  return CheckSeal(part, "install");
}

absl::Status CheckArrived(const v1::ReplicateResponse& response) {
  if (Planted(PlantedBug::kIgnoreRecordChecksum)) return absl::OkStatus();
  return CheckSeal(response, "a replica's answer");
}

const std::string& JobOf(const v1::ReplicateBatch& batch) {
  if (batch.messages().empty()) return v1::ReplicateRequest::default_instance().job_id();
  return batch.messages(0).job_id();
}

std::vector<ReplicaOutcome> OutcomesOf(size_t messages, const absl::Status& status,
                                       const v1::ReplicateBatchAnswer& answer) {
  const absl::Status arrived = status.ok() ? CheckCount(messages, answer) : status;
  std::vector<ReplicaOutcome> outcomes(messages);
  for (size_t i = 0; i < messages; ++i) {
    outcomes[i] = {.index = i, .status = arrived, .response = {}};
    if (!arrived.ok()) continue;
    const v1::ReplicateResult& result = answer.results(static_cast<int>(i));
    outcomes[i].status = absl::Status(static_cast<absl::StatusCode>(result.code()), "");
    outcomes[i].response = result.held();
  }
  return outcomes;
}

}  // namespace capstan::server
