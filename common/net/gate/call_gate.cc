#include "common/net/gate/call_gate.h"

#include <grpc/grpc_security_constants.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/observability/log.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

absl::string_view ViewOf(grpc::string_ref text) { return {text.data(), text.size()}; }

}  // namespace

CallGate::CallGate(Options options)
    : options_(std::move(options)), deny_list_(options_.deny_list) {}

absl::StatusOr<CertificateFacts> CallGate::FactsOf(absl::string_view certificate) {
  {
    absl::MutexLock lock(&mutex_);
    const auto found = known_.find(certificate);
    if (found != known_.end()) return found->second;
  }
  CAPSTAN_ASSIGN_OR_RETURN(CertificateFacts facts, ReadCertificate(certificate));
  absl::MutexLock lock(&mutex_);
  if (known_.size() >= kKnownMax) known_.clear();
  known_.emplace(certificate, facts);
  return facts;
}

absl::Status CallGate::Check(const CertificateFacts& caller, absl::string_view method,
                             absl::Time now, const std::string& peer) {
  const absl::Status status = Judge(caller, method, now);
  if (!status.ok()) {
    Record({.peer = peer, .caller = FormatIdentity(caller.identity), .method = std::string(method)},
           status);
  }
  return status;
}

void CallGate::Record(const AuditedCall& call, const absl::Status& refusal) {
  if (options_.audit != nullptr) return options_.audit->Refused(call, CallOutcome::kGate, refusal);
  LogWarning({}, "refused: {}", std::string(refusal.message()));
}

absl::Status CallGate::Judge(const CertificateFacts& caller, absl::string_view method,
                             absl::Time now) {
  const auto denied = [&](absl::string_view why) {
    return absl::PermissionDeniedError(
        absl::StrCat(method, ": called by ", FormatIdentity(caller.identity), ": ", why));
  };
  const auto text = [](absl::Time time) { return absl::FormatTime(time, absl::UTCTimeZone()); };
  if (caller.identity.cluster != options_.cluster) {
    return denied(absl::StrCat("expected a certificate of the cluster ", options_.cluster));
  }
  if (now < caller.not_before || now > caller.not_after) {
    return denied(absl::StrCat("its certificate is valid from ", text(caller.not_before), " to ",
                               text(caller.not_after)));
  }
  const std::string why = WhyDenied(caller, now);
  if (!why.empty()) return denied(why);
  return CheckMayCall(caller.identity, method);
}

absl::Status CallGate::CheckNotDenied(const CertificateFacts& peer, absl::Time now) {
  const std::string why = WhyDenied(peer, now);
  if (why.empty()) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(FormatIdentity(peer.identity), ": ", why));
}

std::string CallGate::WhyDenied(const CertificateFacts& peer, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  // The wall clock may be set back.
  if (now < deny_list_read_ || now >= deny_list_read_ + kDenyListAge) {
    deny_list_.Refresh();
    deny_list_read_ = now;
  }
  if (!deny_list_.Denies(peer)) return "";
  if (deny_list_.status().ok()) {
    return absl::StrCat("its certificate ", peer.serial, " is on the deny list");
  }
  return absl::StrCat("everybody is denied: ", deny_list_.status().message());
}

grpc::Status CallGate::Process(const InputMetadata& metadata, grpc::AuthContext* connection,
                               OutputMetadata* /*consumed*/, OutputMetadata* /*response*/) {
  const auto path = metadata.find(":path");
  const absl::string_view method = path == metadata.end() ? "" : ViewOf(path->second);
  const std::vector<grpc::string_ref> certificates =
      connection->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  const absl::StatusOr<CertificateFacts> caller =
      FactsOf(certificates.empty() ? "" : ViewOf(certificates.front()));
  if (!caller.ok()) {
    const absl::Status refusal = absl::PermissionDeniedError(caller.status().message());
    Record({.method = std::string(method)}, refusal);
    return ToGrpcStatus(refusal);
  }
  return ToGrpcStatus(Check(*caller, method, absl::Now()));
}

std::optional<Identity> CallerOf(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> connection = context.auth_context();
  if (connection == nullptr) return std::nullopt;
  for (const grpc::string_ref& uri : connection->FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
    absl::StatusOr<Identity> identity = ParseIdentity(ViewOf(uri));
    if (identity.ok()) return *std::move(identity);
  }
  return std::nullopt;
}

absl::Status CheckCallerIs(const grpc::ServerContextBase& context, Roles roles,
                           absl::string_view name) {
  const std::optional<Identity> caller = CallerOf(context);
  if (!caller.has_value() || (roles.Has(caller->role) && caller->name == name)) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat("the call is made in the name of the ", NamesOf(roles), " \"", name,
                   "\", but the caller's certificate names ", FormatIdentity(*caller)));
}

}  // namespace capstan
