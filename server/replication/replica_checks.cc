#include "server/replication/replica_checks.h"

#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/observability/log.h"
#include "common/planted/planted_bug.h"
#include "common/status/status_macros.h"
#include "common/wire/cord_input_stream.h"
#include "common/wire/message_checksum.h"
#include "common/wire/parsed_size.h"

namespace capstan::server {
namespace {

// Limit of the messages, records and members in a batch, and of all else that becomes an object of
// some hundred bytes once it is parsed. A primary sends 1024 messages at most, of 64 records at
// most; a record of a membership has a member for each worker.
constexpr int64_t kBatchObjectsMax = 1 << 20;
// Only an install, which a batch never has, contains repeated numbers.
constexpr int64_t kBatchNumbersMax = 1 << 20;

absl::Status NoBatch() { return absl::DataLossError("replicate: the message cannot be read"); }

// An object takes two bytes or more, and a number one, so a short batch cannot have too many.
absl::Status CheckParts(const absl::Cord& bytes) {
  if (bytes.size() <= kBatchNumbersMax) return absl::OkStatus();
  CordInputStream stream(bytes);
  const std::optional<ParsedSize> size = CountParsed(*v1::ReplicateBatch::descriptor(), &stream);
  if (!size.has_value()) return NoBatch();
  if (size->objects <= kBatchObjectsMax && size->numbers <= kBatchNumbersMax) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "replicate: a batch of ", size->entries, " messages has ", size->objects, " parts and ",
      size->numbers, " numbers: expected at most ", kBatchObjectsMax, " and ", kBatchNumbersMax));
}

absl::Status CheckCount(size_t messages, const v1::ReplicateBatchAnswer& answer) {
  if (answer.results().size() == static_cast<int>(messages)) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("a replica's answer has ", answer.results_size(),
                                          " results: expected ", messages, ", one a message"));
}

}  // namespace

absl::StatusOr<v1::ReplicateBatch> ParseBatch(const absl::Cord& bytes) {
  CAPSTAN_RETURN_IF_ERROR(CheckParts(bytes));
  CordInputStream stream(bytes);
  v1::ReplicateBatch batch;
  if (!batch.ParseFromZeroCopyStream(&stream)) return NoBatch();
  return batch;
}

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

absl::Status CheckSender(const v1::ReplicateRequest& message,
                         const std::optional<Identity>& caller) {
  if (!caller.has_value() || message.sender() == caller->name) return absl::OkStatus();
  const absl::Status status = absl::PermissionDeniedError(absl::StrCat(
      "replicate ", message.job_id(), ": sent in the name of the server \"", message.sender(),
      "\", but the caller's certificate names ", FormatIdentity(*caller)));
  LogWarning({.job = message.job_id()}, "refused: {}", std::string(status.message()));
  return status;
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
