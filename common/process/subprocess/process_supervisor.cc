#include "common/process/subprocess/process_supervisor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace capstan {

ProcessSupervisor::ProcessSupervisor(OnEnd on_end) : on_end_(std::move(on_end)) {}

ProcessSupervisor::~ProcessSupervisor() {
  Stop(absl::ZeroDuration());
  if (bell_ >= 0) close(bell_);
}

absl::Status ProcessSupervisor::Start() {
  bell_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (bell_ < 0) return absl::UnavailableError(absl::StrCat("eventfd: ", strerror(errno)));
  thread_ = std::thread(&ProcessSupervisor::Run, this);
  return absl::OkStatus();
}

void ProcessSupervisor::Spawn(uint64_t id, SpawnOptions options) {
  Post({Command::Kind::kSpawn, id, std::move(options), absl::ZeroDuration()});
}

void ProcessSupervisor::Terminate(uint64_t id, absl::Duration grace) {
  Post({Command::Kind::kTerminate, id, {}, grace});
}

void ProcessSupervisor::Stop(absl::Duration grace) {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    stop_grace_ = grace;
  }
  Ring();
  if (thread_.joinable()) thread_.join();
}

void ProcessSupervisor::Post(Command command) {
  {
    absl::MutexLock lock(&mutex_);
    commands_.push_back(std::move(command));
  }
  Ring();
}

void ProcessSupervisor::Ring() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n =
      write(bell_, &one, sizeof one);  // If it is full, it rings already.
}

void ProcessSupervisor::Run() {
  while (true) {
    const bool stopping = TakeCommands();
    const absl::Time now = absl::Now();
    KillOverdue(now);
    CollectEnded();
    if (stopping && children_.empty()) return;
    WaitForEvent(now);
  }
}

bool ProcessSupervisor::TakeCommands() {
  std::vector<Command> commands;
  bool stopping;
  absl::Duration grace;
  {
    absl::MutexLock lock(&mutex_);
    commands.swap(commands_);
    stopping = stopping_;
    grace = stop_grace_;
  }
  for (const Command& command : commands) {
    if (command.kind == Command::Kind::kSpawn) {
      DoSpawn(command);
    } else if (const auto found = children_.find(command.id); found != children_.end()) {
      DoTerminate(found->second, command.grace);
    }
  }
  if (stopping) {
    for (auto& [id, child] : children_) DoTerminate(child, grace);
  }
  return stopping;
}

void ProcessSupervisor::DoSpawn(const Command& command) {
  absl::StatusOr<std::unique_ptr<Subprocess>> process = Subprocess::Spawn(command.options);
  if (process.ok()) {
    children_[command.id].process = *std::move(process);
  } else {
    on_end_(command.id, process.status());
  }
}

void ProcessSupervisor::DoTerminate(Child& child, absl::Duration grace) {
  const absl::Time kill_at = absl::Now() + grace;
  if (child.kill_at == absl::InfiniteFuture()) child.process->Signal(SIGTERM);
  child.kill_at = std::min(child.kill_at, kill_at);  // Only an earlier deadline replaces it.
}

void ProcessSupervisor::KillOverdue(absl::Time now) {
  for (auto& [id, child] : children_) {
    if (child.kill_at <= now) child.process->Signal(SIGKILL);
  }
}

void ProcessSupervisor::CollectEnded() {
  std::vector<std::pair<uint64_t, ExitStatus>> ended;
  for (auto& [id, child] : children_) {
    if (const auto end = child.process->Wait(absl::ZeroDuration())) ended.emplace_back(id, *end);
  }
  for (const auto& [id, end] : ended) {
    children_.erase(id);
    on_end_(id, end);
  }
}

void ProcessSupervisor::WaitForEvent(absl::Time now) {
  std::vector<pollfd> waiters = {{.fd = bell_, .events = POLLIN, .revents = 0}};
  absl::Time deadline = absl::InfiniteFuture();
  for (const auto& [id, child] : children_) {
    waiters.push_back({.fd = child.process->pidfd(), .events = POLLIN, .revents = 0});
    // A child that was overdue at `now` has had its SIGKILL, and its end wakes the poll.
    if (child.kill_at > now) deadline = std::min(deadline, child.kill_at);
  }
  int timeout_ms = -1;
  if (deadline != absl::InfiniteFuture()) {
    const absl::Duration left =
        std::clamp(deadline - absl::Now(), absl::ZeroDuration(), absl::Hours(1));
    timeout_ms = static_cast<int>(absl::ToInt64Milliseconds(left)) + 1;  // Rounded up: no spinning.
  }
  poll(waiters.data(), waiters.size(), timeout_ms);
  uint64_t rings = 0;
  [[maybe_unused]] const ssize_t n = read(bell_, &rings, sizeof rings);  // It may be empty.
}

}  // namespace capstan
