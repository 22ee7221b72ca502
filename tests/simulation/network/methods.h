// Methods: the numbers by which simulated endpoints name the calls of Capstan's services.
//
// Thread safety: values.
#ifndef CAPSTAN_TESTS_SIMULATION_NETWORK_METHODS_H_
#define CAPSTAN_TESTS_SIMULATION_NETWORK_METHODS_H_

namespace capstan::sim {

enum Method : int {
  kRegister,
  kSyncNode,
  kHoldConnection,
  kSyncTask,
  kPush,
  kPull,
  kReplicate,
  kInstall,
  kGetRouting,
  kOpenSnapshot,
  kReadSnapshot,
  kCloseSnapshot,
};

// Calls that travel as frames of data connections (common/net/frame/frame.h), request and answer.
constexpr bool IsFramed(int method) { return method == kPush || method == kPull; }

// Calls of which a flipped bit is found by a checksum of ours. All others travel over gRPC without
// one: there a damaged message resets the connection, as TLS would see to.
constexpr bool HasChecksum(int method) {
  return IsFramed(method) || method == kReplicate || method == kInstall;
}

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_NETWORK_METHODS_H_
