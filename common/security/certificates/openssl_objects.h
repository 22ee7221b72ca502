// Owning pointers to OpenSSL's objects, and what the files of this folder read from them.
//
// Only the sources of this folder and common/net/socket/tls_stream.cc include it. Every function
// leaves OpenSSL's queue of errors empty.
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_SECURITY_CERTIFICATES_OPENSSL_OBJECTS_H_
#define CAPSTAN_COMMON_SECURITY_CERTIFICATES_OPENSSL_OBJECTS_H_

#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace capstan {

// Frees an object by OpenSSL's function for its type.
template <auto kFree>
struct OpenSslFree {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};

using BioPtr = std::unique_ptr<BIO, OpenSslFree<BIO_free_all>>;
using BignumPtr = std::unique_ptr<BIGNUM, OpenSslFree<BN_free>>;
using GeneralNamesPtr = std::unique_ptr<GENERAL_NAMES, OpenSslFree<GENERAL_NAMES_free>>;
using GeneralNamePtr = std::unique_ptr<GENERAL_NAME, OpenSslFree<GENERAL_NAME_free>>;
using PrivateKeyPtr = std::unique_ptr<EVP_PKEY, OpenSslFree<EVP_PKEY_free>>;
using CertificatePtr = std::unique_ptr<X509, OpenSslFree<X509_free>>;

// Takes all errors from OpenSSL's queue and returns the reason of the first one, as
// "no start line"; "no reason given" if there is none. It has no bytes of the input.
std::string TakeOpenSslError();

// Reads all certificates of `pem`, at least one. Text between them is skipped.
// Errors: kInvalidArgument  no certificate, or one that is damaged.
absl::StatusOr<std::vector<CertificatePtr>> ReadCertificates(absl::string_view pem);

// Errors: kInvalidArgument  no private key, or one with a passphrase.
absl::StatusOr<PrivateKeyPtr> ReadPrivateKey(absl::string_view pem);

// Returns what has been written to a memory BIO.
std::string TextOf(BIO* bio);

// Returns a certificate as PEM. Errors: kInternal  OpenSSL refuses; says why.
absl::StatusOr<std::string> PemOf(X509* certificate);

// Returns the serial as lower-case hexadecimal digits without leading zeros.
// Errors: kInvalidArgument  it is negative.
absl::StatusOr<std::string> SerialOf(const X509& certificate);

// Errors: kInvalidArgument  OpenSSL cannot read the time.
absl::StatusOr<absl::Time> TimeOf(const ASN1_TIME* time);

// Returns the URIs among the certificate's subject alternative names; empty if there are none.
// Errors: kInvalidArgument  the names are damaged or given twice.
absl::StatusOr<std::vector<std::string>> UrisOf(const X509& certificate);

// Returns all subject alternative names for display, as "URI:capstan://a/scheduler, DNS:host";
// "none" if there are none or they are damaged.
std::string SubjectAlternativeNamesOf(const X509& certificate);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SECURITY_CERTIFICATES_OPENSSL_OBJECTS_H_
