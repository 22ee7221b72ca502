// TrafficMetrics: counts and times of the calls of the data plane.
//
// A call costs a dozen additions to atomics and three looks at the clock, some 200 ns together.
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_RPC_TRAFFIC_METRICS_H_
#define CAPSTAN_SERVER_RPC_TRAFFIC_METRICS_H_

#include <atomic>
#include <cstdint>

#include "absl/time/clock.h"
#include "common/observability/log_histogram.h"
#include "proto/parameter_server.pb.h"

namespace capstan::server {

enum class TransportKind { kGrpc, kDataConnection };

class MethodMetrics {
 public:
  explicit MethodMetrics(const char* name) : name_(name) {}

  // Begin is called once when a call arrives, End once when it is answered. CarriedOut is called
  // once it has been carried out, before or after its answer; not for a call that is refused at
  // once.
  int64_t Begin(TransportKind transport);  // Returns the time, for the two below.
  void CarriedOut(int64_t begin) { apply_.Record(MicrosSince(begin)); }
  void End(int64_t begin, bool ok);
  // Bytes of values, and how many of them went through shared memory.
  void CountValues(int64_t bytes, int64_t shared_bytes);

  v1::MethodTraffic Describe() const;

 private:
  static int64_t MicrosSince(int64_t begin) { return (absl::GetCurrentTimeNanos() - begin) / 1000; }

  const char* const name_;
  std::atomic<int64_t> calls_ = 0, refused_ = 0, open_ = 0, open_max_ = 0, data_calls_ = 0;
  std::atomic<int64_t> bytes_ = 0, shared_bytes_ = 0;
  LogHistogram apply_, answer_;  // Microseconds.
};

struct TrafficMetrics {
  MethodMetrics push{"Push"};
  MethodMetrics pull{"Pull"};
  MethodMetrics scan_rows{"ScanRows"};
  MethodMetrics read_snapshot{"ReadSnapshot"};
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_RPC_TRAFFIC_METRICS_H_
