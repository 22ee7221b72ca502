#include "tests/benchmark/contender.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/security/capability.h"
#include "common/status/status_macros.h"
#include "proto/parameter_server.grpc.pb.h"
#include "scheduler/cli/cluster/local_certificates.h"
#include "scheduler/core/messages/placement.h"
#include "tests/benchmark/at_once.h"
#include "tests/benchmark/processor_time.h"

namespace capstan::benchmark {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);
constexpr absl::Duration kMeasured = absl::Hours(24);  // More than any measurement takes.

CapabilityKey Key() {
  return CapabilityKey::FromBytes(std::string(CapabilityKey::kBytes, 'k')).value();
}

Incarnation IncarnationOf(int rank) { return Incarnation(static_cast<uint64_t>(rank) + 1); }

std::vector<Range> CutOf(const Layout& layout, const Config& config) {
  // The table is cut as for the primaries alone: replicas change nothing else.
  if (!config.tensor_shards) return scheduler::CutTable(layout.count(), config.servers);
  return layout.Ranges();
}

void AddRouting(const Layout& layout, const Config& config,
                const std::vector<std::unique_ptr<LiveServer>>& servers,
                v1::RoutingTable* routing) {
  routing->set_job_id(kContenderJob);
  routing->set_generation(1);
  for (const auto& server : servers) *routing->add_servers() = server->address();
  for (const Range& range : CutOf(layout, config)) {
    v1::ShardRoute* route = routing->add_shards();
    route->set_shard(routing->shards_size() - 1);
    route->set_element_begin(range.begin);
    route->set_element_end(range.end);
    route->set_server(route->shard() % config.servers);
    route->set_term(1);
    for (int i = 1; i <= config.replicas; ++i) {
      v1::ShardReplica* replica = route->add_replicas();
      replica->set_server(i);
      replica->set_in_sync(true);
    }
  }
}

v1::TableAssignment AssignmentOf(const Layout& layout, Mode mode, const Config& config,
                                 const std::vector<std::unique_ptr<LiveServer>>& servers) {
  v1::TableAssignment assignment;
  assignment.set_job_id(kContenderJob);
  // In plain text, callers that are no clients pull, too.
  if (!config.tls_folder.empty()) assignment.set_capability_key(Key().bytes());
  v1::TableSpec* table = assignment.add_tables();
  table->set_name("parameters");
  table->set_elements(layout.count());
  table->set_rule(v1::OPTIMIZER);
  for (const Range& range : layout.Ranges()) {
    v1::TensorSpec* tensor = table->add_tensors();
    tensor->set_name(absl::StrCat("layer", table->tensors_size(), ".weight"));
    tensor->add_shape(range.size());
    tensor->set_offset(range.begin);
    tensor->mutable_initializer()->set_uniform_bound(0.1f);
  }
  assignment.mutable_optimizer()->set_learning_rate(0.001f);
  if (config.rule == Rule::kSgd) {
    assignment.mutable_optimizer()->mutable_sgd();
  } else {
    assignment.mutable_optimizer()->mutable_momentum();
  }
  if (mode == Mode::kAsp) {
    assignment.mutable_consistency()->mutable_asp();
  } else {
    assignment.mutable_consistency()->mutable_bsp();
    assignment.set_slots(config.workers);
  }
  assignment.set_seed(1);
  assignment.set_replicas(config.replicas);
  assignment.set_durability(config.durability);
  AddRouting(layout, config, servers, assignment.mutable_routing());
  assignment.mutable_membership()->set_generation(1);
  for (int i = 0; i < config.workers; ++i) {
    v1::Member* member = assignment.mutable_membership()->add_members();
    member->set_rank(i);
    member->set_incarnation(IncarnationOf(i).value());
    member->set_active(true);
  }
  return assignment;
}

}  // namespace

std::vector<Range> Layout::Ranges() const {
  std::vector<Range> ranges;
  if (first_elements > 0) ranges.push_back({0, first_elements});
  for (int64_t begin = first_elements; begin < count(); begin += elements) {
    ranges.push_back({begin, begin + elements});
  }
  return ranges;
}

Contender::Contender(Config config, Layout layout, Mode mode)
    : config_(std::move(config)), layout_(std::move(layout)), mode_(mode) {}

absl::Status Contender::Start(const std::string& folder,
                              std::shared_ptr<const worker::TableArrays> gradient) {
  gradient_ = std::move(gradient);
  CAPSTAN_RETURN_IF_ERROR(StartServers(folder));
  const v1::TableAssignment assignment = AssignmentOf(layout_, mode_, config_, servers_);
  for (const auto& server : servers_) CAPSTAN_RETURN_IF_ERROR(server->Assign(assignment));
  return StartWorkers(assignment.routing());
}

absl::Status Contender::StartServers(const std::string& folder) {
  if (!config_.tls_folder.empty()) {
    const auto open = [this](const std::string& name) {
      return Credentials::Read(cli::LocalTlsFolder(config_.tls_folder, name));
    };
    CAPSTAN_ASSIGN_OR_RETURN(scheduler_credentials_, open("scheduler"));
    CAPSTAN_ASSIGN_OR_RETURN(worker_credentials_, open("worker-1"));
    CAPSTAN_ASSIGN_OR_RETURN(user_credentials_, open("user"));
  }
  for (int i = 1; i <= config_.servers + config_.replicas; ++i) {
    LiveServer::Options options;
    options.program = config_.server;
    options.name = absl::StrCat("server-", i);
    if (!config_.tls_folder.empty()) {
      options.tls_dir = cli::LocalTlsFolder(config_.tls_folder, options.name);
      options.scheduler = scheduler_credentials_.get();
    }
    options.folder = absl::StrCat(folder, "/", options.name);
    options.log = config_.durability == v1::LOG;
    options.data_listen = config_.data_listen;
    std::filesystem::create_directories(options.folder);
    CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<LiveServer> server, LiveServer::Start(options));
    servers_.push_back(std::move(server));
  }
  return absl::OkStatus();
}

absl::Status Contender::StartWorkers(const v1::RoutingTable& routing) {
  const bool committed = config_.replicas > 0 || config_.durability == v1::LOG;
  workers_.reserve(static_cast<size_t>(config_.workers));
  for (int i = 0; i < config_.workers; ++i) {
    Worker& worker = workers_.emplace_back();
    worker.rank = Rank(i);
    worker.values = {std::vector<float>(static_cast<size_t>(layout_.count()))};
    worker::PushPullClient::Options options{
        .job = kContenderJob,
        .rank = Rank(i),
        .incarnation = IncarnationOf(i),
        .session = {.exact_snapshots = config_.format != NumberFormat::kFp32},
        .formats = {{.gradients = config_.format, .parameters = config_.format}}};
    if (!config_.shared_memory) options.shared_memory_bytes = 0;
    options.data_connections = config_.data_connections;
    options.credentials = worker_credentials_.get();
    options.capability = [bytes = MintCapability(Key(), {.job = kContenderJob,
                                                         .scope = Capability::Scope::kTask,
                                                         .rank = Rank(i),
                                                         .incarnation = IncarnationOf(i),
                                                         .expiry = absl::Now() + kMeasured})] {
      return bytes;
    };
    if (mode_ == Mode::kBsp && committed) {
      options.session.acknowledgement = worker::Acknowledgement::kWholeIteration;
    }
    worker.client = std::make_unique<worker::PushPullClient>(options, clock_);
    CAPSTAN_RETURN_IF_ERROR(worker.client->SetRouting(routing));
    CAPSTAN_ASSIGN_OR_RETURN(const worker::OpId first, StartPull(worker));
    CAPSTAN_RETURN_IF_ERROR(worker.client->Wait(first).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<worker::OpId> Contender::StartPush(Worker& worker) const {
  const int rank = worker.rank.value();
  const Range slots = mode_ == Mode::kBsp ? Range{rank, rank + 1} : Range{};
  const auto start = config_.layer_by_layer ? worker::PushStart::kHeld : worker::PushStart::kNow;
  return worker.client->Push(Iteration(worker.iteration++), slots, gradient_, start);
}

absl::StatusOr<worker::OpId> Contender::StartPull(Worker& worker) const {
  return worker.client->Pull(Iteration(worker.iteration), worker::PullMode::kTrain, &worker.values);
}

absl::Status Contender::RunWorker(Worker& worker, int iterations) const {
  for (int i = 0; i < iterations; ++i) {
    CAPSTAN_ASSIGN_OR_RETURN(const worker::OpId push, StartPush(worker));
    CAPSTAN_ASSIGN_OR_RETURN(const worker::OpId pull, StartPull(worker));
    if (config_.layer_by_layer) {
      std::vector<Range> layers = layout_.Ranges();
      for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
        worker.client->Release(push, TableId(0), layer->begin);
      }
    }
    CAPSTAN_RETURN_IF_ERROR(worker.client->Wait(pull).status());
    CAPSTAN_RETURN_IF_ERROR(worker.client->Wait(push).status());
  }
  return absl::OkStatus();
}

absl::Status Contender::Run(int iterations) {
  return RunAtOnce(workers_.size(), [&](size_t i) { return RunWorker(workers_[i], iterations); });
}

absl::Status Contender::Push() {
  CAPSTAN_ASSIGN_OR_RETURN(const worker::OpId push, StartPush(workers_[0]));
  return workers_[0].client->Wait(push).status();
}

absl::Status Contender::Pull() {
  CAPSTAN_ASSIGN_OR_RETURN(const worker::OpId pull, StartPull(workers_[0]));
  return workers_[0].client->Wait(pull).status();
}

absl::StatusOr<Contender::Speed> Contender::Measure(int iterations) {
  const double processor = Processor();
  const Instant begin = clock_.Now();
  CAPSTAN_RETURN_IF_ERROR(Run(iterations));
  const double seconds = absl::ToDoubleSeconds(clock_.Now() - begin);
  const double mebibytes = 2 * iterations * config_.workers * layout_.mebibytes();
  return Speed{.rate = mebibytes / seconds,
               .processor = (Processor() - processor) / mebibytes * 1024};
}

double Contender::Processor() const {
  double seconds = ProcessorSeconds();
  for (const auto& server : servers_) seconds += server->ProcessorSeconds();
  return seconds;
}

worker::MessageCounts Contender::Counts() const {
  worker::MessageCounts sum;
  for (const Worker& worker : workers_) {
    const worker::MessageCounts counts = worker.client->counts();
    sum.messages += counts.messages;
    sum.shared_messages += counts.shared_messages;
    sum.data_messages += counts.data_messages;
    sum.straight_messages += counts.straight_messages;
  }
  return sum;
}

absl::Status Contender::CheckRecorded() const {
  // Under ASP each push is an update.
  const int64_t iterations = workers_[0].iteration;
  const int64_t version = mode_ == Mode::kAsp ? iterations * config_.workers : iterations;
  for (int i = 0; i < config_.servers; ++i) {
    const v1::ServerAddress& server = servers_[static_cast<size_t>(i)]->address();
    const auto stub = v1::ParameterServer::NewStub(
        MakeChannel(server.address(), ChannelKind::kData, user_credentials_.get(),
                    {PeerRole::kServer, server.node_id()}));
    grpc::ClientContext context;
    SetDeadline(context, kPatience);
    v1::DescribeTablesRequest request;
    request.set_job_id(kContenderJob);
    v1::DescribeTablesResponse response;
    CAPSTAN_RETURN_IF_ERROR(FromGrpcStatus(stub->DescribeTables(&context, request, &response)));
    if (response.tables_size() != 1) return absl::InternalError("the table is gone");
    const v1::HeldTable& table = response.tables(0);
    const int64_t expected = iterations * config_.workers * table.shards();
    if (table.pushes_applied() == expected && table.version_min() == version) continue;
    return absl::InternalError(absl::StrCat(
        config_.name, ": ", table.pushes_applied(), " pushes of shards were recorded, expected ",
        expected, "; version ", table.version_min(), ", expected ", version));
  }
  return absl::OkStatus();
}

}  // namespace capstan::benchmark
