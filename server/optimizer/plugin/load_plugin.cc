#include "server/optimizer/plugin/load_plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cfenv>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/storage/files/regular_file.h"
#include "server/optimizer/plugin/rule_check.h"

namespace capstan::server {
namespace {

constexpr int kRulesMax = 64;
constexpr char kEntry[] = "capstan_rule_plugin";

// Checks that only the owner may change the file, and that the owner could change the server as
// well.
absl::Status CheckOwner(const RegularFile& file) {
  struct stat status = {};
  if (fstat(file.fd.get(), &status) != 0) return absl::PermissionDeniedError(std::strerror(errno));
  if (status.st_uid != 0 && status.st_uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat("belongs to user ", status.st_uid,
                                                    ", expected root or user ", geteuid(),
                                                    ", as whom this server runs"));
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrFormat("has mode %04o, expected one by which neither its group nor others may write "
                      "it (chmod go-w)",
                      status.st_mode & 07777));
}

absl::StatusOr<std::string> DigestOf(const RegularFile& file, const std::string& path) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        EVP_MD_CTX_free);
  bool fine = context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  std::vector<char> room(size_t{1} << 16);
  for (int64_t at = 0; fine;) {
    CAPSTAN_ASSIGN_OR_RETURN(const size_t bytes, ReadFileAt(file, path, at, absl::MakeSpan(room)));
    if (bytes == 0) break;
    fine = EVP_DigestUpdate(context.get(), room.data(), bytes) == 1;
    at += static_cast<int64_t>(bytes);
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (!fine || EVP_DigestFinal_ex(context.get(), digest, &size) != 1) {
    return absl::InternalError("SHA-256 cannot be computed");
  }
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), size));
}

// Checks that denormals are kept and that results are rounded to the nearest, as every rule of the
// server needs it. Libraries that are linked with -ffast-math switch the first off when they are
// loaded.
absl::Status CheckFloats() {
  volatile float denormal = 1e-40f;
  volatile float half = 0.5f;
  if (denormal * half != 0.0f && std::fegetround() == FE_TONEAREST) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "changes how this process rounds or drops denormals: expected a library that is neither "
      "compiled nor linked with -ffast-math or -Ofast");
}

// The loader knows a library by the name that it was opened by, so the descriptor stays open: no
// other file ever has this name.
absl::StatusOr<void*> Load(RegularFile file, const std::string& path) {
  const std::string name = absl::StrCat("/proc/self/fd/", file.fd.Release());
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot be loaded: ", absl::StrReplaceAll(dlerror(), {{name, path}}),
                     ", expected a shared library with rules"));
  }
  CAPSTAN_RETURN_IF_ERROR(CheckFloats());
  return library;
}

absl::StatusOr<const CapstanRulePlugin*> PluginOf(void* library) {
  using Entry = const CapstanRulePlugin* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library, kEntry));
  if (entry == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("has no function ", kEntry, ", which capstan_rule.h asks for"));
  }
  const CapstanRulePlugin* const plugin = entry();
  if (plugin == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(kEntry, " returns NULL, expected its rules"));
  }
  if (plugin->interface != CAPSTAN_RULE_INTERFACE) {
    return absl::InvalidArgumentError(absl::StrCat(
        "has interface ", plugin->interface, " of capstan_rule.h, expected ",
        CAPSTAN_RULE_INTERFACE, ", that of this server: build it with this server's header"));
  }
  if (plugin->rule_count >= 1 && plugin->rule_count <= kRulesMax && plugin->rules != nullptr) {
    return plugin;
  }
  return absl::InvalidArgumentError(absl::StrCat("has ", plugin->rule_count, " rules",
                                                 plugin->rules == nullptr ? " at NULL" : "",
                                                 ", expected 1 to ", kRulesMax));
}

absl::Status AddRules(RegularFile file, const std::string& path, PluginRules* rules) {
  CAPSTAN_RETURN_IF_ERROR(CheckOwner(file));
  CAPSTAN_ASSIGN_OR_RETURN(const std::string digest, DigestOf(file, path));
  CAPSTAN_ASSIGN_OR_RETURN(void* const library, Load(std::move(file), path));
  CAPSTAN_ASSIGN_OR_RETURN(const CapstanRulePlugin* const plugin, PluginOf(library));
  for (int i = 0; i < plugin->rule_count; ++i) {
    const CapstanRule& rule = plugin->rules[i];
    CAPSTAN_RETURN_IF_ERROR(CheckRule(rule));
    CAPSTAN_RETURN_IF_ERROR(rules->Add({.rule = &rule, .digest = digest, .file = path}));
  }
  return CheckFloats();
}

}  // namespace

absl::Status LoadPlugin(const std::string& path, PluginRules* rules) {
  CAPSTAN_ASSIGN_OR_RETURN(RegularFile file, OpenRegularFile(path));
  std::fenv_t before;
  std::fegetenv(&before);
  const absl::Status status = AddRules(std::move(file), path, rules);
  if (!status.ok()) std::fesetenv(&before);
  return Annotate(status, path);
}

}  // namespace capstan::server
