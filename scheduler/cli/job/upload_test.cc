#include "scheduler/cli/job/upload.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/net/grpc/grpc_server.h"
#include "common/storage/crc32c.h"
#include "common/testing/status_matchers.h"
#include "proto/uploads.grpc.pb.h"
#include "scheduler/cli/console/interrupts.h"

namespace capstan::cli::upload_test {
namespace {

// A scheduler that takes one file; it may start again in the middle, which loses what it had.
class FakeUploads final : public v1::Uploads::Service {
 public:
  FakeUploads() : server_(GrpcServer::Start({.services = {this}}).value()) {}

  const std::string& address() const { return server_->address(); }

  grpc::Status WritePiece(grpc::ServerContext*, const v1::UploadPieceRequest* piece,
                          v1::UploadPieceResponse*) override {
    if (piece->offset() == 0) received.clear();
    if (piece->offset() > 0 && restarts > 0) {
      --restarts;
      return {grpc::StatusCode::FAILED_PRECONDITION, "begin it anew"};
    }
    if (piece->offset() != static_cast<int64_t>(received.size()) ||
        piece->crc32c() != Crc32cOf(piece->data())) {
      return {grpc::StatusCode::INTERNAL, "another piece was expected"};
    }
    received += piece->data();
    return grpc::Status::OK;
  }
  grpc::Status Finish(grpc::ServerContext*, const v1::FinishUploadRequest* whole,
                      v1::FinishUploadResponse*) override {
    name = whole->file();
    const bool same = whole->bytes() == static_cast<int64_t>(received.size()) &&
                      whole->crc32c() == Crc32cOf(received);
    return same ? grpc::Status::OK : grpc::Status(grpc::StatusCode::DATA_LOSS, "not the same");
  }

  int restarts = 0;
  std::string received, name;

 private:
  const std::unique_ptr<GrpcServer> server_;
};

std::string FileOf(const std::string& content) {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/model.safetensors");
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

v1::JobSpec SpecOf(const std::string& weights) {
  v1::JobSpec spec;
  spec.mutable_training()->set_initial_weights(weights);
  return spec;
}

TEST_CASE("UploadWeights: files of any size arrive, and the job names them", "[cli]") {
  const Interrupts interrupts;
  FakeUploads uploads;
  SchedulerClient client({uploads.address(), "test"});
  const size_t piece = 1 << 20;
  for (const size_t bytes : {size_t{0}, size_t{1}, piece, 2 * piece, 2 * piece + 3}) {
    std::string content(bytes, 'a');
    for (size_t i = 0; i < bytes; i += 1000) content[i] = static_cast<char>('a' + i / 1000 % 26);
    v1::JobSpec spec = SpecOf(FileOf(content));
    REQUIRE_OK(UploadWeights(client, &spec));
    CHECK(uploads.received == content);
    CHECK(spec.training().initial_weights() == "upload:" + uploads.name);
  }
}

TEST_CASE("UploadWeights: of a folder its model is sent, and a job without weights sends nothing",
          "[cli]") {
  const Interrupts interrupts;
  FakeUploads uploads;
  SchedulerClient client({uploads.address(), "test"});
  FileOf("content");
  v1::JobSpec spec = SpecOf(std::getenv("TEST_TMPDIR"));
  REQUIRE_OK(UploadWeights(client, &spec));
  CHECK(uploads.received == "content");
  v1::JobSpec without;
  REQUIRE_OK(UploadWeights(client, &without));
  CHECK_FALSE(without.has_training());
  v1::JobSpec missing = SpecOf("/none");
  CHECK_STATUS(UploadWeights(client, &missing), absl::StatusCode::kNotFound, "/none");
  CHECK(missing.training().initial_weights() == "/none");
}

TEST_CASE(
    "UploadWeights: a scheduler that starts again gets the file from its beginning, for "
    "some times",
    "[cli]") {
  const Interrupts interrupts;
  FakeUploads uploads;
  SchedulerClient client({uploads.address(), "test"});
  const std::string content(3 << 20, 'x');
  uploads.restarts = 2;
  v1::JobSpec spec = SpecOf(FileOf(content));
  REQUIRE_OK(UploadWeights(client, &spec));
  CHECK(uploads.received == content);
  uploads.restarts = 1000;
  spec = SpecOf(FileOf(content));
  CHECK_STATUS(UploadWeights(client, &spec), absl::StatusCode::kFailedPrecondition,
               "begin it anew");
}

}  // namespace
}  // namespace capstan::cli::upload_test
