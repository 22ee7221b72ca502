// Methods: the numbers by which simulated endpoints name the calls of Capstan's services.
//
// Thread safety: values.
#ifndef CAPSTAN_TESTS_SIMULATION_METHODS_H_
#define CAPSTAN_TESTS_SIMULATION_METHODS_H_

namespace capstan::sim {

enum Method : int {
  kRegister,
  kSyncNode,
  kSyncTask,
  kPush,
  kPull,
  kReplicate,
  kGetRouting,
  kOpenSnapshot,
  kReadSnapshot,
  kCloseSnapshot,
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_METHODS_H_
