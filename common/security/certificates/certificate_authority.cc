#include "common/security/certificates/certificate_authority.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/security/certificates/openssl_objects.h"
#include "common/security/certificates/security_file.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

using ExtensionPtr = std::unique_ptr<X509_EXTENSION, OpenSslFree<X509_EXTENSION_free>>;

constexpr int kSerialBits = 128;
constexpr size_t kHostBytesMax = 253;

absl::Status Refused(absl::string_view what) {
  return absl::InternalError(absl::StrCat("OpenSSL: ", what, ": ", TakeOpenSslError()));
}

absl::Status CheckLifetime(absl::Duration lifetime) {
  if (lifetime > absl::ZeroDuration() && lifetime <= kCertificateLifetimeMax) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("lifetime: ", absl::FormatDuration(lifetime),
                                                 ", expected more than 0 and at most ",
                                                 absl::FormatDuration(kCertificateLifetimeMax)));
}

// The name or address as X.509 extensions spell it: "DNS:host", "IP:10.0.0.1".
absl::StatusOr<std::string> AlternativeNameOf(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> address{};
  if (inet_pton(AF_INET, host.c_str(), address.data()) == 1 ||
      inet_pton(AF_INET6, host.c_str(), address.data()) == 1) {
    return absl::StrCat("IP:", host);
  }
  const bool name = !host.empty() && host.size() <= kHostBytesMax &&
                    std::all_of(host.begin(), host.end(), [](unsigned char c) {
                      return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_';
                    });
  if (name) return absl::StrCat("DNS:", host);
  return absl::InvalidArgumentError(
      absl::StrCat("host: \"", host, "\", expected the name of a host or an IP address"));
}

absl::Status AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const ExtensionPtr extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  if (extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1) {
    return absl::OkStatus();
  }
  return Refused(absl::StrCat("extension ", value));
}

// A certificate without extensions: its key, random serial, subject and validity.
absl::StatusOr<CertificatePtr> Begin(EVP_PKEY* key, const std::string& common_name,
                                     absl::Duration lifetime, absl::Time now) {
  CertificatePtr certificate(X509_new());
  const BignumPtr serial(BN_new());
  X509_NAME* const subject = X509_get_subject_name(certificate.get());
  const auto* const name = reinterpret_cast<const unsigned char*>(common_name.c_str());
  const bool made =
      X509_set_version(certificate.get(), X509_VERSION_3) == 1 &&
      BN_rand(serial.get(), kSerialBits, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1 &&
      BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(certificate.get())) != nullptr &&
      X509_set_pubkey(certificate.get(), key) == 1 &&
      X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, name, -1, -1, 0) == 1 &&
      ASN1_TIME_set(X509_getm_notBefore(certificate.get()),
                    absl::ToTimeT(now - kCertificateBackdating)) != nullptr &&
      ASN1_TIME_set(X509_getm_notAfter(certificate.get()), absl::ToTimeT(now + lifetime)) !=
          nullptr;
  if (!made) return Refused("a new certificate");
  return certificate;
}

absl::StatusOr<PrivateKeyPtr> NewKey() {
  PrivateKeyPtr key(EVP_EC_gen("P-256"));
  if (key == nullptr) return Refused("a new key");
  return key;
}

absl::StatusOr<std::string> PemOfKey(EVP_PKEY* key) {
  const BioPtr text(BIO_new(BIO_s_secmem()));
  if (PEM_write_bio_PKCS8PrivateKey(text.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return Refused("a key as text");
  }
  return TextOf(text.get());
}

// The cluster's name is the subject's common name of its authority.
absl::StatusOr<std::string> ClusterOf(const X509& certificate) {
  std::array<char, kIdentityNameBytesMax + 2> name{};
  const int size = X509_NAME_get_text_by_NID(X509_get_subject_name(&certificate), NID_commonName,
                                             name.data(), static_cast<int>(name.size()));
  ERR_clear_error();
  const std::string cluster(name.data(), static_cast<size_t>(std::max(size, 0)));
  CAPSTAN_RETURN_IF_ERROR(CheckIdentityName("cluster", cluster));
  return cluster;
}

absl::Status Sign(X509* certificate, EVP_PKEY* key) {
  if (X509_sign(certificate, key, EVP_sha256()) > 0) return absl::OkStatus();
  return Refused("signing");
}

}  // namespace

absl::StatusOr<CertificateAuthority> CertificateAuthority::Create(const std::string& cluster,
                                                                  absl::Duration lifetime,
                                                                  absl::Time now) {
  CAPSTAN_RETURN_IF_ERROR(CheckIdentityName("cluster", cluster));
  CAPSTAN_RETURN_IF_ERROR(CheckLifetime(lifetime));
  CAPSTAN_ASSIGN_OR_RETURN(const PrivateKeyPtr key, NewKey());
  CAPSTAN_ASSIGN_OR_RETURN(const CertificatePtr certificate,
                           Begin(key.get(), cluster, lifetime, now));
  X509* const raw = certificate.get();
  X509_set_issuer_name(raw, X509_get_subject_name(raw));
  CAPSTAN_RETURN_IF_ERROR(
      AddExtension(raw, raw, NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
  CAPSTAN_RETURN_IF_ERROR(AddExtension(raw, raw, NID_key_usage, "critical,keyCertSign,cRLSign"));
  CAPSTAN_RETURN_IF_ERROR(AddExtension(raw, raw, NID_subject_key_identifier, "hash"));
  CAPSTAN_RETURN_IF_ERROR(Sign(raw, key.get()));
  CertificateAuthority authority;
  authority.cluster_ = cluster;
  authority.not_after_ = now + lifetime;
  CAPSTAN_ASSIGN_OR_RETURN(authority.certificate_pem_, PemOf(raw));
  CAPSTAN_ASSIGN_OR_RETURN(authority.key_pem_, PemOfKey(key.get()));
  return authority;
}

absl::StatusOr<CertificateAuthority> CertificateAuthority::Load(const std::string& folder) {
  const std::string certificate_path = absl::StrCat(folder, "/", kAuthorityFile);
  const std::string key_path = absl::StrCat(folder, "/", kAuthorityKeyFile);
  CertificateAuthority authority;
  CAPSTAN_ASSIGN_OR_RETURN(
      authority.certificate_pem_,
      ReadSecurityFile(AT_FDCWD, certificate_path, certificate_path, Secrecy::kPublic));
  CAPSTAN_ASSIGN_OR_RETURN(authority.key_pem_,
                           ReadSecurityFile(AT_FDCWD, key_path, key_path, Secrecy::kSecret));
  CAPSTAN_RETURN_IF_ERROR(
      Annotate(KeyFits(authority.certificate_pem_, authority.key_pem_), key_path));
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<CertificatePtr> own,
                           ReadCertificates(authority.certificate_pem_));
  if (X509_check_ca(own[0].get()) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(certificate_path, ": it is the certificate of no authority"));
  }
  absl::StatusOr<std::string> cluster = ClusterOf(*own[0]);
  if (!cluster.ok()) return Annotate(cluster.status(), certificate_path);
  authority.cluster_ = *std::move(cluster);
  CAPSTAN_ASSIGN_OR_RETURN(authority.not_after_, TimeOf(X509_get0_notAfter(own[0].get())));
  return authority;
}

absl::StatusOr<IssuedCertificate> CertificateAuthority::Issue(const Identity& identity,
                                                              const std::vector<std::string>& hosts,
                                                              absl::Duration lifetime,
                                                              absl::Time now) const {
  CAPSTAN_RETURN_IF_ERROR(CheckIdentity(identity));
  CAPSTAN_RETURN_IF_ERROR(CheckLifetime(lifetime));
  if (identity.cluster != cluster_) {
    return absl::InvalidArgumentError(
        absl::StrCat("cluster: \"", identity.cluster, "\", expected the authority's, ", cluster_));
  }
  if (hosts.size() > kHostsPerCertificateMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("hosts: ", hosts.size(), ", expected at most ", kHostsPerCertificateMax));
  }
  if (now + lifetime > not_after_) {
    return absl::FailedPreconditionError(
        absl::StrCat("lifetime: the certificate would end after its authority, which ends at ",
                     absl::FormatTime(absl::RFC3339_sec, not_after_, absl::UTCTimeZone())));
  }
  std::string names = absl::StrCat("URI:", FormatIdentity(identity));
  for (const std::string& host : hosts) {
    CAPSTAN_ASSIGN_OR_RETURN(const std::string name, AlternativeNameOf(host));
    absl::StrAppend(&names, ",", name);
  }
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<CertificatePtr> own,
                           ReadCertificates(certificate_pem_));
  CAPSTAN_ASSIGN_OR_RETURN(const PrivateKeyPtr own_key, ReadPrivateKey(key_pem_));
  CAPSTAN_ASSIGN_OR_RETURN(const PrivateKeyPtr key, NewKey());
  const std::string common_name =
      identity.name.empty() ? std::string(PeerRoleName(identity.role)) : identity.name;
  CAPSTAN_ASSIGN_OR_RETURN(const CertificatePtr certificate,
                           Begin(key.get(), common_name, lifetime, now));
  X509* const raw = certificate.get();
  X509_set_issuer_name(raw, X509_get_subject_name(own[0].get()));
  for (const auto& [nid, value] :
       {std::pair<int, std::string>{NID_basic_constraints, "critical,CA:FALSE"},
        {NID_key_usage, "critical,digitalSignature"},
        {NID_ext_key_usage, "serverAuth,clientAuth"},
        {NID_authority_key_identifier, "keyid"},
        {NID_subject_alt_name, names}}) {
    CAPSTAN_RETURN_IF_ERROR(AddExtension(raw, own[0].get(), nid, value));
  }
  CAPSTAN_RETURN_IF_ERROR(Sign(raw, own_key.get()));
  IssuedCertificate issued;
  CAPSTAN_ASSIGN_OR_RETURN(issued.certificate_pem, PemOf(raw));
  CAPSTAN_ASSIGN_OR_RETURN(issued.key_pem, PemOfKey(key.get()));
  CAPSTAN_ASSIGN_OR_RETURN(issued.facts, ReadCertificate(issued.certificate_pem));
  return issued;
}

}  // namespace capstan
