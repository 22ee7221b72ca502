#include "common/security/certificates/openssl_objects.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace capstan {
namespace {

struct OpenSslTextFree {
  void operator()(char* text) const { OPENSSL_free(text); }
};

BioPtr ReaderOf(absl::string_view text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

int RefusePassphrase(char*, int, int, void*) { return -1; }

// The alternative names, null if there are none.
absl::StatusOr<GeneralNamesPtr> NamesOf(const X509& certificate) {
  int critical = 0;
  GeneralNamesPtr names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(&certificate, NID_subject_alt_name, &critical, nullptr)));
  ERR_clear_error();
  if (names != nullptr || critical == -1) return names;
  return absl::InvalidArgumentError(critical == -2 ? "the subject alternative names are given twice"
                                                   : "the subject alternative names are damaged");
}

}  // namespace

std::string TextOf(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return std::string(data, static_cast<size_t>(size));
}

absl::StatusOr<std::string> PemOf(X509* certificate) {
  const BioPtr text(BIO_new(BIO_s_mem()));
  if (text != nullptr && PEM_write_bio_X509(text.get(), certificate) == 1)
    return TextOf(text.get());
  return absl::InternalError(absl::StrCat("OpenSSL: a certificate as text: ", TakeOpenSslError()));
}

std::string TakeOpenSslError() {
  const char* const reason = ERR_reason_error_string(ERR_get_error());
  ERR_clear_error();
  return reason == nullptr ? "no reason given" : reason;
}

absl::StatusOr<std::vector<CertificatePtr>> ReadCertificates(absl::string_view pem) {
  const BioPtr text = ReaderOf(pem);
  std::vector<CertificatePtr> all;
  while (X509* certificate = PEM_read_bio_X509(text.get(), nullptr, RefusePassphrase, nullptr)) {
    all.emplace_back(certificate);
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  const std::string reason = TakeOpenSslError();
  if (at_end && !all.empty()) return all;
  return absl::InvalidArgumentError(absl::StrCat("expected certificates in PEM, but number ",
                                                 all.size() + 1, " cannot be read: ", reason));
}

absl::StatusOr<PrivateKeyPtr> ReadPrivateKey(absl::string_view pem) {
  const BioPtr text = ReaderOf(pem);
  PrivateKeyPtr key(PEM_read_bio_PrivateKey(text.get(), nullptr, RefusePassphrase, nullptr));
  const std::string reason = TakeOpenSslError();
  if (key != nullptr) return key;
  return absl::InvalidArgumentError(
      absl::StrCat("expected a private key in PEM without a passphrase: ", reason));
}

absl::StatusOr<std::string> SerialOf(const X509& certificate) {
  const BignumPtr number(ASN1_INTEGER_to_BN(X509_get0_serialNumber(&certificate), nullptr));
  if (number == nullptr || BN_is_negative(number.get())) {
    ERR_clear_error();
    return absl::InvalidArgumentError("the serial is no positive number");
  }
  const std::unique_ptr<char, OpenSslTextFree> text(BN_bn2hex(number.get()));
  const absl::string_view digits(text.get());
  const size_t first = std::min(digits.find_first_not_of('0'), digits.size() - 1);
  return absl::AsciiStrToLower(digits.substr(first));
}

absl::StatusOr<absl::Time> TimeOf(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) == 1) return absl::FromTM(parts, absl::UTCTimeZone());
  ERR_clear_error();
  return absl::InvalidArgumentError("a time of the certificate cannot be read");
}

absl::StatusOr<std::vector<std::string>> UrisOf(const X509& certificate) {
  const absl::StatusOr<GeneralNamesPtr> names = NamesOf(certificate);
  if (!names.ok()) return names.status();
  std::vector<std::string> uris;
  for (int i = 0; *names != nullptr && i < sk_GENERAL_NAME_num(names->get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names->get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_STRING* const uri = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                      static_cast<size_t>(ASN1_STRING_length(uri)));
  }
  return uris;
}

std::string SubjectAlternativeNamesOf(const X509& certificate) {
  const absl::StatusOr<GeneralNamesPtr> names = NamesOf(certificate);
  if (!names.ok() || *names == nullptr) return "none";
  const BioPtr text(BIO_new(BIO_s_mem()));
  for (int i = 0; i < sk_GENERAL_NAME_num(names->get()); ++i) {
    if (i > 0) BIO_puts(text.get(), ", ");
    GENERAL_NAME_print(text.get(), sk_GENERAL_NAME_value(names->get(), i));
  }
  ERR_clear_error();
  return TextOf(text.get());
}

}  // namespace capstan
