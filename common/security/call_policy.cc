#include "common/security/call_policy.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace capstan {
namespace {

constexpr Roles kAll = {PeerRole::kScheduler, PeerRole::kServer, PeerRole::kWorker,
                        PeerRole::kUser,      PeerRole::kReader, PeerRole::kMetrics,
                        PeerRole::kAdmin};
constexpr Roles kServers = {PeerRole::kServer};
constexpr Roles kWorkers = {PeerRole::kWorker};
constexpr Roles kAdmins = {PeerRole::kAdmin};
constexpr Roles kUsers = {PeerRole::kUser, PeerRole::kAdmin};
constexpr Roles kReaders = {PeerRole::kUser, PeerRole::kReader, PeerRole::kAdmin};
constexpr Roles kObservers = {PeerRole::kUser, PeerRole::kMetrics, PeerRole::kAdmin};
constexpr Roles kWorkersAndReaders = {PeerRole::kWorker, PeerRole::kUser, PeerRole::kReader,
                                      PeerRole::kAdmin};

constexpr std::array kPolicy = {
    MethodPolicy{"/capstan.v1.JobFiles/FinishFile", kNodeRoles},
    MethodPolicy{"/capstan.v1.JobFiles/MarkFolder", kNodeRoles},
    MethodPolicy{"/capstan.v1.JobFiles/ReadPiece", kNodeRoles},
    MethodPolicy{"/capstan.v1.JobFiles/WritePiece", kNodeRoles},
    MethodPolicy{"/capstan.v1.ParameterServer/CloseSnapshot", kReaders},
    MethodPolicy{"/capstan.v1.ParameterServer/DescribeTables", kObservers},
    MethodPolicy{"/capstan.v1.ParameterServer/DescribeTraffic", kObservers},
    MethodPolicy{"/capstan.v1.ParameterServer/GetRouting", kWorkersAndReaders},
    MethodPolicy{"/capstan.v1.ParameterServer/Install", kServers},
    MethodPolicy{"/capstan.v1.ParameterServer/OpenDataConnections", kNodeRoles},
    MethodPolicy{"/capstan.v1.ParameterServer/Pull", kWorkersAndReaders},
    MethodPolicy{"/capstan.v1.ParameterServer/Push", kWorkers},
    MethodPolicy{"/capstan.v1.ParameterServer/ReadSnapshot", kReaders},
    MethodPolicy{"/capstan.v1.ParameterServer/Replicate", kServers},
    MethodPolicy{"/capstan.v1.ParameterServer/ScanRows", kWorkersAndReaders},
    MethodPolicy{"/capstan.v1.ParameterServer/ShareMemory", kWorkers},
    MethodPolicy{"/capstan.v1.Scheduler/AnnotateJob", kUsers},
    MethodPolicy{"/capstan.v1.Scheduler/DeleteJob", kUsers},
    MethodPolicy{"/capstan.v1.Scheduler/DrainNode", kAdmins},
    MethodPolicy{"/capstan.v1.Scheduler/ExportJob", kUsers},
    MethodPolicy{"/capstan.v1.Scheduler/GetJob", kReaders},
    MethodPolicy{"/capstan.v1.Scheduler/GetTables", kReaders},
    MethodPolicy{"/capstan.v1.Scheduler/HoldConnection", kNodeRoles},
    MethodPolicy{"/capstan.v1.Scheduler/ListJobs", kUsers},
    MethodPolicy{"/capstan.v1.Scheduler/ListNodes", kObservers},
    MethodPolicy{"/capstan.v1.Scheduler/ListRecoverable", kAdmins},
    MethodPolicy{"/capstan.v1.Scheduler/OpenSnapshot", kReaders},
    MethodPolicy{"/capstan.v1.Scheduler/RecoverJob", kAdmins},
    MethodPolicy{"/capstan.v1.Scheduler/Register", kNodeRoles},
    MethodPolicy{"/capstan.v1.Scheduler/SaveCheckpoint", kUsers},
    MethodPolicy{"/capstan.v1.Scheduler/StopJob", kUsers},
    MethodPolicy{"/capstan.v1.Scheduler/SubmitJob", kUsers},
    MethodPolicy{"/capstan.v1.Scheduler/SyncNode", kNodeRoles},
    MethodPolicy{"/capstan.v1.Scheduler/SyncTask", kWorkers},
    MethodPolicy{"/capstan.v1.TaskLogs/KeepTaskLog", kWorkers},
    MethodPolicy{"/capstan.v1.TaskLogs/ReadKeptLog", kUsers},
    MethodPolicy{"/capstan.v1.Worker/ReadTaskLog", kUsers},
    MethodPolicy{"/grpc.health.v1.Health/Check", kAll},
    MethodPolicy{"/grpc.health.v1.Health/Watch", kAll},
    MethodPolicy{"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", kAdmins},
};
static_assert(std::is_sorted(kPolicy.begin(), kPolicy.end(),
                             [](const MethodPolicy& a, const MethodPolicy& b) {
                               return a.method < b.method;
                             }));

}  // namespace

std::string NamesOf(Roles roles) {
  std::vector<absl::string_view> names;
  for (const PeerRole role :
       {PeerRole::kScheduler, PeerRole::kServer, PeerRole::kWorker, PeerRole::kUser,
        PeerRole::kReader, PeerRole::kMetrics, PeerRole::kAdmin}) {
    if (roles.Has(role)) names.push_back(PeerRoleName(role));
  }
  return absl::StrJoin(names, ", ");
}

absl::Span<const MethodPolicy> CallPolicy() { return kPolicy; }

absl::Status CheckMayCall(const Identity& caller, absl::string_view method) {
  const auto* const found = std::lower_bound(
      kPolicy.begin(), kPolicy.end(), method,
      [](const MethodPolicy& entry, absl::string_view name) { return entry.method < name; });
  if (found == kPolicy.end() || found->method != method) {
    return absl::PermissionDeniedError(
        absl::StrCat(method, ": nobody may call it (common/security/call_policy.cc)"));
  }
  if (found->callers.Has(caller.role)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(method, ": called by ", FormatIdentity(caller),
                                                  ", expected a certificate of the roles ",
                                                  NamesOf(found->callers)));
}

}  // namespace capstan
