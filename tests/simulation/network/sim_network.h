// SimNetwork: calls with bytes between named endpoints, over links that lose, delay, double,
// reorder and corrupt messages, reset connections, are cut and clogged. It knows nothing of what
// the bytes mean.
//
// A call is a request and at most one answer. The caller hears exactly once how it ended: the
// answer, kDeadlineExceeded by its own clock, or kUnavailable when the connection breaks; whatever
// it is, a request that was sent may have run, and may run later. The receiver hears of a caller
// that has given up, if that message arrives.
//
// A corrupted message is found by the transport's checksum, as TLS would, and resets the
// connection: every call between the two endpoints ends with kUnavailable. In calls that
// have a checksum of their own (methods.h), bits flip as well, and arrive.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_NETWORK_SIM_NETWORK_H_
#define CAPSTAN_TESTS_SIMULATION_NETWORK_SIM_NETWORK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/simulation/network/event_loop.h"
#include "tests/simulation/network/fault.h"
#include "tests/simulation/network/prng.h"
#include "tests/simulation/network/process.h"
#include "tests/simulation/network/trace_hash.h"

namespace capstan::sim {

// Probabilities of what happens to one message.
struct LinkFaults {
  double lose = 0;
  double delay = 0;
  double repeat = 0;  // Requests only: it arrives twice.
  double corrupt = 0;
  double reset = 0;
  double flip = 0;  // Calls with a checksum only: a bit of it changes, and it arrives.
  // Share of broken calls that end with UNKNOWN or INTERNAL, as gRPC ends some of them.
  double transport_status = 0;
  absl::Duration delay_max = absl::Seconds(1);
  absl::Duration latency_max = absl::Milliseconds(1);  // Latency of every message; at least 50 us.
  bool any() const { return lose + delay + repeat + corrupt + reset > 0; }
};

class SimNetwork {
 public:
  using EndpointId = int;
  using HostId = int;
  using CallId = uint64_t;  // > 0.
  using Done = std::function<void(const absl::Status&, const std::string& answer)>;

  // A request as its receiver sees it.
  class Incoming {
   public:
    EndpointId from = 0;
    int method = 0;
    std::string bytes;
    std::function<void()> on_cancel;  // The caller is gone. Set by the receiver; may stay empty.

    void Answer(const absl::Status& status, std::string bytes);  // At most once.

   private:
    friend class SimNetwork;
    SimNetwork* network_ = nullptr;
    CallId call_ = 0;
    EndpointId to_ = 0;
    uint64_t incarnation_ = 0;  // The receiver's incarnation.
    bool checked_ = false;
    bool answered_ = false;
  };
  using Handler = std::function<void(const std::shared_ptr<Incoming>&)>;

  SimNetwork(EventLoop* loop, Prng prng, FaultCounts* counts, TraceHash* trace);

  // The process outlives the network. Endpoints of one host reach each other whatever is cut.
  EndpointId AddEndpoint(HostId host, Process* process);
  void SetHandler(EndpointId endpoint, Handler handler);

  CallId Call(EndpointId from, EndpointId to, int method, std::string bytes, absl::Duration timeout,
              Done done);
  void Cancel(CallId call);  // `done` is not called any more.
  // Either endpoint closes the connection between them: every call of it breaks.
  void Reset(EndpointId a, EndpointId b);

  void set_faults(const LinkFaults& faults) { faults_ = faults; }
  // Cuts or mends the way from one host to another. Cuts are counted: each needs its mending.
  void Cut(HostId from, HostId to);
  void Mend(HostId from, HostId to);
  // Messages of the way pile up until Unclog lets them all go at once.
  void Clog(HostId from, HostId to);
  void Unclog(HostId from, HostId to);

  // The endpoint's process has died: its calls are gone, calls to it break.
  void EndpointDied(EndpointId endpoint);

  int64_t calls() const { return static_cast<int64_t>(last_call_); }

 private:
  struct Endpoint {
    HostId host = 0;
    Process* process = nullptr;
    Handler handler;
  };
  struct Pending {
    EndpointId from = 0;
    EndpointId to = 0;
    uint64_t incarnation = 0;  // The caller's incarnation.
    Process::TimerId deadline = 0;
    Done done;
    std::vector<std::weak_ptr<Incoming>> received;
  };
  struct Link {
    int cuts = 0;
    int clogs = 0;
    Instant last_arrival;
    std::vector<std::function<void()>> held;  // Messages that wait for Mend or Unclog.
  };

  using Arrival = std::function<void()>;
  Link& LinkOf(HostId from, HostId to) { return links_[{from, to}]; }
  // The content of one message. `bytes`: null for none. `checked`: the call has a checksum of its
  // own, so a bit may flip on the way.
  struct Payload {
    std::shared_ptr<std::string> bytes;
    bool checked = false;
  };
  void Transmit(EndpointId from, EndpointId to, const Payload& payload, bool repeatable,
                Arrival arrival);
  void MayFlip(const Payload& payload);
  absl::Status Broken();
  void Travel(Link& link, Arrival arrival);
  void DeliverRequest(CallId call, EndpointId from, EndpointId to, int method,
                      const std::string& bytes);
  void End(CallId call, const absl::Status& status, const std::string& answer);
  void CancelReceived(const Pending& pending);

  EventLoop* const loop_;
  Prng prng_;
  Prng wire_prng_;  // Draws flipped bits and statuses.
  FaultCounts* const counts_;
  TraceHash* const trace_;
  LinkFaults faults_;
  std::vector<Endpoint> endpoints_;
  std::map<std::pair<HostId, HostId>, Link> links_;
  std::map<CallId, Pending> pending_;
  CallId last_call_ = 0;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_NETWORK_SIM_NETWORK_H_
