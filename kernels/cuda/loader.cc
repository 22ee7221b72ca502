#include "kernels/cuda/loader.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status_macros.h"
#include "kernels/cuda/plugin_abi.h"

namespace capstan::kernels::cuda {
namespace {

// Returns the folder of the running program; empty if it is not known.
std::string ProgramFolder() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0 || length >= static_cast<ssize_t>(path.size())) return "";
  const std::string program(path.data(), static_cast<size_t>(length));
  return program.substr(0, program.rfind('/'));
}

std::vector<std::string> PlacesOf(const PluginSearch& search) {
  if (!search.path.empty()) return {search.path};
  if (const char* named = std::getenv("CAPSTAN_CUDA_PLUGIN"); named != nullptr && *named != 0) {
    return {named};
  }
  std::vector<std::string> places;
  if (const std::string folder = ProgramFolder(); !folder.empty()) {
    for (const char* beside : {"/", "/../lib/", "/../kernels/cuda/"}) {
      places.push_back(absl::StrCat(folder, beside, kPluginFile));
    }
  }
  places.push_back(kPluginFile);
  return places;
}

struct Plugin {
  PluginOpen open = nullptr;
  std::string path;
};

absl::StatusOr<Plugin> Load(const PluginSearch& search) {
  std::vector<std::string> refusals;
  for (const std::string& place : PlacesOf(search)) {
    // If a file exists but cannot be loaded, the search ends with that error.
    const bool there = access(place.c_str(), F_OK) == 0;
    void* const library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const why = dlerror();
      refusals.push_back(why == nullptr ? place : why);
      if (there) break;
      continue;
    }
    void* const symbol = dlsym(library, kPluginSymbol);
    if (symbol == nullptr) {
      dlclose(library);
      return absl::FailedPreconditionError(
          absl::StrCat(place, " has no ", kPluginSymbol, ", expected Capstan's CUDA plugin"));
    }
    return Plugin{reinterpret_cast<PluginOpen>(symbol), place};
  }
  return absl::NotFoundError(
      absl::StrCat("no CUDA plugin could be loaded: ", absl::StrJoin(refusals, "; ")));
}

// Loads the plugin, calls it, and converts its answer to a status.
absl::Status Call(const PluginSearch& search, PluginCall* call) {
  CAPSTAN_ASSIGN_OR_RETURN(const Plugin plugin, Load(search));
  plugin.open(call);
  if (call->plugin_version != kPluginVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(plugin.path, " is a CUDA plugin of version ", call->plugin_version,
                     ", expected ", kPluginVersion, ": build both from the same sources"));
  }
  if (call->status_code == 0) return absl::OkStatus();
  call->message[kPluginMessageBytes - 1] = 0;
  return absl::Status(static_cast<absl::StatusCode>(call->status_code), call->message);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaBackend>> OpenCudaBackend(const CudaOptions& options,
                                                             const PluginSearch& search) {
  PluginCall call;
  call.options = options;
  CAPSTAN_RETURN_IF_ERROR(Call(search, &call));
  std::unique_ptr<CudaBackend> backend(call.backend);
  if (backend == nullptr) return absl::InternalError("the CUDA plugin answered with no backend");
  return backend;
}

absl::Status CheckCudaPlugin(const PluginSearch& search) {
  PluginCall call;
  call.check_only = true;
  return Call(search, &call);
}

}  // namespace capstan::kernels::cuda
