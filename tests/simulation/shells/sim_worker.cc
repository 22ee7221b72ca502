#include "tests/simulation/shells/sim_worker.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace capstan::sim {
namespace {

constexpr int kSigkill = 9;
constexpr int kSigterm = 15;
constexpr absl::Duration kStartMin =
    absl::Milliseconds(5);  // Shortest time from the start to the first report.
constexpr absl::Duration kStartMax = absl::Milliseconds(300);
constexpr absl::Duration kLeaveTimeout = absl::Seconds(2);  // The daemon's limit.
constexpr absl::Duration kStopMax =
    absl::Milliseconds(200);  // Longest time from SIGTERM to the end.
constexpr absl::Duration kNoticeMax = absl::Milliseconds(20);  // Until the daemon knows of an end.

worker::TaskName NameOf(const v1::TaskAssignment& assignment) {
  return {assignment.job_id(), Rank(assignment.rank()), Incarnation(assignment.incarnation())};
}

}  // namespace

SimWorker::~SimWorker() = default;

SimWorker::SimWorker(World* world, SimNetwork::HostId host, HostClock* clock, std::string name,
                     int capacity)
    : world_(world),
      host_(host),
      clock_(clock),
      capacity_(capacity),
      process_(std::move(name), &world->loop, clock),
      endpoint_(world->network.AddEndpoint(host, &process_)) {
  process_.set_on_kill([this] {
    for (TaskProcess& task : tasks_) EndTask(task);
    world_->network.EndpointDied(endpoint_);
    agent_.reset();
    stopped_ = nullptr;
  });
}

void SimWorker::Start() {
  process_.Start();
  table_ = worker::TaskTable();
  v1::RegisterRequest registration;
  registration.set_role(v1::WORKER);
  registration.set_name(process_.name());
  registration.set_address(World::AddressOf(endpoint_));
  registration.set_task_capacity(capacity_);
  agent_ = std::make_unique<SimAgent>(world_, &process_, endpoint_, registration, this);
  agent_->Start();
}

// Does the same as Daemon::Stop in worker_main.cc.
void SimWorker::Stop(std::function<void()> ended) {
  if (stopped_ != nullptr) return;
  stopped_ = std::move(ended);
  agent_->Leave(SimAgent::When::kTold, kLeaveTimeout, [this](bool told) {
    told_ = told;
    worker::TaskActions actions;
    table_.StopAll(&actions);
    Perform(actions, {});
    if (table_.running_count() == 0) ReportEnds();
  });
}

void SimWorker::ReportEnds() {
  const auto end = [this](bool) {
    const std::function<void()> ended = std::move(stopped_);
    process_.Kill();
    ended();
  };
  if (!told_) return end(false);
  agent_->Leave(SimAgent::When::kTold, kLeaveTimeout, end);
}

std::vector<Process*> SimWorker::TaskProcesses() {
  std::vector<Process*> running;
  for (TaskProcess& task : tasks_) {
    if (task.process->alive()) running.push_back(task.process.get());
  }
  return running;
}

void SimWorker::ClockJumped() {
  process_.ClockJumped();
  for (Process* task : TaskProcesses()) task->ClockJumped();
}

void SimWorker::KillTask(Process* process) {
  for (TaskProcess& task : tasks_) {
    if (task.process.get() != process || !process->alive()) continue;
    EndTask(task);
    Ended(task.id, 0, kSigkill);
  }
}

void SimWorker::EndTask(TaskProcess& task) {
  if (!task.process->alive()) return;
  task.process->Kill();
  task.task.reset();
}

void SimWorker::Ended(worker::ProcessId id, int exit_code, int signal) {
  process_.After(world_->prng.Between(absl::ZeroDuration(), kNoticeMax), [=, this] {
    const bool stopping = table_.stopping() && table_.running_count() > 0;
    worker::TaskActions actions;
    table_.ProcessEnded(id, {.exit_code = exit_code, .signal = signal, .last_lines = ""}, &actions);
    Perform(actions, {});
    if (stopping && table_.running_count() == 0) ReportEnds();
  });
}

SimWorker::TaskProcess* SimWorker::Find(worker::ProcessId id) {
  // Ids begin anew with each incarnation of the daemon: the newest is meant.
  for (auto it = tasks_.rbegin(); it != tasks_.rend(); ++it) {
    if (it->id == id) return &*it;
  }
  return nullptr;
}

void SimWorker::Restarted(const NodeId&, Incarnation) {
  worker::TaskActions actions;
  table_.NewIncarnation(&actions);
  Perform(actions, {});
}

void SimWorker::FillState(v1::SyncNodeRequest& request) {
  for (const worker::TaskReport& report : table_.Report()) {
    v1::TaskState& state = *request.add_tasks();
    state.set_job_id(report.task.job);
    state.set_rank(report.task.rank.value());
    state.set_incarnation(report.task.incarnation.value());
    state.set_exited(report.exited);
    if (!report.exited) continue;
    state.set_exit_code(report.end.exit_code);
    state.set_signal(report.end.signal);
  }
}

void SimWorker::TakeDesired(const v1::SyncNodeResponse& response) {
  std::vector<worker::TaskName> desired;
  for (const v1::TaskAssignment& task : response.tasks()) desired.push_back(NameOf(task));
  worker::TaskActions actions;
  table_.TakeDesired(desired, &actions);
  Perform(actions, response);
}

void SimWorker::Perform(const worker::TaskActions& actions, const v1::SyncNodeResponse& response) {
  const auto end = [this](worker::ProcessId id, int signal) {
    TaskProcess* task = Find(id);
    if (task == nullptr || !task->process->alive()) return;
    EndTask(*task);
    Ended(id, 0, signal);
  };
  for (const worker::ProcessId id : actions.kill) end(id, kSigkill);
  for (const worker::ProcessId id : actions.terminate) {
    process_.After(world_->prng.Between(absl::ZeroDuration(), kStopMax),
                   [id, end] { end(id, kSigterm); });
  }
  for (const worker::TaskActions::Start& start : actions.start) {
    for (const v1::TaskAssignment& assignment : response.tasks()) {
      if (NameOf(assignment) == start.task) StartTask(start.process, assignment);
    }
  }
  if (actions.report) agent_->Wake();
}

void SimWorker::StartTask(worker::ProcessId id, const v1::TaskAssignment& assignment) {
  TaskProcess& task = tasks_.emplace_back();
  task.id = id;
  task.process = std::make_unique<Process>(
      absl::StrCat("task ", assignment.rank(), "/", assignment.incarnation()), &world_->loop,
      clock_);
  Process* process = task.process.get();
  task.endpoint = world_->network.AddEndpoint(host_, process);
  const SimNetwork::EndpointId endpoint = task.endpoint;
  process->set_on_kill([this, endpoint] { world_->network.EndpointDied(endpoint); });
  process->Start();
  task.task = std::make_unique<SimTask>(
      world_, process, task.endpoint, assignment, [this, id, process](int exit_code) {
        // Later: the task is still on the stack.
        world_->loop.After(absl::ZeroDuration(), [this, id, process, exit_code] {
          if (!process->alive()) return;
          EndTask(*Find(id));
          Ended(id, exit_code, 0);
        });
      });
  SimTask* started = task.task.get();
  process->After(world_->prng.Between(kStartMin, kStartMax), [started] { started->Start(); });
}

}  // namespace capstan::sim
