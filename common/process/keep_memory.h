// KeepFreedMemory: lets the allocator keep what is freed instead of giving it back to the kernel.
//
// Messages of hundreds of kilobytes come and go with every iteration. By default each is mapped and
// unmapped, and the kernel clears its pages every time. Thread safety: call it once, first in main.
#ifndef CAPSTAN_COMMON_PROCESS_KEEP_MEMORY_H_
#define CAPSTAN_COMMON_PROCESS_KEEP_MEMORY_H_

namespace capstan {

// Up to 64 MiB of freed memory at the end of the heap is kept; blocks above 32 MiB are mapped as by
// default. All threads share one heap: with heaps of their own, each of gRPC's threads keeps the
// messages that it freed, and a server's memory grows for minutes.
void KeepFreedMemory();

}  // namespace capstan

#endif  // CAPSTAN_COMMON_PROCESS_KEEP_MEMORY_H_
