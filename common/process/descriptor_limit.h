// The number of files and sockets that this process may have open.
//
// Thread safety: functions without state.
#ifndef CAPSTAN_COMMON_PROCESS_DESCRIPTOR_LIMIT_H_
#define CAPSTAN_COMMON_PROCESS_DESCRIPTOR_LIMIT_H_

namespace capstan {

// Returns the soft limit of RLIMIT_NOFILE, which is the one that counts.
int DescriptorLimit();

// Raises the soft limit to the hard one. Only for a process that does not call select(2).
void RaiseDescriptorLimit();

}  // namespace capstan

#endif  // CAPSTAN_COMMON_PROCESS_DESCRIPTOR_LIMIT_H_
