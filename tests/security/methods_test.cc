// Every method of every port of real daemons, called by everybody who may not call it.
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc/credentials.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/security/call_policy.h"
#include "common/security/testing/test_authority.h"
#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"
#include "proto/scheduler.grpc.pb.h"
#include "tests/security/tls_daemon.h"

namespace capstan::methods_test {
namespace {

using testing::ReadFile;
using testing::TestAuthority;
using testing::TestPath;
using testing::TlsDaemon;

constexpr absl::Duration kPatience = absl::Seconds(20);
// Calls that are admitted may be held, so they end by their deadline.
constexpr absl::Duration kAdmittedTimeout = absl::Milliseconds(300);
constexpr PeerRole kRoles[] = {PeerRole::kScheduler, PeerRole::kServer, PeerRole::kWorker,
                               PeerRole::kUser,      PeerRole::kReader, PeerRole::kMetrics,
                               PeerRole::kAdmin};

void Append(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::app) << text;
}

// A daemon whose folder trusts a second authority, too, as in a change of authorities, or where one
// organisation has an authority for each cluster and one bundle of them.
class Daemon : public TlsDaemon {
 public:
  Daemon(const TestAuthority& authority, const TestAuthority& other, PeerRole role,
         const std::string& name, const std::string& scheduler)
      : TlsDaemon(authority, {.role = role,
                              .name = name,
                              .scheduler = scheduler,
                              .flags = {"--reflection", "--audit-log=" + NewAuditLog(role)},
                              .more_authorities = other.authority().certificate_pem()}),
        audit_log_(AuditLogOf(role)) {}

  // Whether a line of its audit log has all of these.
  bool HasAudited(const std::vector<std::string>& parts) const {
    for (const auto line : absl::StrSplit(ReadFile(audit_log_), '\n')) {
      if (std::all_of(parts.begin(), parts.end(),
                      [&](const std::string& part) { return absl::StrContains(line, part); })) {
        return true;
      }
    }
    return false;
  }

 private:
  static std::string AuditLogOf(PeerRole role) {
    return TestPath(absl::StrCat(PeerRoleName(role), ".jsonl"));
  }
  static std::string NewAuditLog(PeerRole role) {
    std::filesystem::remove(AuditLogOf(role));
    return AuditLogOf(role);
  }

  const std::string audit_log_;
};

// Calls a method with an empty message, as a stub of another language would.
absl::Status Call(const std::shared_ptr<grpc::Channel>& channel, absl::string_view method,
                  absl::Duration timeout = kPatience) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  SetDeadline(context, timeout);
  const grpc::Slice empty;
  const grpc::ByteBuffer request(&empty, 1);
  grpc::ByteBuffer response;
  absl::Notification ended;
  absl::Status status;
  stub.UnaryCall(&context, std::string(method), {}, &request, &response,
                 [&](const grpc::Status& told) {
                   status = FromGrpcStatus(told);
                   ended.Notify();
                 });
  ended.WaitForNotification();
  return status;
}

bool IsRefusedByGate(const absl::Status& status) {
  return absl::IsPermissionDenied(status) && absl::StrContains(status.message(), "called by ");
}

struct Cluster {
  Cluster()
      : scheduler(authority, other, PeerRole::kScheduler, "", ""),
        server(authority, other, PeerRole::kServer, "s-1", scheduler.address()),
        worker(authority, other, PeerRole::kWorker, "w-1", scheduler.address()) {}

  std::vector<const Daemon*> PortsOf(absl::string_view method) const {
    if (absl::StartsWith(method, "/capstan.v1.ParameterServer/")) return {&server};
    if (absl::StartsWith(method, "/capstan.v1.Worker/")) return {&worker};
    if (absl::StartsWith(method, "/capstan.v1.")) return {&scheduler};
    return {&scheduler, &server, &worker};
  }

  const TestAuthority authority;
  const TestAuthority other{"other"};
  Daemon scheduler;
  Daemon server;
  Daemon worker;
};

std::unique_ptr<Credentials> Open(const std::string& folder) {
  auto credentials = Credentials::Read(folder);
  REQUIRE_OK(credentials);
  return *std::move(credentials);
}

// A peer that encrypts and has no certificate of its own.
std::shared_ptr<grpc::Channel> WithoutCertificate(const Cluster& cluster, const Daemon& daemon) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
          cluster.authority.authority().certificate_pem()));
  options.watch_root_certs();
  options.set_check_call_host(false);
  options.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  return grpc::CreateChannel(daemon.address(), grpc::experimental::TlsCredentials(options));
}

// A peer with the files of a folder, which checks neither them nor whom it calls.
std::shared_ptr<grpc::Channel> WithFolder(const std::string& folder, const Daemon& daemon) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
          folder + "/key.pem", folder + "/cert.pem", folder + "/ca.pem", 1));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_check_call_host(false);
  options.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  return grpc::CreateChannel(daemon.address(), grpc::experimental::TlsCredentials(options));
}

TEST_CASE("Methods: each role may call what the table says, and nothing else", "[security]") {
  const Cluster cluster;
  std::vector<std::unique_ptr<Credentials>> callers;
  for (const PeerRole role : kRoles) {
    callers.push_back(
        Open(cluster.authority.MakeFolder(absl::StrCat("caller-", PeerRoleName(role)), role,
                                          role == PeerRole::kScheduler ? "" : "x-1")));
  }
  std::printf("%-52s", "method");
  for (const PeerRole role : kRoles) std::printf(" %-9s", std::string(PeerRoleName(role)).c_str());
  std::printf("\n");
  for (const MethodPolicy& method : CallPolicy()) {
    std::printf("%-52s", std::string(method.method).c_str());
    for (const auto& caller : callers) {
      const bool admitted = method.callers.Has(caller->self().role);
      for (const Daemon* daemon : cluster.PortsOf(method.method)) {
        const absl::Status status = Call(
            MakeChannel(daemon->address(), ChannelKind::kControl, caller.get(), daemon->peer()),
            method.method, admitted ? kAdmittedTimeout : kPatience);
        INFO(method.method << " by " << PeerRoleName(caller->self().role) << ": " << status);
        CHECK(IsRefusedByGate(status) != admitted);
        CHECK_FALSE(absl::IsUnavailable(status));
        CHECK(daemon->HasAudited(
                  {absl::StrCat("\"identity\":\"", FormatIdentity(caller->self()), "\""),
                   absl::StrCat("\"method\":\"", method.method, "\""),
                   R"("allowed":false,"refused_by":"gate",)", R"("reason":"/)"}) != admitted);
      }
      std::printf(" %-9s", admitted ? "admitted" : "refused");
    }
    std::printf("\n");
  }
}

// A daemon reads its deny list once a second. Calls one after the other would use up the lines that
// the caller has in the audit log.
void AwaitDenied(const Daemon& daemon, const Credentials* denied) {
  const absl::Time end = absl::Now() + kPatience;
  absl::Status status;
  absl::Notification never;
  do {
    REQUIRE(absl::Now() < end);
    never.WaitForNotificationWithTimeout(absl::Milliseconds(50));
    status = Call(MakeChannel(daemon.address(), ChannelKind::kControl, denied, daemon.peer()),
                  "/no.Service/NoMethod");
  } while (status.message().find("on the deny list") == absl::string_view::npos);
}

TEST_CASE("Methods: nobody without a valid certificate of the cluster may call any", "[security]") {
  const Cluster cluster;
  const TestAuthority stranger;
  const auto strangers = Open(stranger.MakeFolder("stranger", PeerRole::kAdmin, "root"));
  const auto denied = Open(cluster.authority.MakeFolder("denied", PeerRole::kAdmin, "mallory"));
  for (const Daemon* daemon : {&cluster.scheduler, &cluster.server, &cluster.worker}) {
    Append(daemon->tls_folder() + "/denied.txt", "capstan://test/admin/mallory\n");
  }
  const std::string expired =
      cluster.authority.MakeFolder("expired", PeerRole::kAdmin, "root", absl::Hours(2));

  for (const Daemon* daemon : {&cluster.scheduler, &cluster.server, &cluster.worker}) {
    AwaitDenied(*daemon, denied.get());
  }

  int calls = 0;
  for (const MethodPolicy& method : CallPolicy()) {
    for (const Daemon* daemon : cluster.PortsOf(method.method)) {
      const auto call = [&](const Credentials* caller) {
        ++calls;
        return Call(MakeChannel(daemon->address(), ChannelKind::kControl, caller, daemon->peer()),
                    method.method);
      };
      INFO(method.method);
      CHECK(absl::IsUnavailable(call(nullptr)));          // Plain text.
      CHECK(absl::IsUnavailable(call(strangers.get())));  // Another authority.
      CHECK_STATUS(call(denied.get()), absl::StatusCode::kPermissionDenied, "on the deny list");
      CHECK(daemon->HasAudited({R"("identity":"capstan://test/admin/mallory")",
                                absl::StrCat("\"method\":\"", method.method, "\""),
                                "is on the deny list"}));
      CHECK(absl::IsUnavailable(Call(WithoutCertificate(cluster, *daemon), method.method)));
      CHECK(absl::IsUnavailable(Call(WithFolder(expired, *daemon), method.method)));
      calls += 2;
    }
  }
  // gRPC tells a failed handshake's reason and not its peer; one may be told after its caller.
  const absl::Time give_up = absl::Now() + kPatience;
  for (const Daemon* daemon : {&cluster.scheduler, &cluster.server, &cluster.worker}) {
    const std::vector<std::string> handshake = {R"("allowed":false,"refused_by":"handshake")"};
    while (!daemon->HasAudited(handshake) && absl::Now() < give_up) std::this_thread::yield();
    CHECK(daemon->HasAudited(handshake));
  }
  std::printf(
      "%d calls of %zu methods: plain text, no certificate, another authority, expired, on "
      "the deny list: all refused\n",
      calls, CallPolicy().size());
}

TEST_CASE("Methods: a certificate of another cluster is refused, though its authority is trusted",
          "[security]") {
  const Cluster cluster;
  const std::string folder = cluster.other.MakeFolder("mixed", PeerRole::kAdmin, "root");
  Append(folder + "/ca.pem", cluster.authority.authority().certificate_pem());
  for (const MethodPolicy& method : CallPolicy()) {
    for (const Daemon* daemon : cluster.PortsOf(method.method)) {
      CHECK_STATUS(Call(WithFolder(folder, *daemon), method.method),
                   absl::StatusCode::kPermissionDenied, "expected a certificate of the cluster");
      CHECK(daemon->HasAudited({R"("identity":"capstan://other/admin/root")",
                                absl::StrCat("\"method\":\"", method.method, "\""),
                                "expected a certificate of the cluster"}));
    }
  }
}

TEST_CASE("Methods: a node calls under its own name alone", "[security]") {
  const Cluster cluster;
  const auto own = Open(cluster.authority.MakeFolder("node", PeerRole::kServer, "s-2"));
  const auto stub = v1::Scheduler::NewStub(
      MakeChannel(cluster.scheduler.address(), ChannelKind::kControl, own.get()));
  const auto refused = [&cluster](const grpc::Status& status, const std::string& method) {
    CHECK_STATUS(FromGrpcStatus(status), absl::StatusCode::kPermissionDenied,
                 "but the caller's certificate names capstan://test/server/s-2");
    CHECK(cluster.scheduler.HasAudited({R"("peer":"127.0.0.1:)",
                                        R"("identity":"capstan://test/server/s-2")",
                                        "\"method\":\"/capstan.v1.Scheduler/" + method + "\"",
                                        R"("refused_by":"handler","reason":"the call is made)"}));
  };
  {
    grpc::ClientContext context;
    v1::RegisterRequest request;
    request.set_name("s-1");
    request.set_role(v1::SERVER);
    v1::RegisterResponse response;
    refused(stub->Register(&context, request, &response), "Register");
  }
  {
    grpc::ClientContext context;
    v1::RegisterRequest request;  // As a worker.
    request.set_name("s-2");
    request.set_role(v1::WORKER);
    v1::RegisterResponse response;
    refused(stub->Register(&context, request, &response), "Register");
  }
  {
    grpc::ClientContext context;
    v1::SyncNodeRequest request;
    request.set_node_id("s-1");
    v1::SyncNodeResponse response;
    refused(stub->SyncNode(&context, request, &response), "SyncNode");
  }
  {
    grpc::ClientContext context;
    v1::HoldConnectionRequest request;
    request.set_node_id("s-1");
    v1::HoldConnectionResponse response;
    refused(stub->HoldConnection(&context, request, &response), "HoldConnection");
  }
}

}  // namespace
}  // namespace capstan::methods_test
