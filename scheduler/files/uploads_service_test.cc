// Tests the service over gRPC on loopback, with certificates.
#include "scheduler/files/uploads_service.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc/credentials.h"
#include "common/net/grpc/grpc_server.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/security/testing/test_authority.h"
#include "common/storage/crc32c.h"
#include "common/storage/posix_disk.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"
#include "scheduler/files/uploads.h"
#include "scheduler/testing/temporary_folder.h"

namespace capstan::scheduler::uploads_service_test {
namespace {

struct Fixture {
  Fixture() {
    service.Start();
    own = Credentials::Read(authority.MakeFolder("scheduler", PeerRole::kScheduler, "")).value();
    server = GrpcServer::Start({.services = {&service}, .credentials = own.get()}).value();
  }
  ~Fixture() { service.Stop(); }

  testing::TemporaryFolder folder;
  capstan::testing::TestAuthority authority;
  PosixDisk disk;
  SteadyClock clock;
  UploadsService service{folder.path(), &disk, &clock};
  std::unique_ptr<Credentials> own;
  std::unique_ptr<GrpcServer> server;
};

// A caller with a certificate.
class Peer {
 public:
  Peer(const Fixture& fixture, PeerRole role, const std::string& name)
      : credentials_(Credentials::Read(fixture.authority.MakeFolder(name, role, name)).value()),
        stub_(v1::Uploads::NewStub(
            MakeChannel(fixture.server->address(), ChannelKind::kControl, credentials_.get()))) {}

  absl::Status Write(const std::string& file, int64_t offset, const std::string& data) {
    v1::UploadPieceRequest request;
    request.set_file(file);
    request.set_offset(offset);
    request.set_data(data);
    request.set_crc32c(Crc32cOf(data));
    return Ask(&v1::Uploads::Stub::WritePiece, request, v1::UploadPieceResponse());
  }
  absl::Status Finish(const std::string& file, const std::string& whole) {
    v1::FinishUploadRequest request;
    request.set_file(file);
    request.set_bytes(static_cast<int64_t>(whole.size()));
    request.set_crc32c(Crc32cOf(whole));
    return Ask(&v1::Uploads::Stub::Finish, request, v1::FinishUploadResponse());
  }

 private:
  template <typename Method, typename Request, typename Response>
  absl::Status Ask(Method method, const Request& request, Response response) {
    grpc::ClientContext context;
    SetDeadline(context, absl::Seconds(60));
    return FromGrpcStatus((stub_.get()->*method)(&context, request, &response));
  }

  const std::unique_ptr<Credentials> credentials_;
  const std::unique_ptr<v1::Uploads::Stub> stub_;
};

TEST_CASE("Uploads: what a user has sent is there for that user alone", "[scheduler]") {
  Fixture f;
  Peer ann(f, PeerRole::kUser, "ann");
  REQUIRE_OK(ann.Write("w", 0, "abc"));
  REQUIRE_OK(ann.Write("w", 3, "de"));
  REQUIRE_OK(ann.Write("w", 3, "de"));  // A repetition.
  const std::string root = f.folder.path();
  CHECK_STATUS(UploadedFile(root, "user/ann", "upload:w"), absl::StatusCode::kInvalidArgument,
               "training.initial_weights: got \"upload:w\", expected a file that you have sent");
  REQUIRE_OK(ann.Finish("w", "abcde"));
  REQUIRE_OK(ann.Finish("w", "abcde"));
  REQUIRE_OK_AND_ASSIGN(const std::string path, UploadedFile(root, "user/ann", "upload:w"));
  CHECK(path == root + "/uploads/user-ann/w");
  CHECK(f.disk.Read(path, 10).value() == "abcde");
  for (const char* owner : {"user/bob", "admin/ann", ""}) {
    CHECK_STATUS(UploadedFile(root, owner, "upload:w"), absl::StatusCode::kInvalidArgument, "w");
  }
  CHECK_STATUS(UploadedFile(root, "user/bob", "upload:../user-ann/w"),
               absl::StatusCode::kInvalidArgument, "expected a file");
  CHECK(UploadedFile(root, "user/ann", "/data/w").value().empty());
}

TEST_CASE("Uploads: nodes and readers send none", "[scheduler]") {
  Fixture f;
  for (const PeerRole role : {PeerRole::kWorker, PeerRole::kServer, PeerRole::kReader}) {
    Peer peer(f, role, "x-1");
    CHECK_STATUS(peer.Write("w", 0, "abc"), absl::StatusCode::kPermissionDenied, "called by");
  }
}

TEST_CASE("Uploads: a wrong name, a wrong size and another content are refused", "[scheduler]") {
  Fixture f;
  Peer ann(f, PeerRole::kUser, "ann");
  CHECK_STATUS(ann.Write("a/b", 0, "x"), absl::StatusCode::kInvalidArgument,
               "expected a file name");
  CHECK_STATUS(ann.Write(std::string(201, 'a'), 0, "x"), absl::StatusCode::kInvalidArgument,
               "got a name of 201 bytes, expected at most 200");
  CHECK_STATUS(ann.Write("w", UploadsService::kFileBytesMax, "x"),
               absl::StatusCode::kInvalidArgument, "in all");
  CHECK_STATUS(ann.Write("w", 5, "x"), absl::StatusCode::kFailedPrecondition, "begin it anew");
  REQUIRE_OK(ann.Write("w", 0, "x"));
  CHECK_STATUS(ann.Finish("w", "y"), absl::StatusCode::kDataLoss, "its sender says");
}

TEST_CASE("Uploads: a user's oldest files go when there are too many", "[scheduler]") {
  Fixture f;
  Peer ann(f, PeerRole::kUser, "ann");
  Peer bob(f, PeerRole::kUser, "bob");
  REQUIRE_OK(bob.Write("old", 0, "x"));
  REQUIRE_OK(bob.Finish("old", "x"));
  for (size_t i = 0; i < kUploadsMax + 2; ++i) {
    const std::string name = absl::StrCat("w", i);
    REQUIRE_OK(ann.Write(name, 0, "x"));
    REQUIRE_OK(ann.Finish(name, "x"));
    // Equal times of last change would be told apart by name.
    std::filesystem::last_write_time(
        absl::StrCat(UploadFolderOf(f.folder.path(), "user/ann"), "/", name),
        std::filesystem::file_time_type(std::chrono::seconds(1000 + i)));
  }
  const auto has = [&f](const std::string& owner, const std::string& name) {
    return UploadedFile(f.folder.path(), owner, absl::StrCat("upload:", name)).ok();
  };
  CHECK_FALSE(has("user/ann", "w0"));
  CHECK_FALSE(has("user/ann", "w1"));
  CHECK(has("user/ann", "w2"));
  CHECK(has("user/ann", absl::StrCat("w", kUploadsMax + 1)));
  CHECK(has("user/bob", "old"));
}

}  // namespace
}  // namespace capstan::scheduler::uploads_service_test
