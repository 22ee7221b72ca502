// Tests the service with its client, SchedulerDisk, over gRPC on loopback.
#include "scheduler/files/job_files_service.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/job_files/scheduler_disk.h"
#include "common/net/grpc/grpc_server.h"
#include "common/storage/posix_disk.h"
#include "common/storage/write_durably.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"
#include "common/types/staging.h"
#include "scheduler/testing/temporary_folder.h"

namespace capstan::scheduler::job_files_service_test {
namespace {

// Returns more than two pieces; no two pieces are equal.
std::string Bytes() {
  std::string bytes;
  while (bytes.size() < 5 << 19) bytes += std::to_string(bytes.size());
  return bytes;
}

// The host of the scheduler, with the service and a folder.
struct Fixture {
  Fixture() { Start("127.0.0.1:0"); }
  ~Fixture() { End(); }
  void Start(const std::string& listen) {
    service = std::make_unique<JobFilesService>(
        &disk, &clock,
        JobFilesService::Rights{
            .may_write = [this](const std::string& path,
                                const auto&) { return writable && path == folder; },
            .may_read = [this](const std::string& path, const auto&) { return path == folder; }});
    service->Start();
    auto started = GrpcServer::Start({.listen = listen, .services = {service.get()}});
    REQUIRE_OK(started.status());
    server = *std::move(started);
  }
  void End() {
    service->Stop();
    server.reset();
    service.reset();
  }
  std::string Path(const std::string& name) const { return folder + "/" + name; }

  testing::TemporaryFolder root;
  const std::string folder = root.path() + "/checkpoint-1";
  PosixDisk disk;
  SteadyClock clock;
  std::atomic<bool> writable = true;
  std::unique_ptr<JobFilesService> service;
  std::unique_ptr<GrpcServer> server;
};

TEST_CASE("Job files: what a host that shares no folder writes is there, and can be read",
          "[scheduler]") {
  Fixture f;
  SchedulerDisk remote({.scheduler = f.server->address()});
  REQUIRE_OK(remote.MakeFolder(f.folder));
  const std::string whole = Bytes();
  REQUIRE_OK(WriteDurably(remote, f.Path("a.part"), {whole}));
  REQUIRE_OK(WriteDurably(remote, f.Path("empty.part"), {}));
  CHECK(f.disk.Read(f.Path("a.part"), 1 << 22).value() == whole);
  CHECK(f.disk.Read(f.Path("empty.part"), 1).value().empty());
  CHECK_FALSE(std::filesystem::exists(f.Path("a.part.tmp")));

  CHECK(remote.Read(f.Path("a.part"), 1 << 22).value() == whole);
  CHECK(remote.Read(f.Path("empty.part"), 1).value().empty());
  CHECK(remote.ReadPart(f.Path("a.part"), 1 << 19, 1 << 21).value() ==
        whole.substr(1 << 19, 1 << 21));
  const auto size = static_cast<int64_t>(whole.size());
  CHECK_STATUS(remote.ReadPart(f.Path("a.part"), 1, size), absl::StatusCode::kDataLoss, "ends at");
  CHECK_STATUS(remote.Read(f.Path("a.part"), size - 1), absl::StatusCode::kResourceExhausted,
               "expected at most");
  CHECK_STATUS(remote.Read(f.Path("none"), 1), absl::StatusCode::kNotFound, "none");
}

TEST_CASE("Job files: a host knows a folder that it shares by the mark in it", "[scheduler]") {
  Fixture f;
  SchedulerDisk remote({.scheduler = f.server->address()});
  CHECK(remote.IsShared(f.folder, f.disk).value());
  // On another host that folder does not exist, or is a different one.
  const std::string mark = f.Path(kFolderMark);
  REQUIRE_OK(f.disk.Remove(mark));
  struct OtherHost final : public Disk {
    absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string&) override {
      return absl::UnimplementedError("");
    }
    absl::StatusOr<std::string> Read(const std::string&, int64_t) override { return content; }
    absl::StatusOr<std::string> ReadPart(const std::string&, int64_t, int64_t) override {
      return absl::UnimplementedError("");
    }
    absl::Status Rename(const std::string&, const std::string&) override { return {}; }
    absl::Status Remove(const std::string&) override { return {}; }
    absl::Status MakeFolder(const std::string&) override { return {}; }
    absl::Status SyncFolder(const std::string&) override { return {}; }
    absl::StatusOr<std::vector<std::string>> List(const std::string&) override {
      return absl::UnimplementedError("");
    }
    absl::StatusOr<std::string> content = absl::NotFoundError("no such file");
  } host;
  CHECK_FALSE(remote.IsShared(f.folder, host).value());
  host.content = "0123456789abcdef";
  CHECK_FALSE(remote.IsShared(f.folder, host).value());
  host.content = f.disk.Read(mark, 64);
  CHECK(remote.IsShared(f.folder, host).value());
}

TEST_CASE("Job files: nobody writes or reads where no job does", "[scheduler]") {
  Fixture f;
  SchedulerDisk remote({.scheduler = f.server->address()});
  const std::string elsewhere = f.root.path() + "/elsewhere";
  CHECK_STATUS(remote.MakeFolder(elsewhere), absl::StatusCode::kPermissionDenied, elsewhere);
  CHECK_STATUS(remote.Read(elsewhere + "/x", 1), absl::StatusCode::kPermissionDenied, elsewhere);
  CHECK_FALSE(std::filesystem::exists(elsewhere));
  REQUIRE_OK(remote.MakeFolder(f.folder));
  REQUIRE_OK_AND_ASSIGN(auto file, DurableDiskFile::Create(&remote, f.Path("late.part")));
  REQUIRE_OK(file.Append(Bytes()));
  f.writable = false;  // The checkpoint was given up.
  CHECK_STATUS(file.Commit(), absl::StatusCode::kPermissionDenied, f.folder);
  CHECK_FALSE(std::filesystem::exists(f.Path("late.part")));
}

TEST_CASE("Job files: a scheduler that was away is waited for, and has lost what it had half",
          "[scheduler]") {
  Fixture f;
  const std::string address = f.server->address();
  SchedulerDisk remote({.scheduler = address});
  REQUIRE_OK(remote.MakeFolder(f.folder));
  f.End();
  std::thread again([&f, &address] { f.Start(address); });
  CHECK_STATUS(WriteDurably(remote, "/elsewhere/x", {"x"}), absl::StatusCode::kPermissionDenied,
               "/elsewhere");
  again.join();
  {
    REQUIRE_OK_AND_ASSIGN(auto file, DurableDiskFile::Create(&remote, f.Path("a.part")));
    REQUIRE_OK(file.Append(Bytes()));
    f.End();
    f.Start(address);
    CHECK_STATUS(file.Commit(), absl::StatusCode::kFailedPrecondition, "begin it anew");
  }
  REQUIRE_OK(WriteDurably(remote, f.Path("a.part"), {Bytes()}));
  CHECK(f.disk.Read(f.Path("a.part"), 1 << 22).value() == Bytes());
}

TEST_CASE("Job files: a scheduler that stays away is named, and a stop ends the wait",
          "[scheduler]") {
  Fixture f;
  const std::string address = f.server->address();
  f.End();
  SchedulerDisk hasty({.scheduler = address, .patience = absl::Milliseconds(300)});
  CHECK_STATUS(hasty.Read(f.Path("x"), 1), absl::StatusCode::kUnavailable, address);
  SchedulerDisk patient({.scheduler = address});
  std::thread stop([&patient] { patient.Stop(); });
  CHECK_STATUS(patient.Read(f.Path("x"), 1), absl::StatusCode::kCancelled, "stops");
  stop.join();
  f.Start(address);
}

}  // namespace
}  // namespace capstan::scheduler::job_files_service_test
