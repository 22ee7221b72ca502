#include "server/rpc/traffic_metrics.h"

namespace capstan::server {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

void Fill(const LogHistogram& histogram, v1::TrafficHistogram* proto) {
  for (const int64_t count : histogram.Counts()) proto->add_counts(count);
  proto->set_sum(histogram.sum());
}

}  // namespace

int64_t MethodMetrics::Begin(TransportKind transport) {
  if (transport == TransportKind::kDataConnection) data_calls_.fetch_add(1, kRelaxed);
  const int64_t open = open_.fetch_add(1, kRelaxed) + 1;
  int64_t most = open_max_.load(kRelaxed);
  while (open > most && !open_max_.compare_exchange_weak(most, open, kRelaxed)) {
  }
  return absl::GetCurrentTimeNanos();
}

void MethodMetrics::End(int64_t begin, bool ok) {
  answer_.Record(MicrosSince(begin));
  calls_.fetch_add(1, kRelaxed);
  if (!ok) refused_.fetch_add(1, kRelaxed);
  open_.fetch_sub(1, kRelaxed);
}

void MethodMetrics::CountValues(int64_t bytes, int64_t shared_bytes) {
  bytes_.fetch_add(bytes, kRelaxed);
  shared_bytes_.fetch_add(shared_bytes, kRelaxed);
}

v1::MethodTraffic MethodMetrics::Describe() const {
  v1::MethodTraffic method;
  method.set_name(name_);
  method.set_calls(calls_.load(kRelaxed));
  method.set_refused(refused_.load(kRelaxed));
  method.set_open(open_.load(kRelaxed));
  method.set_open_max(open_max_.load(kRelaxed));
  method.set_bytes(bytes_.load(kRelaxed));
  method.set_shared_bytes(shared_bytes_.load(kRelaxed));
  method.set_data_calls(data_calls_.load(kRelaxed));
  Fill(apply_, method.mutable_apply());
  Fill(answer_, method.mutable_answer());
  return method;
}

}  // namespace capstan::server
