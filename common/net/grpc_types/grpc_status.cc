#include "common/net/grpc_types/grpc_status.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"

namespace capstan {

// Both libraries number the canonical codes alike: 0 (ok) to 16 (unauthenticated).
static_assert(static_cast<int>(grpc::StatusCode::ABORTED) ==
              static_cast<int>(absl::StatusCode::kAborted));
static_assert(static_cast<int>(grpc::StatusCode::UNAUTHENTICATED) ==
              static_cast<int>(absl::StatusCode::kUnauthenticated));

namespace {

constexpr char kOfHandler[] = "capstan";  // Marks, in its details, a status that a handler made.

// Returns whether the transport uses this code, too, to end calls that it has lost.
bool MayBeOfTransport(grpc::StatusCode code) {
  return code == grpc::StatusCode::INTERNAL || code == grpc::StatusCode::UNKNOWN;
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = static_cast<grpc::StatusCode>(status.code());
  return grpc::Status(code, std::string(status.message()),
                      MayBeOfTransport(code) ? kOfHandler : "");
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  if (MayBeOfTransport(status.error_code()) && status.error_details() != kOfHandler &&
      !Planted(PlantedBug::kGiveUpOnTransportError)) {
    return absl::UnavailableError(
        absl::StrCat("the transport lost the call: ", status.error_message()));
  }
  const int code = static_cast<int>(status.error_code());
  const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      status.error_message());
}

}  // namespace capstan
