#include "tests/simulation/shells/sim_server.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/frame/frame.h"
#include "common/net/frame/testing/whole_frame.h"
#include "common/random/philox.h"
#include "common/status/status_macros.h"
#include "common/wire/message_checksum.h"
#include "server/replication/replica_checks.h"
#include "tests/simulation/network/methods.h"

namespace capstan::sim {
namespace {

constexpr absl::Duration kReplicateTimeout = absl::Seconds(1);
constexpr absl::Duration kPieceMax =
    absl::Milliseconds(50);  // Longest time for a piece of a bucket that is installed.
constexpr absl::Duration kDiskMax = absl::Milliseconds(10);
// Until a checkpoint is written: long enough for training to go on meanwhile.
constexpr absl::Duration kCheckpointMax = absl::Seconds(1);
constexpr absl::Duration kSnapshotLease = absl::Seconds(3);
constexpr absl::Duration kHeldBackMax = absl::Milliseconds(5);
constexpr uint64_t kSectorsStreams = 1000;  // One for each endpoint.
constexpr uint64_t kRowDisksStreams = 2000;
constexpr uint64_t kRowDisksStream = 11;
constexpr uint64_t kSlowSyncsStreams = 3000;
constexpr uint64_t kOldDisksStreams = 4000;
// Share of worlds in which row disks break.
constexpr double kRowDisksBreak = 0.4;
constexpr absl::Duration kMakeMax = absl::Milliseconds(50);  // Longest time to make shards.

bool KeepsRowsOnDisk(const JobOptions& job) { return job.sparse_memory > 0; }

}  // namespace

SimServer::~SimServer() = default;

SimServer::SimServer(World* world, SimNetwork::HostId host, HostClock* clock, std::string name)
    : world_(world),
      host_(host),
      process_(std::move(name), &world->loop, clock),
      endpoint_(world->network.AddEndpoint(host, &process_)),
      transport_(this),
      sectors_(Prng(world->options.seed).Fork(kSectorsStreams + static_cast<uint64_t>(endpoint_))),
      old_disks_(
          Prng(world->options.seed).Fork(kOldDisksStreams + static_cast<uint64_t>(endpoint_))),
      slow_syncs_(
          Prng(world->options.seed).Fork(kSlowSyncsStreams + static_cast<uint64_t>(endpoint_))),
      row_disk_faults_(
          Prng(world->options.seed).Fork(kRowDisksStreams + static_cast<uint64_t>(endpoint_))) {
  Prng drawn = Prng(world->options.seed).Fork(kRowDisksStream);
  if (world->AnyJob(KeepsRowsOnDisk) && drawn.Chance(kRowDisksBreak)) {
    row_disk_breaks_ = drawn.Between(absl::Seconds(5), absl::Seconds(40));
  }
  world_->network.SetHandler(endpoint_, [this](const Call& call) { Handle(call); });
  process_.set_on_kill([this] {
    world_->network.EndpointDied(endpoint_);
    agent_.reset();
    server_agent_.reset();
    jobs_.reset();
    writer_.reset();
    captured_moment_.reset();
    source_.reset();
    log_.reset();
    held_back_.clear();
    timer_ = 0;
    timer_for_ = Instant::InfiniteFuture();
  });
}

void SimServer::Start() {
  if (disk_ == nullptr) disk_ = MakeDisk();
  rotten_ = false;
  process_.Start();
  MakeParts();
  const absl::Status opened = log_->Open();
  if (!opened.ok()) {  // It ends, as the daemon does, and is started again.
    world_->trace.Narrate(
        absl::StrCat(process_.name(), " cannot open its log: ", opened.ToString()));
    process_.Kill();
    return StartAgain();
  }
  agent_ = std::make_unique<SimAgent>(world_, &process_, endpoint_, Registration(),
                                      server_agent_.get(), [this] { EndForName(); });
  agent_->Start();
  BreakRowDiskLater();
}

void SimServer::StartAgain() {
  world_->loop.After(absl::Seconds(1), [this] {
    if (!process_.alive() && !retired_) Start();
  });
}

void SimServer::EndForName() {
  if (world_->faults[Fault::kStartedTwice] == 0) {
    world_->failure =
        absl::StrCat(process_.name(), ": nobody else has its name, and it is refused");
  }
  world_->loop.After(absl::ZeroDuration(), [this, incarnation = process_.incarnation()] {
    if (!process_.alive() || process_.incarnation() != incarnation) return;
    Kill(DiskFate::kKept);
    StartAgain();
  });
}

void SimServer::StartOnCopyOf(const SimServer& other) {
  disk_ = MakeDisk();
  disk_->CopyFrom(*other.disk_);
  Start();
}

void SimServer::Retire() {
  retired_ = true;
  Kill(DiskFate::kLost);
}

void SimServer::Stop(DiskFate if_safe, absl::Duration grace, std::function<void(bool safe)> ended) {
  agent_->Leave(SimAgent::When::kSafe, grace, [this, if_safe, ended = std::move(ended)](bool safe) {
    Kill(safe ? if_safe : DiskFate::kKept);
    ended(safe);
  });
}

void SimServer::MakeParts() {
  row_disks_ = std::make_unique<FaultyRowDisks>(&world_->row_disks);
  jobs_ = std::make_unique<server::HeldJobs>();
  server::ServerLog::Options log;
  log.disk = disk_.get();
  log.folder = "log";
  log.job.segment_bytes_max = world_->options.log_segment_bytes;
  log.execute = DiskExecutor(kDiskMax);
  log.on_logged = [this](const JobId& job, const std::string& unique_id, const ShardKey& shard,
                         Term term, Position position) {
    jobs_->OnLogged(job, unique_id, shard, term, position);
  };
  log.on_failed = [this](const JobId& job, const std::string& unique_id,
                         const absl::Status& status) {
    ++world_->reached[Reached::kLogFailed];
    jobs_->OnLogFailed(job, unique_id, status);
  };
  log_ = std::make_unique<server::ServerLog>(log);
  source_ = std::make_unique<server::DiskTableSource>(&world_->shared_disk, log_.get());
  writer_ = std::make_unique<server::CheckpointWriter>(&world_->shared_disk,
                                                       DiskExecutor(kCheckpointMax));
  captured_moment_ = std::make_unique<CapturedMoment>(
      world_, writer_.get(), [this](const JobId& job) { return Held(job); });
  server::ServerAgent::Options options;
  options.jobs = jobs_.get();
  options.clock = &process_.clock();
  options.transport = &transport_;
  options.log = log_.get();
  options.stored = [this] { return log_->Stored(); };
  options.source = source_.get();
  options.row_disks = row_disks_.get();
  options.checkpoints = captured_moment_.get();
  options.on_change = [this] { process_.After(absl::ZeroDuration(), [this] { agent_->Wake(); }); };
  options.schedule_tick = [this](Instant at) { ScheduleTick(at); };
  options.execute = [this](std::function<void()> make) {
    process_.After(world_->prng.Between(absl::ZeroDuration(), kMakeMax), [this, make] {
      make();
      LookAtDisks();  // It may have written what was queued for a log.
      for (const auto& job : world_->jobs) {
        const auto held = Held(job->id());
        if (held != nullptr) job->kept.Look(endpoint_, *held);
      }
    });
  };
  options.snapshots.lease = kSnapshotLease;
  server_agent_ = std::make_unique<server::ServerAgent>(std::move(options));
}

v1::RegisterRequest SimServer::Registration() const {
  v1::RegisterRequest registration;
  registration.set_role(v1::SERVER);
  registration.set_name(process_.name());
  registration.set_address(World::AddressOf(endpoint_));
  return registration;
}

std::shared_ptr<server::HeldJob> SimServer::Held(const JobId& job) const {
  if (jobs_ == nullptr) return nullptr;
  const auto held = jobs_->Find(job);
  return held.ok() ? *held : nullptr;
}

void SimServer::Transport::Send(const v1::ServerAddress& to, server::ReplicaRequest request,
                                Moved moved, Done done) {
  if (request.rows == nullptr) return SendInstall(to, request.message.get(), std::move(done));
  SendRows(to, std::make_shared<v1::ReplicateRequest>(*request.message), std::move(request.rows),
           std::move(moved), std::move(done));
}

void SimServer::Transport::SendRows(const v1::ServerAddress& to,
                                    std::shared_ptr<v1::ReplicateRequest> message,
                                    std::shared_ptr<server::CapturedRows> rows, Moved moved,
                                    Done done) {
  const absl::Duration takes = server_->world_->prng.Between(absl::ZeroDuration(), kPieceMax);
  server_->process_.After(takes, [this, to, message, rows, moved, done] {
    absl::StatusOr<std::optional<v1::ShardSnapshot>> piece = rows->Next();
    if (!piece.ok()) return done(piece.status(), {});
    if (!piece->has_value()) return SendInstall(to, message.get(), done);
    moved(static_cast<int64_t>((*piece)->ByteSizeLong()));
    *message->mutable_install()->add_pieces() = **std::move(piece);
    SendRows(to, message, rows, moved, done);
  });
}

void SimServer::Transport::SendInstall(const v1::ServerAddress& to, v1::ReplicateRequest* message,
                                       Done done) {
  World* world = server_->world_;
  Seal(message);
  world->network.Call(
      server_->endpoint_, World::EndpointOf(to.address()), kInstall, message->SerializeAsString(),
      kReplicateTimeout,
      [done = std::move(done)](const absl::Status& status, const std::string& answer) {
        v1::ReplicateResponse response;
        if (status.ok() && !response.ParseFromString(answer)) {
          return done(absl::InternalError("unreadable answer"), response);
        }
        done(status.ok() ? server::CheckArrived(response) : status, response);
      });
}

void SimServer::Transport::SendTogether(const v1::ServerAddress& to,
                                        std::vector<server::ReplicaRequest> requests,
                                        SomeDone done) {
  v1::ReplicateBatch batch;
  for (const server::ReplicaRequest& each : requests) *batch.add_messages() = *each.message;
  Seal(&batch);
  World* world = server_->world_;
  world->network.Call(server_->endpoint_, World::EndpointOf(to.address()), kReplicate,
                      batch.SerializeAsString(), kReplicateTimeout,
                      [count = requests.size(), done = std::move(done)](absl::Status status,
                                                                        const std::string& bytes) {
                        v1::ReplicateBatchAnswer answer;
                        if (status.ok() && !answer.ParseFromString(bytes)) {
                          status = absl::InternalError("unreadable answer");
                        }
                        if (status.ok()) status = server::CheckArrived(answer);
                        done(server::OutcomesOf(count, status, answer));
                      });
}

// ---------------------------------------------------------------- calls

namespace {

const JobId& JobOf(const PushMessage& push) { return push.head.caller().job_id(); }
const JobId& JobOf(const v1::PullRequest& request) { return request.caller().job_id(); }
const JobId& JobOf(const v1::ReadSnapshotRequest& request) { return request.job_id(); }
const JobId& JobOf(const v1::CloseSnapshotRequest& request) { return request.job_id(); }

bool Parse(const std::string& bytes, google::protobuf::Message* message) {
  return message->ParseFromString(bytes);
}
bool Parse(const std::string& bytes, PushMessage* message) {
  absl::StatusOr<PushMessage> push = DecodePush(absl::Cord(bytes));
  if (push.ok()) *message = *std::move(push);
  return push.ok();
}

std::string Serialize(const google::protobuf::Message& message) {
  return message.SerializeAsString();
}
std::string Serialize(const PullAnswer& answer) { return std::string(Encode(answer)); }

std::optional<server::HeldJob::CallId> Start(server::HeldJob& job, const PushMessage& push,
                                             v1::PushResponse* response,
                                             server::HeldJob::Done done) {
  return job.calls().Push(push, response, std::move(done));
}
std::optional<server::HeldJob::CallId> Start(server::HeldJob& job, const v1::PullRequest& request,
                                             PullAnswer* answer, server::HeldJob::Done done) {
  return job.calls().Pull(request, answer, std::move(done));
}
std::optional<server::HeldJob::CallId> Start(server::HeldJob& job,
                                             const v1::ReadSnapshotRequest& request,
                                             v1::ReadSnapshotResponse* response,
                                             const server::HeldJob::Done& done) {
  return job.snapshot_calls().Read(request, response, done);
}
std::optional<server::HeldJob::CallId> Start(server::HeldJob& job,
                                             const v1::CloseSnapshotRequest& request,
                                             v1::CloseSnapshotResponse*,
                                             const server::HeldJob::Done& done) {
  job.snapshot_calls().Close(request);
  done(absl::OkStatus());
  return std::nullopt;
}

// The answer as it travels.
template <typename Response>
std::string Told(const SimNetwork::Incoming& call, const Response& response) {
  if (!IsFramed(call.method)) return Serialize(response);
  return EncodeFrame({.kind = FrameKind::kAnswer}, Serialize(response));
}

}  // namespace

// `told` is called when the answer leaves. Request and response are shared by the call's closures.
template <typename Request, typename Response>
void SimServer::Serve(const Call& call,
                      const std::function<void(const Request&, const Response&)>& told) {
  auto request = std::make_shared<Request>();
  if (!Parse(call->bytes, request.get())) {
    return call->Answer(absl::InternalError("unreadable message"), "");
  }
  const auto job = jobs_->Find(JobOf(*request));
  if (!job.ok()) return call->Answer(job.status(), "");
  auto response = std::make_shared<Response>();
  const auto waits = sim::Start(**job, *request, response.get(),
                                [call, request, response, told](const absl::Status& status) {
                                  if (status.ok() && told) told(*request, *response);
                                  call->Answer(status, status.ok() ? Told(*call, *response) : "");
                                });
  if (!waits.has_value()) return;
  call->on_cancel = [weak = std::weak_ptr<server::HeldJob>(*job), id = *waits] {
    if (const auto held = weak.lock(); held != nullptr) held->calls().Cancel(id);
  };
}

// A frame that was damaged on its way: as DataServer, closes the connection.
bool SimServer::OpenFrame(const Call& call) {
  absl::StatusOr<std::string> payload = DecodeFrame(call->bytes);
  if (!payload.ok()) {
    ++world_->reached[Reached::kDamagedFrame];
    world_->network.Reset(call->from, endpoint_);
    return false;
  }
  call->bytes = *std::move(payload);
  return true;
}

void SimServer::Handle(const Call& call) {
  if (IsFramed(call->method) && !serving_held_back_ && !OpenFrame(call)) return;
  switch (call->method) {
    case kPush:
      if (HoldBack(call)) return;
      return Serve<PushMessage, v1::PushResponse>(
          call, [this](const PushMessage& push, const v1::PushResponse& response) {
            world_->JobOf(JobOf(push)).Tell([&](Checker& checker) {
              checker.PushAnswered(process_.name(), push.head, response);
            });
          });
    case kPull:
      world_->row_disks.on_fetch = [this] { ServeHeldBack(); };
      Serve<v1::PullRequest, PullAnswer>(
          call, [this](const v1::PullRequest& request, const PullAnswer& answer) {
            world_->JobOf(JobOf(request)).Tell([&](Checker& checker) {
              checker.PullAnswered(process_.name(), request, answer.head);
            });
          });
      world_->row_disks.on_fetch = nullptr;
      return;
    case kReplicate:
      return Replicate(call);
    case kInstall:
      return Install(call);
    case kReadSnapshot:
      return Serve<v1::ReadSnapshotRequest, v1::ReadSnapshotResponse>(call, nullptr);
    case kCloseSnapshot:
      return Serve<v1::CloseSnapshotRequest, v1::CloseSnapshotResponse>(call, nullptr);
    case kGetRouting:
      if (const absl::Status status = GetRouting(call); !status.ok()) call->Answer(status, "");
      return;
    default:
      return call->Answer(absl::UnimplementedError("no such method"), "");
  }
}

void SimServer::Replicate(const Call& call) {
  auto batch = std::make_shared<v1::ReplicateBatch>();
  if (!batch->ParseFromString(call->bytes)) {
    return call->Answer(absl::InternalError("unreadable message"), "");
  }
  if (const absl::Status arrived = server::CheckArrived(*batch); !arrived.ok()) {
    ++world_->reached[Reached::kDamagedReplicaMessage];
    return call->Answer(arrived, "");
  }
  const auto job = jobs_->Find(server::JobOf(*batch));
  if (!job.ok()) return call->Answer(job.status(), "");
  auto answer = std::make_shared<v1::ReplicateBatchAnswer>();
  (*job)->replica_calls().ReplicateBatch(
      *batch, answer.get(), [call, batch, answer](const absl::Status& status) {
        if (status.ok()) Seal(answer.get());
        call->Answer(status, status.ok() ? answer->SerializeAsString() : "");
      });
}

// A whole shard is made aside, for a while in which the job goes on.
void SimServer::Install(const Call& call) {
  auto request = std::make_shared<v1::ReplicateRequest>();
  if (!request->ParseFromString(call->bytes)) {
    return call->Answer(absl::InternalError("unreadable message"), "");
  }
  if (const absl::Status arrived = server::CheckArrived(*request); !arrived.ok()) {
    ++world_->reached[Reached::kDamagedReplicaMessage];
    return call->Answer(arrived, "");
  }
  const auto job = jobs_->Find(request->job_id());
  if (!job.ok()) return call->Answer(job.status(), "");
  auto response = std::make_shared<v1::ReplicateResponse>();
  const auto done = [call, request, response](const absl::Status& status) {
    if (status.ok()) Seal(response.get());
    call->Answer(status, status.ok() ? response->SerializeAsString() : "");
  };
  auto made = (*job)->replica_calls().BeginInstall(*request);
  if (!made.ok()) return call->Answer(made.status(), "");
  auto shard = std::make_shared<std::optional<server::TableShard>>(*std::move(made));
  process_.After(world_->prng.Between(absl::ZeroDuration(), kPieceMax),
                 [job = *job, request, response, done, shard] {
                   job->replica_calls().Install(*request, std::move(*shard), response.get(), done);
                 });
}

bool SimServer::HoldBack(const Call& call) {
  if (!world_->AnyJob(KeepsRowsOnDisk) || serving_held_back_) return false;
  if (!world_->prng.Chance(0.2)) return false;
  held_back_.push_back(call);
  process_.After(world_->prng.Between(absl::ZeroDuration(), kHeldBackMax),
                 [this] { ServeHeldBack(); });
  return true;
}

void SimServer::ServeHeldBack() {
  if (world_->row_disks.on_fetch && !held_back_.empty()) {
    ++world_->reached[Reached::kPushedWhileFetching];
  }
  serving_held_back_ = true;
  for (const Call& call : std::exchange(held_back_, {})) Handle(call);
  serving_held_back_ = false;
}

absl::Status SimServer::GetRouting(const Call& call) {
  v1::GetRoutingRequest request;
  if (!request.ParseFromString(call->bytes)) return absl::InternalError("unreadable message");
  CAPSTAN_ASSIGN_OR_RETURN(const auto job, jobs_->Find(request.job_id()));
  v1::GetRoutingResponse response;
  *response.mutable_routing() = job->assignment().routing();
  call->Answer(absl::OkStatus(), response.SerializeAsString());
  return absl::OkStatus();
}

void SimServer::ScheduleTick(Instant at) {
  if (timer_ != 0 && timer_for_ <= at) return;
  process_.CancelTimer(timer_);
  timer_for_ = at;
  timer_ = process_.At(at, [this] {
    timer_ = 0;
    Tick();
  });
}

void SimServer::Tick() { ScheduleTick(jobs_->Tick(process_.Now())); }

}  // namespace capstan::sim
