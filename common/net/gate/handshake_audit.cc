#include "common/net/gate/handshake_audit.h"

#include <grpc/support/log.h>

#include <atomic>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/net/gate/audit_interceptor.h"
#include "common/observability/log.h"

namespace capstan {
namespace {

// Where gRPC 1.51 writes that a handshake of a server has failed (at the level DEBUG), and before
// that, on the same thread, the reason. Callers learn the reason from their status.
constexpr char kServerFile[] = "/chttp2_server.cc";
constexpr char kServerText[] = "Handshaking failed: ";
constexpr char kReasonFile[] = "/ssl_transport_security.cc";
constexpr char kReasonText[] = "Handshake failed with fatal error ";
// Stands in the line with kServerText, if the connection broke.
constexpr absl::string_view kPeerText = "target_address:\"";

std::atomic<AuditLog*> audit_of_handshakes = nullptr;
thread_local std::string reason_of_handshake;

// The peer's host:port. Empty: the text does not have it.
std::string PeerIn(absl::string_view text) {
  const size_t at = text.find(kPeerText);
  if (at == absl::string_view::npos) return "";
  text.remove_prefix(at + kPeerText.size());
  return HostPortOfPeer(text.substr(0, text.find('"')));
}

void OnGrpcLog(gpr_log_func_args* line) {
  const absl::string_view file = line->file;
  const absl::string_view text = line->message;
  if (absl::EndsWith(file, kReasonFile) && absl::StartsWith(text, kReasonText)) {
    reason_of_handshake.assign(text.data(), text.size());
  } else if (absl::EndsWith(file, kServerFile) && absl::StartsWith(text, kServerText)) {
    std::string reason = std::move(reason_of_handshake);
    reason_of_handshake.clear();
    if (reason.empty()) reason.assign(text.data(), text.size());
    AuditLog* const audit = audit_of_handshakes.load();
    if (audit != nullptr) {
      audit->Refused({.peer = PeerIn(text)}, CallOutcome::kHandshake,
                     absl::UnauthenticatedError(absl::StrCat("TLS: ", reason)));
    }
  } else if (line->severity == GPR_LOG_SEVERITY_ERROR) {
    LogError({}, "gRPC: {}", line->message);
  }
}

}  // namespace

HandshakeAudit::HandshakeAudit(AuditLog* audit) {
  audit_of_handshakes = audit;
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_DEBUG);
  gpr_set_log_function(OnGrpcLog);
}

HandshakeAudit::~HandshakeAudit() {
  gpr_set_log_function(nullptr);
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  audit_of_handshakes = nullptr;
}

}  // namespace capstan
