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
    MethodPolicy{"/capstan.v1.JobFiles/FinishFile", kNodeRoles, Audit::kRefusals},
    MethodPolicy{"/capstan.v1.JobFiles/MarkFolder", kNodeRoles, Audit::kRefusals},
    MethodPolicy{"/capstan.v1.JobFiles/ReadPiece", kNodeRoles, Audit::kRefusals},
    MethodPolicy{"/capstan.v1.JobFiles/WritePiece", kNodeRoles, Audit::kRefusals},
    MethodPolicy{"/capstan.v1.ParameterServer/CloseSnapshot", kWorkersAndReaders, Audit::kRefusals},
    MethodPolicy{"/capstan.v1.ParameterServer/DescribeTables", kObservers, Audit::kRefusals},
    MethodPolicy{"/capstan.v1.ParameterServer/DescribeTraffic", kObservers, Audit::kRefusals},
    MethodPolicy{"/capstan.v1.ParameterServer/GetRouting", kWorkersAndReaders, Audit::kRefusals},
    MethodPolicy{"/capstan.v1.ParameterServer/Install", kServers, Audit::kRefusals},
    MethodPolicy{"/capstan.v1.ParameterServer/OpenDataConnections", kNodeRoles, Audit::kAll},
    MethodPolicy{"/capstan.v1.ParameterServer/Pull", kWorkersAndReaders, Audit::kRefusalsOfBytes},
    MethodPolicy{"/capstan.v1.ParameterServer/Push", kWorkers, Audit::kRefusalsOfBytes},
    MethodPolicy{"/capstan.v1.ParameterServer/ReadSnapshot", kWorkersAndReaders, Audit::kReads},
    MethodPolicy{"/capstan.v1.ParameterServer/Replicate", kServers, Audit::kRefusalsOfBytes},
    MethodPolicy{"/capstan.v1.ParameterServer/ScanRows", kWorkersAndReaders, Audit::kReads},
    MethodPolicy{"/capstan.v1.ParameterServer/ShareMemory", kWorkers, Audit::kRefusals},
    MethodPolicy{"/capstan.v1.Scheduler/AnnotateJob", kUsers, Audit::kAll},
    MethodPolicy{"/capstan.v1.Scheduler/DeleteJob", kUsers, Audit::kAll},
    MethodPolicy{"/capstan.v1.Scheduler/DrainNode", kAdmins, Audit::kAll},
    MethodPolicy{"/capstan.v1.Scheduler/ExportJob", kUsers, Audit::kAll},
    MethodPolicy{"/capstan.v1.Scheduler/GetJob", kReaders, Audit::kRefusals},
    MethodPolicy{"/capstan.v1.Scheduler/GetTables", kReaders, Audit::kReads},
    MethodPolicy{"/capstan.v1.Scheduler/HoldConnection", kNodeRoles, Audit::kRefusals},
    MethodPolicy{"/capstan.v1.Scheduler/ListJobs", kUsers, Audit::kRefusals},
    MethodPolicy{"/capstan.v1.Scheduler/ListNodes", kObservers, Audit::kRefusals},
    MethodPolicy{"/capstan.v1.Scheduler/ListRecoverable", kAdmins, Audit::kRefusals},
    MethodPolicy{"/capstan.v1.Scheduler/OpenSnapshot", kWorkersAndReaders, Audit::kReads},
    MethodPolicy{"/capstan.v1.Scheduler/RecoverJob", kAdmins, Audit::kAll},
    MethodPolicy{"/capstan.v1.Scheduler/Register", kNodeRoles, Audit::kAll},
    MethodPolicy{"/capstan.v1.Scheduler/SaveCheckpoint", kUsers, Audit::kAll},
    MethodPolicy{"/capstan.v1.Scheduler/StopJob", kUsers, Audit::kAll},
    MethodPolicy{"/capstan.v1.Scheduler/SubmitJob", kUsers, Audit::kAll},
    MethodPolicy{"/capstan.v1.Scheduler/SyncNode", kNodeRoles, Audit::kRefusals},
    MethodPolicy{"/capstan.v1.Scheduler/SyncTask", kWorkers, Audit::kRefusals},
    MethodPolicy{"/capstan.v1.TaskLogs/KeepTaskLog", kWorkers, Audit::kRefusals},
    MethodPolicy{"/capstan.v1.TaskLogs/ReadKeptLog", kUsers, Audit::kReads},
    MethodPolicy{"/capstan.v1.Uploads/Finish", kUsers, Audit::kAll},
    MethodPolicy{"/capstan.v1.Uploads/WritePiece", kUsers, Audit::kRefusals},
    MethodPolicy{"/capstan.v1.Worker/ReadTaskLog", kUsers, Audit::kReads},
    MethodPolicy{"/grpc.health.v1.Health/Check", kAll, Audit::kRefusalsOfBytes},
    MethodPolicy{"/grpc.health.v1.Health/Watch", kAll, Audit::kRefusalsOfBytes},
    MethodPolicy{"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", kAdmins,
                 Audit::kRefusalsOfBytes},
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

const MethodPolicy* FindMethodPolicy(absl::string_view method) {
  const auto* const found = std::lower_bound(
      kPolicy.begin(), kPolicy.end(), method,
      [](const MethodPolicy& entry, absl::string_view name) { return entry.method < name; });
  return found == kPolicy.end() || found->method != method ? nullptr : found;
}

absl::Status CheckMayCall(const Identity& caller, absl::string_view method) {
  const MethodPolicy* const found = FindMethodPolicy(method);
  if (found == nullptr) {
    return absl::PermissionDeniedError(
        absl::StrCat(method, ": nobody may call it (common/security/call_policy.cc)"));
  }
  if (found->callers.Has(caller.role)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(method, ": called by ", FormatIdentity(caller),
                                                  ", expected a certificate of the roles ",
                                                  NamesOf(found->callers)));
}

}  // namespace capstan
