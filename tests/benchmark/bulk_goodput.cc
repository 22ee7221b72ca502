// Bulk goodput: our push and our pull, against raw TCP and against gRPC with protobuf `bytes`.
//
//   bulk_goodput --server=server/capstan-server --baseline=tests/benchmark/baseline/baseline_server
//
// An operation moves a table of one size: a push (ours applies it: SGD), a pull, or both at once,
// one operation after the other over one connection, as a worker without anything to compute does.
// Servers are processes of their own on loopback, contestants take turns. Raw TCP is measured with
// an answer to each message and the same add, as ours has, and streamed, without either. With --tls
// ours is encrypted, and measured against itself in plain text, and in plain text with the same
// bytes encrypted after each operation by the thread that has asked for it (AES-128-GCM): what one
// core allows.
// Exit codes: 0 all goals are reached, 1 one is not, 2 something failed.
#include <openssl/evp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/command_line/command.h"
#include "common/process/keep_memory.h"
#include "common/process/lock_order.h"
#include "common/status/status_macros.h"
#include "scheduler/cli/cluster/local_certificates.h"
#include "tests/benchmark/baseline/grpc_bulk.h"
#include "tests/benchmark/baseline/peer_process.h"
#include "tests/benchmark/baseline/tcp_bulk.h"
#include "tests/benchmark/contender.h"
#include "tests/benchmark/processor_time.h"
#include "tests/benchmark/report.h"
#include "tests/benchmark/scratch_folder.h"
#include "tests/benchmark/turns.h"

namespace capstan::benchmark {
namespace {

constexpr double kTcpGoal = 0.8;  // The goal for messages of 1 MiB and more.
constexpr int64_t kTcpGoalFrom = 1 << 20;
constexpr double kGrpcGoal = 2.5;  // At 16 MiB.
constexpr int64_t kGrpcGoalAt = 16 << 20;
constexpr double kTlsGoal = 0.8;  // Against plain text and the encryption of one core.
constexpr int kRecordBytes = 16 << 10;

struct Flags {
  ReportFlags report;
  std::string server;
  std::string baseline;
  std::vector<int64_t> sizes = {64, 256, 1024, 4096, 16384, 65536};  // KiB.
  bool tls = false;
};

std::string SizeName(int64_t bytes) {
  if (bytes < 1 << 20) return absl::StrCat(bytes >> 10, " KiB");
  return absl::StrCat(bytes >> 20, " MiB");
}

const char* NameOf(Direction direction) {
  switch (direction) {
    case Direction::kPush:
      return "push";
    case Direction::kPull:
      return "pull";
    case Direction::kBoth:
      return "push + pull";
  }
  return "";
}

// The processes that stay for the whole run.
struct Peers {
  std::unique_ptr<PeerProcess> tcp_process, grpc_process;
  std::unique_ptr<TcpBulk> tcp;
  std::unique_ptr<GrpcBulk> grpc;
};

absl::StatusOr<Peers> StartPeers(const std::string& program, const std::string& folder) {
  Peers peers;
  CAPSTAN_ASSIGN_OR_RETURN(peers.tcp_process, PeerProcess::Start(program, "tcp", folder));
  CAPSTAN_ASSIGN_OR_RETURN(peers.grpc_process, PeerProcess::Start(program, "grpc", folder));
  CAPSTAN_ASSIGN_OR_RETURN(TcpBulk tcp, TcpBulk::Connect(peers.tcp_process->port()));
  peers.tcp = std::make_unique<TcpBulk>(std::move(tcp));
  peers.grpc = std::make_unique<GrpcBulk>(peers.grpc_process->port());
  return peers;
}

// Seconds of this process and of `peer`.
std::function<double()> ProcessorWith(const PeerProcess& peer) {
  return [&peer] { return ProcessorSeconds() + peer.ProcessorSeconds(); };
}

// Encrypts so many bytes, in records of TLS's size.
absl::Status Encrypt(int64_t bytes) {
  const std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)> cipher(
      EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free);
  const std::vector<unsigned char> key(16, 1), nonce(12, 2);
  std::vector<unsigned char> record(kRecordBytes, 3), tag(16);
  bool ok = EVP_EncryptInit_ex(cipher.get(), EVP_aes_128_gcm(), nullptr, key.data(), nullptr) == 1;
  for (int64_t done = 0; done < bytes; done += kRecordBytes) {
    int size = 0;
    ok = ok && EVP_EncryptInit_ex(cipher.get(), nullptr, nullptr, nullptr, nonce.data()) == 1 &&
         EVP_EncryptUpdate(cipher.get(), record.data(), &size, record.data(), kRecordBytes) == 1 &&
         EVP_EncryptFinal_ex(cipher.get(), record.data(), &size) == 1 &&
         EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, 16, tag.data()) == 1;
  }
  return ok ? absl::OkStatus() : absl::InternalError("AES-128-GCM does not work");
}

// `encrypt`: the thread encrypts the bytes of each operation after it.
absl::StatusOr<Turn> RunOurs(Contender& ours, Direction direction, int64_t bytes, int64_t count,
                             bool encrypt = false) {
  OperationTimer timer([&ours] { return ours.Processor(); });
  for (int64_t i = 0; i < count; ++i) {
    // Values that have not changed are not sent again, so that a pull needs a push before it.
    if (direction == Direction::kPull) CAPSTAN_RETURN_IF_ERROR(ours.Push());
    timer.Begin();
    if (direction == Direction::kPush) CAPSTAN_RETURN_IF_ERROR(ours.Push());
    if (direction == Direction::kPull) CAPSTAN_RETURN_IF_ERROR(ours.Pull());
    if (direction == Direction::kBoth) CAPSTAN_RETURN_IF_ERROR(ours.Run(1));
    if (encrypt) CAPSTAN_RETURN_IF_ERROR(Encrypt(bytes));
    timer.End(static_cast<double>(bytes) * (direction == Direction::kBoth ? 2 : 1));
  }
  return timer.Take();
}

std::vector<Contestant> ContestantsOf(Contender& ours, Peers& peers, Direction direction,
                                      int64_t bytes) {
  const auto tcp = [&peers, direction, bytes](bool streamed) {
    return [&peers, direction, bytes, streamed](int64_t count) {
      return peers.tcp->Run(direction, bytes, count, streamed, ProcessorWith(*peers.tcp_process));
    };
  };
  return {{.name = "Capstan",
           .run = [&ours, direction,
                   bytes](int64_t count) { return RunOurs(ours, direction, bytes, count); }},
          {.name = "raw TCP and the add", .run = tcp(/*streamed=*/false)},
          {.name = "raw TCP, streamed", .run = tcp(/*streamed=*/true)},
          {.name = "gRPC, protobuf bytes", .run = [&peers, direction, bytes](int64_t count) {
             return peers.grpc->Run(direction, bytes, count, ProcessorWith(*peers.grpc_process));
           }}};
}

absl::Status CompareTls(const Flags& flags, int64_t bytes, const std::string& folder,
                        Report* report) {
  const Layout layout{.name = SizeName(bytes),
                      .elements = bytes / static_cast<int64_t>(sizeof(float))};
  auto gradient = std::make_shared<worker::TableArrays>();
  gradient->emplace_back(static_cast<size_t>(layout.count()), 0.5f);
  Contender tls({.name = "TLS", .server = flags.server, .rule = Rule::kSgd, .tls_folder = folder},
                layout, Mode::kAsp);
  Contender plain({.name = "plain", .server = flags.server, .rule = Rule::kSgd}, layout,
                  Mode::kAsp);
  CAPSTAN_RETURN_IF_ERROR(tls.Start(absl::StrCat(folder, "/tls-", bytes), gradient));
  CAPSTAN_RETURN_IF_ERROR(plain.Start(absl::StrCat(folder, "/plain-", bytes), gradient));
  for (const Direction direction : {Direction::kPush, Direction::kPull}) {
    const auto run = [direction, bytes](Contender& who, bool encrypt) {
      return [&who, direction, bytes, encrypt](int64_t count) {
        return RunOurs(who, direction, bytes, count, encrypt);
      };
    };
    Comparison comparison{.measure = absl::StrCat(NameOf(direction), ", ", layout.name, ", TLS")};
    CAPSTAN_ASSIGN_OR_RETURN(
        comparison.series,
        MeasureInTurn({{.name = "Capstan", .run = run(tls, false)},
                       {.name = "plain", .run = run(plain, false)},
                       {.name = "plain, then AES-128-GCM", .run = run(plain, true)}},
                      flags.report.turns));
    comparison.goals = {0, 0, kTlsGoal};
    report->Add(comparison);
  }
  CAPSTAN_RETURN_IF_ERROR(tls.CheckRecorded());
  return plain.CheckRecorded();
}

absl::Status CompareSize(const Flags& flags, int64_t bytes, const std::string& folder, Peers& peers,
                         Report* report) {
  const Layout layout{.name = SizeName(bytes),
                      .elements = bytes / static_cast<int64_t>(sizeof(float))};
  auto gradient = std::make_shared<worker::TableArrays>();
  gradient->emplace_back(static_cast<size_t>(layout.count()), 0.5f);
  Contender ours({.name = "Capstan", .server = flags.server, .rule = Rule::kSgd}, layout,
                 Mode::kAsp);
  CAPSTAN_RETURN_IF_ERROR(ours.Start(absl::StrCat(folder, "/", bytes), gradient));
  for (const Direction direction : {Direction::kPush, Direction::kPull, Direction::kBoth}) {
    Comparison comparison{.measure = absl::StrCat(NameOf(direction), ", ", layout.name)};
    CAPSTAN_ASSIGN_OR_RETURN(
        comparison.series,
        MeasureInTurn(ContestantsOf(ours, peers, direction, bytes), flags.report.turns));
    comparison.goals = {0, bytes >= kTcpGoalFrom ? kTcpGoal : 0, 0,
                        bytes == kGrpcGoalAt ? kGrpcGoal : 0};
    report->Add(comparison);
  }
  return ours.CheckRecorded();
}

absl::Status CompareAll(const Flags& flags, Report* report) {
  CAPSTAN_ASSIGN_OR_RETURN(const auto folder,
                           ScratchFolder::Make(ScratchFolder::Home(), "bulk-goodput"));
  if (flags.tls) {
    CAPSTAN_RETURN_IF_ERROR(cli::MakeLocalCertificates(folder->path(), 1, 1));
    for (const int64_t size : flags.sizes) {
      CAPSTAN_RETURN_IF_ERROR(CompareTls(flags, size << 10, folder->path(), report));
    }
    return absl::OkStatus();
  }
  CAPSTAN_ASSIGN_OR_RETURN(Peers peers, StartPeers(flags.baseline, folder->path()));
  for (const int64_t size : flags.sizes) {
    CAPSTAN_RETURN_IF_ERROR(CompareSize(flags, size << 10, folder->path(), peers, report));
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  Program program("Measures push and pull against raw TCP and gRPC with protobuf bytes.");
  AddReportFlags(program, &flags.report);
  program.AddOption("--server", flags.server, "capstan-server").Required();
  program.AddOption("--baseline", flags.baseline, "baseline_server").Required();
  program.AddOption("--sizes", flags.sizes, "KiB, as 64,1024; up to 262144 (256 MiB)")
      .SeparatedBy(',')
      .Between(1, 256 << 10);
  program.AddFlag("--tls", flags.tls,
                  "Encrypted, against plain text and the encryption of one core");
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  Report report(flags.report.json);
  return report.Finish(CompareAll(flags, &report));
}

}  // namespace
}  // namespace capstan::benchmark

int main(int argc, char** argv) {
  capstan::KeepFreedMemory();
  capstan::SkipLockOrderChecks();
  return capstan::benchmark::Main(argc, argv);
}
