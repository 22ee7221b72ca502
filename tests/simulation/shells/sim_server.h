// SimServer: a parameter server's process: the real HeldJobs, ServerAgent, write-ahead log and
// checkpoint writer over a simulated disk, replicas over simulated calls, under a SimAgent.
//
// The shell of server_main.cc and parameter_service.h without gRPC and threads: what they run on
// other threads runs here after a while of virtual time. Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_SHELLS_SIM_SERVER_H_
#define CAPSTAN_TESTS_SIMULATION_SHELLS_SIM_SERVER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/storage/testing/sim_disk.h"
#include "server/agent/server_agent.h"
#include "server/checkpoint/checkpoint_writer.h"
#include "server/checkpoint/disk_table_source.h"
#include "server/engine/job/held_job.h"
#include "server/engine/job/held_jobs.h"
#include "server/engine/replica_transport.h"
#include "server/log/server_log.h"
#include "tests/simulation/network/process.h"
#include "tests/simulation/network/sim_network.h"
#include "tests/simulation/shells/captured_moment.h"
#include "tests/simulation/shells/faulty_row_disks.h"
#include "tests/simulation/shells/sim_agent.h"
#include "tests/simulation/world/world.h"

namespace capstan::sim {

class SimServer {
 public:
  // The fate of its disk when the server is killed.
  enum class DiskFate {
    kKept,     // The process died: the system writes its cache back.
    kCrashed,  // The power went: what was not synced may be lost or torn.
    kLost,     // The machine is another one.
  };

  SimServer(World* world, SimNetwork::HostId host, HostClock* clock, std::string name);
  ~SimServer();

  Process& process() { return process_; }
  const Process& process() const { return process_; }
  SimNetwork::EndpointId endpoint() const { return endpoint_; }
  SimNetwork::HostId host() const { return host_; }
  void Start();  // REQUIRES: it is dead.
  // Copies the disk. When the disk is lost later, the server may find this copy as its old disk.
  void KeepCopyOfDisk();
  // Starts this server on a copy of the folder of `other`. REQUIRES: `other` has been started.
  void StartOnCopyOf(const SimServer& other);
  void Retire();  // Dead from now on, and its disk is gone.
  bool registered() const { return agent_ != nullptr && agent_->registered(); }
  void Kill(DiskFate fate);
  // Acts as on SIGTERM: leaves when that is safe, at the latest after `grace`, and reports which it
  // was.
  // `if_safe` is the fate of its disk then; otherwise it stays as it is. REQUIRES: it is alive.
  void Stop(DiskFate if_safe, absl::Duration grace, std::function<void(bool safe)> ended);
  // Kills it while it writes to its disk, or a little later. It comes back at the latest a second
  // after that.
  void CutPowerSoon();
  void CountDiskFaults();
  // A bit of its disk, if it has one; one until its log is read: a second one may hit just the
  // frame that tells damage from a torn end (server/log/frames/record_file.h; seed 1718286339).
  void FlipStoredBit();
  void SetDiskRates();  // Takes the rates of the world.

  // Its copy of a job; null: it holds none, or is dead.
  std::shared_ptr<server::HeldJob> Held(const JobId& job) const;

 private:
  using Call = std::shared_ptr<SimNetwork::Incoming>;

  // A primary's messages to replicas.
  class Transport final : public server::ReplicaTransport {
   public:
    explicit Transport(SimServer* server) : server_(server) {}
    void Send(const v1::ServerAddress& to, server::ReplicaRequest request, Moved moved,
              Done done) override;
    void SendTogether(const v1::ServerAddress& to, std::vector<server::ReplicaRequest> requests,
                      SomeDone done) override;

   private:
    // A whole shard. The rows of a bucket leave piece by piece, while the job goes on.
    void SendRows(const v1::ServerAddress& to, std::shared_ptr<v1::ReplicateRequest> message,
                  std::shared_ptr<server::CapturedRows> rows, Moved moved, Done done);
    void SendInstall(const v1::ServerAddress& to, v1::ReplicateRequest* message, Done done);

    SimServer* const server_;
  };

  void MakeParts();
  void EndForName();         // Another process has its name.
  void StartAgain();         // Starts the daemon after it has ended by itself.
  double SlowSyncs() const;  // Share of groups of writes.
  server::TaskRunner::Execute DiskExecutor(absl::Duration longest);
  void LookAtDisks();  // After each write: tells faults, and ends the process whose power is gone.
  v1::RegisterRequest Registration() const;
  std::unique_ptr<SimDisk> MakeDisk();
  void LosePower();
  void ChangeDisk();
  // In some worlds whose rows lie on disk that disk breaks now and then, until the world heals. It
  // is mended in time; a server that has lost its copies by it is started anew for that.
  void BreakRowDiskLater();
  void BreakRowDisk();
  void MendRowDisk();
  void Handle(const Call& call);
  // Where rows lie on disk a push is now and then left until a pull reads some, for which the job's
  // lock is let go: it is served in the middle of that, or after a while.
  bool OpenFrame(const Call& call);
  bool HoldBack(const Call& call);
  void ServeHeldBack();
  template <typename Request, typename Response>
  void Serve(const Call& call, const std::function<void(const Request&, const Response&)>& told);
  void Replicate(const Call& call);
  void Install(const Call& call);
  absl::Status GetRouting(const Call& call);
  void Tick();
  void ScheduleTick(Instant at);

  World* const world_;
  const SimNetwork::HostId host_;
  Process process_;
  const SimNetwork::EndpointId endpoint_;
  std::unique_ptr<SimDisk> disk_;
  int disks_ = 0;
  bool retired_ = false;
  bool rotten_ = false;  // A bit of its disk has flipped, and nobody has read it.
  std::array<int64_t, SimDisk::kFaultCount> counted_ = {};  // Faults of the disk, by kind.
  Transport transport_;
  Prng sectors_;                       // Draws which crashes keep sectors in no order.
  std::unique_ptr<SimDisk> old_disk_;  // The disk that it had before; null: none, or it is gone.
  Prng old_disks_;
  Prng slow_syncs_;
  Prng row_disk_faults_;
  absl::Duration row_disk_breaks_ = absl::InfiniteDuration();  // At this mean interval.
  std::vector<Call> held_back_;                                // Calls of this process that wait.
  bool serving_held_back_ = false;                             // They are not held back once more.

  // Parts of this process. Each uses the one before.
  std::unique_ptr<FaultyRowDisks> row_disks_;
  std::unique_ptr<server::HeldJobs> jobs_;
  std::unique_ptr<server::ServerLog> log_;
  std::unique_ptr<server::DiskTableSource> source_;
  std::unique_ptr<CapturedMoment> captured_moment_;
  std::unique_ptr<server::CheckpointWriter> writer_;
  std::unique_ptr<server::ServerAgent> server_agent_;
  std::unique_ptr<SimAgent> agent_;
  Process::TimerId timer_ = 0;
  Instant timer_for_ = Instant::InfiniteFuture();
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_SHELLS_SIM_SERVER_H_
