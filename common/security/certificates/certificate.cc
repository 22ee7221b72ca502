#include "common/security/certificates/certificate.h"

#include <openssl/err.h>

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/security/certificates/openssl_objects.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

using StorePtr = std::unique_ptr<X509_STORE, OpenSslFree<X509_STORE_free>>;
using CheckPtr = std::unique_ptr<X509_STORE_CTX, OpenSslFree<X509_STORE_CTX_free>>;

absl::StatusOr<Identity> IdentityOf(const X509& certificate) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> uris, UrisOf(certificate));
  std::vector<std::string> ours;
  for (const std::string& uri : uris) {
    if (absl::StartsWith(uri, kIdentityScheme)) ours.push_back(uri);
  }
  if (ours.size() == 1) return ParseIdentity(ours[0]);
  return absl::InvalidArgumentError(
      absl::StrCat("expected one URI ", kIdentityScheme, "CLUSTER/ROLE/NAME among the subject ",
                   "alternative names, found ", SubjectAlternativeNamesOf(certificate)));
}

absl::StatusOr<CertificateFacts> FactsOf(const X509& certificate) {
  CertificateFacts facts;
  CAPSTAN_ASSIGN_OR_RETURN(facts.identity, IdentityOf(certificate));
  CAPSTAN_ASSIGN_OR_RETURN(facts.serial, SerialOf(certificate));
  if (facts.serial.size() > kSerialDigitsMax) {
    return absl::InvalidArgumentError(absl::StrCat("the serial has ", facts.serial.size(),
                                                   " hexadecimal digits, expected at most ",
                                                   kSerialDigitsMax));
  }
  CAPSTAN_ASSIGN_OR_RETURN(facts.not_before, TimeOf(X509_get0_notBefore(&certificate)));
  CAPSTAN_ASSIGN_OR_RETURN(facts.not_after, TimeOf(X509_get0_notAfter(&certificate)));
  facts.subject_alternative_names = SubjectAlternativeNamesOf(certificate);
  return facts;
}

bool Serves(PeerRole role) {
  return role == PeerRole::kScheduler || role == PeerRole::kServer || role == PeerRole::kWorker;
}

// Checks the chain for one purpose (X509_PURPOSE_...).
absl::Status VerifyFor(int purpose, X509* certificate, STACK_OF(X509) * intermediate,
                       X509_STORE* trusted, absl::Time now) {
  const CheckPtr check(X509_STORE_CTX_new());
  X509_STORE_CTX_init(check.get(), trusted, certificate, intermediate);
  X509_STORE_CTX_set_time(check.get(), 0, absl::ToTimeT(now));
  X509_STORE_CTX_set_purpose(check.get(), purpose);
  const bool verified = X509_verify_cert(check.get()) == 1;
  ERR_clear_error();
  if (verified) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "it is not valid for TLS ", purpose == X509_PURPOSE_SSL_SERVER ? "servers" : "clients",
      " at ", absl::FormatTime(absl::RFC3339_sec, now, absl::UTCTimeZone()), ": ",
      X509_verify_cert_error_string(X509_STORE_CTX_get_error(check.get()))));
}

}  // namespace

absl::StatusOr<CertificateFacts> ReadCertificate(absl::string_view pem) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<CertificatePtr> all, ReadCertificates(pem));
  return FactsOf(*all[0]);
}

absl::Status KeyFits(absl::string_view certificate_pem, absl::string_view key_pem) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<CertificatePtr> all,
                           ReadCertificates(certificate_pem));
  CAPSTAN_ASSIGN_OR_RETURN(const PrivateKeyPtr key, ReadPrivateKey(key_pem));
  const bool fits = X509_check_private_key(all[0].get(), key.get()) == 1;
  ERR_clear_error();
  if (fits) return absl::OkStatus();
  return absl::FailedPreconditionError("the key belongs to another certificate");
}

absl::Status VerifyCertificate(absl::string_view certificate_pem, absl::string_view authorities_pem,
                               absl::Time now) {
  CAPSTAN_ASSIGN_OR_RETURN(std::vector<CertificatePtr> own, ReadCertificates(certificate_pem));
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<CertificatePtr> roots,
                           ReadCertificates(authorities_pem));
  CAPSTAN_ASSIGN_OR_RETURN(const CertificateFacts facts, FactsOf(*own[0]));
  const StorePtr trusted(X509_STORE_new());
  for (const CertificatePtr& root : roots) X509_STORE_add_cert(trusted.get(), root.get());
  // The certificates stay those of `own`.
  const std::unique_ptr<STACK_OF(X509), void (*)(STACK_OF(X509)*)> intermediate(
      sk_X509_new_null(), +[](STACK_OF(X509) * stack) { sk_X509_free(stack); });
  for (size_t i = 1; i < own.size(); ++i) sk_X509_push(intermediate.get(), own[i].get());
  CAPSTAN_RETURN_IF_ERROR(
      VerifyFor(X509_PURPOSE_SSL_CLIENT, own[0].get(), intermediate.get(), trusted.get(), now));
  if (!Serves(facts.identity.role)) return absl::OkStatus();
  return VerifyFor(X509_PURPOSE_SSL_SERVER, own[0].get(), intermediate.get(), trusted.get(), now);
}

}  // namespace capstan
