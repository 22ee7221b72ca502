#include "tests/benchmark/sparse_contender.h"

#include <filesystem>
#include <utility>

#include "common/sparse/key_batch.h"
#include "common/status/status_macros.h"
#include "tests/benchmark/processor_time.h"

namespace capstan::benchmark {
namespace {

constexpr char kJob[] = "sparse-1";
constexpr int32_t kBuckets = 32;  // 10^7 rows of 16 floats and their state fit.
constexpr int64_t kFirstKeys = 100'000;

v1::TableAssignment AssignmentOf(int64_t dim, const v1::ServerAddress& server) {
  v1::TableAssignment assignment;
  assignment.set_job_id(kJob);
  v1::TableSpec* table = assignment.add_tables();
  table->set_name("embedding");
  table->set_elements(kBuckets);
  table->set_rule(v1::OPTIMIZER);
  table->mutable_sparse()->set_dim(static_cast<int32_t>(dim));
  table->mutable_sparse()->set_buckets(kBuckets);
  assignment.mutable_optimizer()->set_learning_rate(1.0f);
  assignment.mutable_optimizer()->mutable_sgd();
  assignment.mutable_consistency()->mutable_asp();
  v1::RoutingTable* routing = assignment.mutable_routing();
  routing->set_job_id(kJob);
  routing->set_generation(1);
  *routing->add_servers() = server;
  for (int32_t bucket = 0; bucket < kBuckets; ++bucket) {
    v1::ShardRoute* route = routing->add_shards();
    route->set_shard(bucket);
    route->set_element_begin(bucket);
    route->set_element_end(bucket + 1);
    route->set_term(1);
  }
  assignment.mutable_membership()->add_members()->set_active(true);
  return assignment;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SparseContender>> SparseContender::Start(const Options& options) {
  std::unique_ptr<SparseContender> contender(new SparseContender(options));
  std::filesystem::create_directories(options.folder);
  CAPSTAN_ASSIGN_OR_RETURN(
      contender->server_,
      LiveServer::Start({.program = options.server, .name = "server-0", .folder = options.folder}));
  contender->assignment_ = AssignmentOf(options.dim, contender->server_->address());
  CAPSTAN_RETURN_IF_ERROR(contender->ExpectKeys(kFirstKeys));
  return contender;
}

absl::Status SparseContender::ExpectKeys(int64_t batch_keys) {
  client_.reset();
  // A server takes pushes only of the incarnation that the membership lists.
  assignment_.mutable_membership()->set_generation(++incarnation_);
  assignment_.mutable_membership()->mutable_members(0)->set_incarnation(incarnation_);
  CAPSTAN_RETURN_IF_ERROR(server_->Assign(assignment_));
  const int64_t row_bytes = int64_t{sizeof(uint64_t)} + options_.dim * int64_t{sizeof(float)};
  worker::PushPullClient::Options options{
      .job = kJob, .rank = Rank(0), .incarnation = Incarnation(incarnation_)};
  options.bucket_bytes = {batch_keys * row_bytes / kBuckets + 1};
  if (!options_.shared_memory) options.shared_memory_bytes = 0;
  client_ = std::make_unique<worker::PushPullClient>(options, clock_);
  return client_->SetRouting(assignment_.routing());
}

absl::Status SparseContender::PushPull(absl::Span<const uint64_t> keys,
                                       absl::Span<const float> gradients) {
  const auto batch = std::make_shared<const KeyBatch>(MakeKeyBatch(keys, kBuckets, &places_));
  const auto sums = std::make_shared<worker::TableArrays>();
  sums->push_back(SumByKey(gradients, places_, batch->size(), options_.dim));
  values_.resize(1);
  values_[0].resize(static_cast<size_t>(batch->size() * options_.dim));
  const worker::AllTableKeys table_keys = {{.batch = batch, .dim = options_.dim}};
  CAPSTAN_ASSIGN_OR_RETURN(
      const worker::OpId push,
      client_->Push(Iteration(iteration_++), {}, sums, worker::PushStart::kNow, table_keys));
  CAPSTAN_ASSIGN_OR_RETURN(
      const worker::OpId pull,
      client_->Pull(Iteration(iteration_), worker::PullMode::kTrain, &values_, table_keys));
  CAPSTAN_RETURN_IF_ERROR(client_->Wait(pull).status());
  return client_->Wait(push).status();
}

float SparseContender::Sum(size_t i, int64_t column) const {
  return -values_[0][static_cast<size_t>(places_[i] * options_.dim + column)];
}

double SparseContender::Processor() const {
  return ProcessorSeconds() + server_->ProcessorSeconds();
}

}  // namespace capstan::benchmark
