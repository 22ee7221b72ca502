// Certificates of a local cluster: a private authority, so that other users of this machine, who
// can reach the cluster's ports, can do nothing there.
//
//   <directory>/tls/scheduler, server-1, ..., worker-1, ...   one folder for each daemon
//                   user                                      this user's, an administrator
//
// The authority's key is discarded once all certificates are made: nobody can join the cluster
// later.
// Thread safety: a function of its arguments and the file system.
#ifndef CAPSTAN_SCHEDULER_CLI_CLUSTER_LOCAL_CERTIFICATES_H_
#define CAPSTAN_SCHEDULER_CLI_CLUSTER_LOCAL_CERTIFICATES_H_

#include <string>

#include "absl/status/status.h"

namespace capstan::cli {

// Returns the folder of one daemon's certificate, or of the user's ("user").
std::string LocalTlsFolder(const std::string& directory, const std::string& name);

// Makes the certificates of a cluster of that size, in place of earlier ones. Only this user can
// read them.
// Errors: an error of the file system; names the path.
absl::Status MakeLocalCertificates(const std::string& directory, int servers, int workers);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_CLUSTER_LOCAL_CERTIFICATES_H_
