#include "tests/benchmark/contender.h"

#include <time.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/channel.h"
#include "common/net/grpc_status.h"
#include "common/status/status_macros.h"
#include "proto/parameter_server.grpc.pb.h"
#include "scheduler/core/placement.h"

namespace capstan::benchmark {
namespace {

constexpr char kJob[] = "push-pull-1";
constexpr absl::Duration kPatience = absl::Seconds(20);

double ProcessorSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

v1::TableAssignment AssignmentOf(const Layout& layout, Mode mode, const Config& config,
                                 const std::vector<std::unique_ptr<LiveServer>>& servers) {
  v1::TableAssignment assignment;
  assignment.set_job_id(kJob);
  v1::TableSpec* table = assignment.add_tables();
  table->set_name("parameters");
  table->set_elements(layout.count());
  table->set_rule(v1::OPTIMIZER);
  for (int i = 0; i < layout.tensors; ++i) {
    v1::TensorSpec* tensor = table->add_tensors();
    tensor->set_name(absl::StrCat("layer", i, ".weight"));
    tensor->add_shape(layout.elements);
    tensor->set_offset(i * layout.elements);
    tensor->mutable_initializer()->set_uniform_bound(0.1f);
  }
  assignment.mutable_optimizer()->set_learning_rate(0.001f);
  assignment.mutable_optimizer()->mutable_momentum();
  if (mode == Mode::kAsp) {
    assignment.mutable_consistency()->mutable_asp();
  } else {
    assignment.mutable_consistency()->mutable_bsp();
    assignment.set_slots(1);
  }
  assignment.set_seed(1);
  assignment.set_replicas(config.replicas);
  assignment.set_durability(config.durability);
  v1::RoutingTable* routing = assignment.mutable_routing();
  routing->set_job_id(kJob);
  routing->set_generation(1);
  for (const auto& server : servers) *routing->add_servers() = server->address();
  // Cut as for one server, whatever there is beside the first: replicas change nothing else.
  for (const Range& range : scheduler::CutTable(layout.count(), 1)) {
    v1::ShardRoute* route = routing->add_shards();
    route->set_shard(routing->shards_size() - 1);
    route->set_element_begin(range.begin);
    route->set_element_end(range.end);
    route->set_term(1);
    for (int i = 1; i <= config.replicas; ++i) {
      v1::ShardReplica* replica = route->add_replicas();
      replica->set_server(i);
      replica->set_in_sync(true);
    }
  }
  assignment.mutable_membership()->set_generation(1);
  v1::Member* member = assignment.mutable_membership()->add_members();
  member->set_incarnation(1);
  member->set_active(true);
  return assignment;
}

}  // namespace

Contender::Contender(Config config, Layout layout, Mode mode)
    : config_(std::move(config)), layout_(std::move(layout)), mode_(mode) {}

absl::Status Contender::Start(const std::string& folder,
                              std::shared_ptr<const worker::TableArrays> gradient) {
  gradient_ = std::move(gradient);
  values_ = {std::vector<float>(static_cast<size_t>(layout_.count()))};
  for (int i = 0; i <= config_.replicas; ++i) {
    LiveServer::Options options;
    options.program = config_.server;
    options.name = absl::StrCat("server-", i);
    options.folder = absl::StrCat(folder, "/", options.name);
    options.log = config_.durability == v1::LOG;
    std::filesystem::create_directories(options.folder);
    CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<LiveServer> server, LiveServer::Start(options));
    servers_.push_back(std::move(server));
  }
  const v1::TableAssignment assignment = AssignmentOf(layout_, mode_, config_, servers_);
  for (const auto& server : servers_) CAPSTAN_RETURN_IF_ERROR(server->Assign(assignment));
  worker::PushPullClient::Options options{
      .job = kJob, .rank = Rank(0), .incarnation = Incarnation(1), .session = {}};
  const bool committed = config_.replicas > 0 || config_.durability == v1::LOG;
  if (mode_ == Mode::kBsp && committed) {
    options.session.acknowledgement = worker::Acknowledgement::kWholeIteration;
  }
  client_ = std::make_unique<worker::PushPullClient>(options, clock_);
  CAPSTAN_RETURN_IF_ERROR(client_->SetRouting(assignment.routing()));
  CAPSTAN_ASSIGN_OR_RETURN(const worker::OpId first,
                           client_->Pull(Iteration(0), worker::PullMode::kTrain, &values_));
  return client_->Wait(first).status();
}

absl::Status Contender::Run(int iterations) {
  for (int i = 0; i < iterations; ++i, ++iteration_) {
    const Range slots = mode_ == Mode::kBsp ? Range{0, 1} : Range{};
    CAPSTAN_ASSIGN_OR_RETURN(const worker::OpId push,
                             client_->Push(Iteration(iteration_), slots, gradient_));
    CAPSTAN_ASSIGN_OR_RETURN(
        const worker::OpId pull,
        client_->Pull(Iteration(iteration_ + 1), worker::PullMode::kTrain, &values_));
    CAPSTAN_RETURN_IF_ERROR(client_->Wait(pull).status());
    CAPSTAN_RETURN_IF_ERROR(client_->Wait(push).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<Contender::Speed> Contender::Measure(int iterations) {
  const double processor = Processor();
  const Instant begin = clock_.Now();
  CAPSTAN_RETURN_IF_ERROR(Run(iterations));
  const double seconds = absl::ToDoubleSeconds(clock_.Now() - begin);
  const double mebibytes = 2 * iterations * layout_.mebibytes();
  return Speed{.rate = mebibytes / seconds,
               .processor = (Processor() - processor) / mebibytes * 1024};
}

double Contender::Processor() const {
  double seconds = ProcessorSeconds();
  for (const auto& server : servers_) seconds += server->ProcessorSeconds();
  return seconds;
}

absl::Status Contender::CheckRecorded() const {
  const auto stub = v1::ParameterServer::NewStub(
      MakeChannel(servers_[0]->address().address(), ChannelKind::kData));
  grpc::ClientContext context;
  SetDeadline(context, kPatience);
  v1::DescribeTablesRequest request;
  request.set_job_id(kJob);
  v1::DescribeTablesResponse response;
  CAPSTAN_RETURN_IF_ERROR(FromGrpcStatus(stub->DescribeTables(&context, request, &response)));
  if (response.tables_size() != 1) return absl::InternalError("the table is gone");
  const v1::HeldTable& table = response.tables(0);
  const int64_t expected = iteration_ * table.shards();
  if (table.pushes_applied() == expected && table.version_min() == iteration_) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat(
      config_.name, ": ", table.pushes_applied(), " pushes of shards were recorded, expected ",
      expected, "; version ", table.version_min(), ", expected ", iteration_));
}

}  // namespace capstan::benchmark
