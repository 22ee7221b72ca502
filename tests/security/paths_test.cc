// Every path that a job or a peer can name, and every way in which it may lead out of the folders
// that --allow-path allows.
#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/data/image_folder.h"
#include "common/examples/files/file_ranges.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc/credentials.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/report/metrics_log.h"
#include "common/security/testing/test_authority.h"
#include "common/storage/crc32c.h"
#include "common/storage/files/allowed_paths.h"
#include "common/storage/files/path_access.h"
#include "common/storage/files/replace_file.h"
#include "common/storage/posix_disk.h"
#include "common/tensor/held_folder.h"
#include "common/tensor/model_file.h"
#include "common/tensor/safetensors/durable_file.h"
#include "common/tensor/safetensors/safetensors.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"
#include "common/time/instant.h"
#include "proto/job_files.grpc.pb.h"
#include "proto/scheduler.grpc.pb.h"
#include "scheduler/admission/admission.h"
#include "scheduler/files/received_files.h"
#include "scheduler/testing/small_job.h"
#include "tests/security/tls_daemon.h"

namespace capstan::paths_test {
namespace {

namespace fs = std::filesystem;
using testing::ReadFile;
using testing::TestAuthority;
using testing::TestPath;
using testing::TlsDaemon;

constexpr absl::Duration kPatience = absl::Seconds(20);

// The folders of ann, bob and everybody, and one of nobody, which holds files that ann's links
// lead to.
class Folders {
 public:
  explicit Folders(const std::string& name) : top_(TestPath("paths-" + name)) {
    fs::remove_all(top_);
    for (const char* folder : {"ann", "bob", "all", "out", "ann/real"}) {
      fs::create_directories(In(folder));
    }
    job = scheduler::testing::MakeSmallJob(In("out"));
    for (const char* folder : {"ann", "bob"}) scheduler::testing::MakeSmallJob(In(folder));
    for (const char* folder : {"out", "bob"}) {  // More that could be read there.
      fs::create_directories(In(absl::StrCat(folder, "/class-1")));
      fs::create_directories(In(absl::StrCat(folder, "/class-2")));
      std::ofstream(In(absl::StrCat(folder, "/image.png"))) << "no image";
      std::ofstream(In(absl::StrCat(folder, "/model.json"))) << "{}";
    }
    for (const auto& entry : fs::directory_iterator(In("out"))) {
      const std::string name_of_file = entry.path().filename().string();
      fs::create_symlink(entry.path(), In(absl::StrCat("ann/link-", name_of_file)));
      REQUIRE(mkfifo(In(absl::StrCat("ann/pipe-", name_of_file)).c_str(), 0600) == 0);
      fs::create_symlink("/dev/zero", In(absl::StrCat("ann/device-", name_of_file)));
    }
    fs::create_directory_symlink(In("out"), In("ann/link-out"));
    REQUIRE(mkfifo(In("ann/pipe-out").c_str(), 0600) == 0);
    fs::create_symlink("/dev/zero", In("ann/device-out"));
    before_ = Outside();
  }

  std::string In(const std::string& name) const { return absl::StrCat(top_, "/", name); }
  // Whether nothing of nobody's and bob's folders has changed.
  bool AreIntact() const { return Outside() == before_; }

  v1::JobSpec job;  // Its data lies in the folder of nobody.

 private:
  std::vector<std::string> Outside() const {
    std::vector<std::string> files;
    for (const char* folder : {"out", "bob"}) {
      for (const auto& entry : fs::recursive_directory_iterator(In(folder))) {
        files.push_back(absl::StrCat(entry.path().string(), ": ",
                                     entry.is_regular_file() ? ReadFile(entry.path()) : ""));
      }
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  const std::string top_;
  std::vector<std::string> before_;
};

// A way out, for the file or folder that is called `name` in the folder of nobody.
struct Trick {
  const char* name;
  std::function<std::string(const Folders&, const std::string& name)> path;
};

const std::vector<Trick>& Tricks() {
  static const std::vector<Trick>& tricks = *new std::vector<Trick>{
      {"outside", [](const Folders& f, const auto& name) { return f.In("out/" + name); }},
      {"..", [](const Folders& f, const auto& name) { return f.In("ann/../out/" + name); }},
      {"other user", [](const Folders& f, const auto& name) { return f.In("bob/" + name); }},
      {"link", [](const Folders& f, const auto& name) { return f.In("ann/link-" + name); }},
      {"link above",
       [](const Folders& f, const auto& name) { return f.In("ann/link-out/" + name); }},
      {"pipe", [](const Folders& f, const auto& name) { return f.In("ann/pipe-" + name); }},
      {"device", [](const Folders& f, const auto& name) { return f.In("ann/device-" + name); }},
      {"relative", [](const Folders&, const auto& name) { return "out/" + name; }},
      {"/proc", [](const Folders&, const auto& name) { return "/proc/self/cwd/" + name; }},
      {"/proc fd", [](const Folders&, const auto&) { return std::string("/proc/self/fd/0"); }},
  };
  return tricks;
}

void PrintHead(const char* what) {
  std::printf("\n%-34s", what);
  for (const Trick& trick : Tricks()) std::printf(" %-10s", trick.name);
  std::printf("\n");
}

// ---------------------------------------------------------------- by name, at a real scheduler

class Scheduler {
 public:
  explicit Scheduler(const Folders& folders)
      : daemon_(
            authority_,
            {.flags = {absl::StrCat("--allow-path=", folders.In("all"), ",ann=", folders.In("ann")),
                       "--allow-path=bob=" + folders.In("{user}")}}) {}

  std::shared_ptr<grpc::Channel> ChannelOf(PeerRole role, const std::string& name) {
    auto credentials = Credentials::Read(authority_.MakeFolder("tls-" + name, role, name));
    REQUIRE_OK(credentials);
    callers_.push_back(*std::move(credentials));
    return MakeChannel(daemon_.address(), ChannelKind::kControl, callers_.back().get(),
                       daemon_.peer());
  }

 private:
  const TestAuthority authority_;
  TlsDaemon daemon_;
  std::vector<std::unique_ptr<Credentials>> callers_;
};

v1::SubmitJobRequest RequestFor(const v1::JobSpec& spec) {
  static uint64_t submissions = 0;
  v1::SubmitJobRequest request;
  request.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
  request.set_submission_id(++submissions);
  *request.mutable_spec() = spec;
  return request;
}

absl::Status Submit(const std::shared_ptr<grpc::Channel>& channel,
                    const v1::SubmitJobRequest& request) {
  grpc::ClientContext context;
  SetDeadline(context, kPatience);
  v1::SubmitJobResponse response;
  return FromGrpcStatus(v1::Scheduler::NewStub(channel)->SubmitJob(&context, request, &response));
}

// A field that names a path, and which of nobody's files it is to name.
struct Field {
  const char* name;
  const char* file;
  std::function<void(const std::string& path, v1::SubmitJobRequest& request)> set;
};

void SetFiles(const std::string& path, v1::Split& split, v1::SubmitJobRequest& request) {
  request.mutable_spec()->mutable_data()->set_format(v1::Data::CIFAR10_BINARY);
  split.clear_images();
  split.clear_labels();
  split.add_files(path);
}

v1::Data& DataOf(v1::SubmitJobRequest& request) { return *request.mutable_spec()->mutable_data(); }

const std::vector<Field>& Fields() {
  using Request = v1::SubmitJobRequest;
  static const std::vector<Field>& fields = *new std::vector<Field>{
      {"data.train.images", "images-40",
       [](const auto& path, Request& r) { DataOf(r).mutable_train()->set_images(path); }},
      {"data.train.labels", "labels-40",
       [](const auto& path, Request& r) { DataOf(r).mutable_train()->set_labels(path); }},
      {"data.test.images", "images-20",
       [](const auto& path, Request& r) { DataOf(r).mutable_test()->set_images(path); }},
      {"data.validation.images", "images-20",
       [](const auto& path, Request& r) {
         *DataOf(r).mutable_validation() = DataOf(r).test();
         DataOf(r).mutable_validation()->set_images(path);
       }},
      {"data.train.files[0]", "images-40",
       [](const auto& path, Request& r) { SetFiles(path, *DataOf(r).mutable_train(), r); }},
      {"data.train.images", "out",
       [](const auto& path, Request& r) {
         DataOf(r).set_format(v1::Data::IMAGE_FOLDER);
         DataOf(r).clear_test();
         DataOf(r).mutable_train()->clear_labels();
         DataOf(r).mutable_train()->set_images(path);
       }},
      {"training.initial_weights", "images-40",
       [](const auto& path, Request& r) {
         r.mutable_spec()->mutable_training()->set_initial_weights(path);
       }},
      {"output.directory", "out",
       [](const auto& path, Request& r) {
         r.mutable_spec()->mutable_output()->set_directory(path);
       }},
      {"checkpoints.directory", "out",
       [](const auto& path, Request& r) {
         r.mutable_spec()->mutable_checkpoints()->set_directory(path);
       }},
      {"restore_folder", "out", [](const auto& path, Request& r) { r.set_restore_folder(path); }},
  };
  return fields;
}

v1::JobSpec JobIn(const Folders& folders, const std::string& folder) {
  v1::JobSpec spec = folders.job;
  for (v1::Split* split :
       {spec.mutable_data()->mutable_train(), spec.mutable_data()->mutable_test()}) {
    split->set_images(folders.In(folder + "/" + fs::path(split->images()).filename().string()));
    split->set_labels(folders.In(folder + "/" + fs::path(split->labels()).filename().string()));
  }
  return spec;
}

bool IsTrickOfNames(const std::string& trick) {
  return !absl::StrContains(trick, "link") && trick != "pipe" && trick != "device";
}

TEST_CASE("Paths: no field of a job names a file outside the allowed folders", "[security]") {
  const Folders folders("fields");
  Scheduler scheduler(folders);
  const auto ann = scheduler.ChannelOf(PeerRole::kUser, "ann");
  PrintHead("field of a job");
  for (const Field& field : Fields()) {
    std::printf("%-34s", field.name);
    for (const Trick& trick : Tricks()) {
      v1::SubmitJobRequest request = RequestFor(JobIn(folders, "ann"));
      const std::string path = trick.path(folders, field.file);
      field.set(path, request);
      const absl::Status status = Submit(ann, request);
      INFO(field.name << "=" << path << ": " << status);
      CHECK_FALSE(status.ok());
      CHECK_FALSE(absl::IsDeadlineExceeded(status));
      if (IsTrickOfNames(trick.name)) {
        CHECK(absl::IsPermissionDenied(status));
        CHECK(absl::StrContains(status.message(), absl::StrCat(field.name, ": \"", path, "\"")));
        CHECK(absl::StrContains(status.message(), folders.In("ann")));
      }
      std::printf(" %-10s", status.ok() ? "ADMITTED" : "refused");
    }
    std::printf("\n");
  }
  CHECK(folders.AreIntact());
  CHECK_STATUS(Submit(ann, RequestFor(folders.job)), absl::StatusCode::kPermissionDenied,
               "data.test.labels: ");  // It goes on to answer, and names each field.
}

TEST_CASE("Paths: a model is exported to no other folder", "[security]") {
  const Folders folders("export");
  Scheduler scheduler(folders);
  const auto users = v1::Scheduler::NewStub(scheduler.ChannelOf(PeerRole::kUser, "ann"));
  for (const Trick& trick : Tricks()) {
    if (!IsTrickOfNames(trick.name)) continue;  // See "the output is probed".
    grpc::ClientContext context;
    SetDeadline(context, kPatience);
    v1::ExportJobRequest request;
    v1::ExportJobResponse response;
    request.set_job_id("small-1");
    request.set_folder(trick.path(folders, "out"));
    const absl::Status status = FromGrpcStatus(users->ExportJob(&context, request, &response));
    INFO(trick.name << ": " << status);
    CHECK((absl::IsPermissionDenied(status) || absl::IsInvalidArgument(status)));
    CHECK(absl::StrContains(status.message(), "folder: \""));
  }
}

TEST_CASE("Paths: what is allowed to a user, or to everybody, is admitted", "[security]") {
  const Folders folders("allowed");
  Scheduler scheduler(folders);
  const auto ann = scheduler.ChannelOf(PeerRole::kUser, "ann");
  const auto bob = scheduler.ChannelOf(PeerRole::kUser, "bob");
  v1::JobSpec spec = JobIn(folders, "ann");
  CHECK_STATUS(Submit(bob, RequestFor(spec)), absl::StatusCode::kPermissionDenied,
               "allowed to bob are " + folders.In("all"));
  REQUIRE_OK(Submit(ann, RequestFor(spec)));  // Its output goes to the scheduler's own folder.
  spec.mutable_output()->set_directory(folders.In("all/out-1"));
  spec.mutable_checkpoints()->set_directory(folders.In("ann/saved/here"));
  REQUIRE_OK(Submit(ann, RequestFor(spec)));
  CHECK(fs::is_directory(folders.In("all/out-1")));
  CHECK(fs::is_directory(folders.In("ann/saved/here")));
  REQUIRE_OK(Submit(bob, RequestFor(JobIn(folders, "bob"))));
}

TEST_CASE("Paths: a peer's files stay in the folders that jobs write into", "[security]") {
  const Folders folders("peers");
  Scheduler scheduler(folders);
  const auto files = v1::JobFiles::NewStub(scheduler.ChannelOf(PeerRole::kWorker, "w-1"));
  const auto context = [] {
    auto made = std::make_unique<grpc::ClientContext>();
    SetDeadline(*made, kPatience);
    return made;
  };
  PrintHead("field of a peer");
  const auto row = [&](const char* name, const auto& call) {
    std::printf("%-34s", name);
    for (const Trick& trick : Tricks()) {
      const absl::Status status = FromGrpcStatus(call(trick.path(folders, "out")));
      INFO(name << " " << trick.name << ": " << status);
      CHECK((absl::IsPermissionDenied(status) || absl::IsInvalidArgument(status)));
      std::printf(" %-10s", status.ok() ? "ADMITTED" : "refused");
    }
    std::printf("\n");
  };
  row("MarkFolder.folder", [&](const std::string& path) {
    v1::MarkFolderRequest request;
    v1::MarkFolderResponse response;
    request.set_folder(path);
    return files->MarkFolder(context().get(), request, &response);
  });
  row("WritePiece.folder", [&](const std::string& path) {
    v1::WritePieceRequest request;
    v1::WritePieceResponse response;
    request.set_folder(path);
    request.set_file("x");
    return files->WritePiece(context().get(), request, &response);
  });
  row("FinishFile.folder", [&](const std::string& path) {
    v1::FinishFileRequest request;
    v1::FinishFileResponse response;
    request.set_folder(path);
    request.set_file("x");
    request.set_name("y");
    return files->FinishFile(context().get(), request, &response);
  });
  row("ReadPiece.folder", [&](const std::string& path) {
    v1::ReadPieceRequest request;
    v1::ReadPieceResponse response;
    request.set_folder(path);
    request.set_file("images-40");
    request.set_bytes_max(1);
    return files->ReadPiece(context().get(), request, &response);
  });
  CHECK(folders.AreIntact());
}

// ---------------------------------------------------------------- on the disk, in this process

// One use by a daemon or a task of a path that the check of names has let pass.
struct Use {
  const char* name;
  const char* file;
  std::function<absl::Status(const std::string& path)> run;
};

// A new file takes the place of a link or a device, and nothing is written through it.
constexpr char kCreated[] = "a part is created";

const std::vector<Use>& Uses() {
  static PosixDisk& disk = *new PosixDisk;
  static const std::vector<Use>& uses = *new std::vector<Use>{
      {"a file of examples", "images-40",
       [](const auto& path) { return ListFiles({path}).status(); }},
      {"a glob of examples", "out",
       [](const auto& path) { return ListFiles({path + "/*-40"}).status(); }},
      {"classes of images", "out", [](const auto& path) { return ClassFolders(path).status(); }},
      {"images of a class", "out", [](const auto& path) { return ImagesIn(path).status(); }},
      {"initial weights", "images-40",
       [](const auto& path) { return ReadSafetensors(path).status(); }},
      {"a model", "out", [](const auto& path) { return ReadModelManifest(path).status(); }},
      {"a checkpoint is listed", "out", [](const auto& path) { return disk.List(path).status(); }},
      {"a part is read", "images-40",
       [](const auto& path) { return disk.Read(path, 1 << 20).status(); }},
      {"a part is removed", "out",
       [](const auto& path) { return disk.Remove(path + "/images-40"); }},
      {"a part is renamed to", "out",
       [](const auto& path) { return disk.Rename(path + "/images-40", path + "/x"); }},
      {"a folder is made", "out", [](const auto& path) { return disk.MakeFolder(path + "/x"); }},
      {"a folder is synced", "out", [](const auto& path) { return disk.SyncFolder(path); }},
      {"a model is written", "out",
       [](const auto& path) { return WriteFileDurably(path + "/images-40", {"x"}); }},
      {"a model is staged", "out",
       [](const auto& path) { return HeldFolder::Make(path + "/.export-0-1").status(); }},
      {"metrics.jsonl", "images-40",
       [](const auto& path) { return MetricsLog::Open(path).status(); }},
      {"job.json", "out",
       [](const auto& path) { return ReplaceFile(path + "/images-40", "text"); }},
      {"the output is probed", "out",
       [](const auto& path) { return scheduler::CheckWritable("folder", path, 0); }},
      {"a piece is received", "out",
       [](const auto& path) {
         scheduler::ReceivedFiles files(&disk, {});
         return files.Write(path, "images-40", 0, "x", Crc32cOf("x"), Instant());
       }},
      {"a piece is sent", "out",
       [](const auto& path) {
         return scheduler::ReceivedFiles(&disk, {}).Read(path, "images-40", 0, 1).status();
       }},
      {"a folder is marked", "out",
       [](const auto& path) {
         return scheduler::ReceivedFiles(&disk, {}).MarkFolder(path).status();
       }},
      {kCreated, "images-40", [](const auto& path) { return disk.Create(path).status(); }},
  };
  return uses;
}

TEST_CASE("Paths: no use of a path follows it out of the allowed folders", "[security]") {
  const Folders folders("uses");
  REQUIRE_OK_AND_ASSIGN(AllowedPaths allowed, AllowedPaths::Parse({folders.In("ann")}));
  REQUIRE_OK(ConfinePaths(std::move(allowed)));
  PrintHead("use of a path");
  for (const Use& use : Uses()) {
    std::printf("%-34s", use.name);
    for (const Trick& trick : Tricks()) {
      const std::string path = trick.path(folders, use.file);
      const absl::Status status = use.run(path);
      INFO(use.name << " " << path << ": " << status);
      const bool replaced = status.ok() && use.name == kCreated &&
                            std::filesystem::is_regular_file(std::filesystem::symlink_status(path));
      CHECK((replaced || !status.ok()));
      std::printf(" %-10s", replaced ? "replaced" : status.ok() ? "DONE" : "refused");
    }
    std::printf("\n");
  }
  CHECK(folders.AreIntact());
}

}  // namespace
}  // namespace capstan::paths_test
