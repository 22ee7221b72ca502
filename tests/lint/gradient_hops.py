"""Counts the hops of a dense gradient: the functions and threads between its kernel and the model.

  bazel run --config=hops //tests/lint:gradient_hops -- [--list]
  bazel run --config=hops //tests/lint:gradient_hops -- --binaries=OTHER_TREE/bazel-bin

A job trains a softmax regression in BSP: a scheduler, a server and a worker, values by TCP. A build
with --config=hops reports each function that is entered or left (call_trace.cc). The way of a
gradient begins when the kernels of the backward pass have ended and ends when the pulled parameters
are given to the model: see BEGIN, HANDED_OVER and END. Of what runs meanwhile this counts:

  - in the thread that computes: all until the gradient is handed over, also functions that are only
    left then, and what END calls. The rest is the next batch's;
  - in other threads of the task and of the server: all, but for threads that work beside each step
    (BESIDE). Timers, heartbeats and logs drop out, because a function must run in more than half of
    the steps;
  - functions of namespace capstan, each name once. Instances of a template and overloads have one
    name; a lambda is part of the function in which it is written;
  - no constructors, destructors and operators, no function of at most SHORT_BYTES of code, and no
    call that the compiler, by -O2, has put into its caller. Kernels, libraries and generated code
    do not report.

Threads of one origin, as the connections of pushes and of pulls, handle messages side by side and
are one station of the way. Each station is a change of thread; so is the return to the thread that
computes. Forms of the values are not counted. Exit codes: 0 the goals are reached, 1 they are not.
"""

import argparse
import bisect
import os
import pathlib
import re
import statistics
import struct
import subprocess
import sys
from collections import Counter, defaultdict

import cluster
import synthetic

BEGIN = "capstan::worker::StepExchange::GradientDone"  # The last one of a step is entered.
HANDED_OVER = "capstan::worker::PushPullClient::Release"  # The last one of a step is left.
END = "capstan::worker::Task::WaitForParameters"  # It is left.
# Origins of threads that decode the next batches and report to the scheduler.
BESIDE = ("capstan::worker::Prefetcher", "capstan::worker::SchedulerLink")
SHORT_BYTES = 128  # Some 15 instructions of its own, beside those of the two reports.
HOPS_MAX, CHANGES_MAX = 35, 4

FIRST_ITERATION = 100
RECORDED_ITERATIONS = 500
HEAD = struct.Struct("<Q24x")
RECORD = struct.Struct("<QQQII")
ENTERED, LEFT, THREAD = range(3)
COMPUTING = "(it computes)"

OPERATOR = re.compile(
    r"\boperator\b\s*(\(\)|\[\]|<=>|<<=?|>>=?|->\*?|&&|\|\||[<>=!+\-*/%&|^~]=?|.*$)"
)


def plain(name):
    """A demangled name without templates' arguments, parameters and lambdas; "" if not ours."""
    name = re.sub(r"\[(clone|abi)[^]]*\]", "", name.replace("(anonymous namespace)::", ""))
    kept, depth = [], 0
    for letter in OPERATOR.sub("operator", name):
        depth += letter in "<("
        if depth == 0:
            kept.append(letter)
        depth -= letter in ">)"
    words = [word for word in "".join(kept).split() if word.startswith("capstan::")]
    return words[-1].split("::{lambda")[0] if words else ""


def is_hop(name):
    """False for what is not ours, constructors, destructors and operators."""
    parts = name.split("::")
    return len(parts) > 1 and parts[-1] != parts[-2] and not parts[-1].startswith(("~", "operator"))


class Symbols:
    """The functions of a program: address -> plain name."""

    def __init__(self, binary):
        listed = subprocess.run(
            ["nm", "--demangle", "--defined-only", "--numeric-sort", "--print-size", str(binary)],
            stdout=subprocess.PIPE, text=True, check=True,
        )
        self.addresses, self.sizes, self.names = [], [], []
        for line in listed.stdout.splitlines():
            matched = re.match("([0-9a-f]+) ([0-9a-f]+) [tTwW] (.*)", line)
            if matched is not None:
                self.addresses.append(int(matched[1], 16))
                self.sizes.append(int(matched[2], 16))
                self.names.append(matched[3])
        self.found = {}

    def at(self, address):
        """(index, plain name, bytes of code) of the function to which `address` belongs."""
        if address not in self.found:
            index = bisect.bisect_right(self.addresses, address) - 1
            name = plain(self.names[index]) if index >= 0 else ""
            self.found[address] = (index, name, self.sizes[index])
        return self.found[address]


class Process:
    """The records of one process: calls by thread, and the class that began each thread."""

    def __init__(self, role, path, symbols):
        self.role = role
        data = path.read_bytes()
        (count,) = HEAD.unpack_from(data)
        self.complete_until = float("inf")
        self.calls = defaultdict(list)  # Thread -> (nanoseconds, ENTERED or LEFT, name, is hop).
        self.origins = {}
        stacks = defaultdict(list)
        records = data[HEAD.size:HEAD.size + count * RECORD.size]
        nanoseconds = 0
        for nanoseconds, function, site, thread, what in RECORD.iter_unpack(records):
            _, name, size = symbols.at(function)
            if what == THREAD:
                self.origins[thread] = name.rpartition("::")[0]
                continue
            stack = stacks[thread]
            if what == ENTERED:
                code, inside, _ = symbols.at(site)
                inlined = inside not in ("", name) or (stack and stack[-1][2] == code)
                counts = is_hop(name) and size > SHORT_BYTES and not inlined
                stack.append((name, counts, code))
                self.calls[thread].append((nanoseconds, what, *stack[-1][:2]))
                continue
            if any(entered[0] == name for entered in stack):  # Else it began before the record.
                while stack[-1][0] != name:  # Functions that an exception has left.
                    stack.pop()
                self.calls[thread].append((nanoseconds, what, *stack.pop()[:2]))
        if len(records) < count * RECORD.size:
            self.complete_until = nanoseconds


class Step:
    """The times between which a gradient was on its way."""

    def __init__(self, begin, handed_over, waits, end):
        self.begin, self.handed_over, self.waits, self.end = begin, handed_over, waits, end


def steps_of(calls):
    """The steps of the thread that computes."""
    steps = []
    begin = handed_over = waits = None
    for nanoseconds, what, name, _ in calls:
        if what == ENTERED and name == BEGIN:
            begin, handed_over, waits = nanoseconds, None, None
        elif begin is not None and what == LEFT and name == HANDED_OVER:
            handed_over = nanoseconds
        elif handed_over is not None and what == ENTERED and name == END:
            waits = nanoseconds
        elif waits is not None and what == LEFT and name == END:
            steps.append(Step(begin, handed_over, waits, nanoseconds))
            begin = handed_over = waits = None
    return steps


def on_the_way(step, calls, computes):
    """The calls of a thread that count in a step, ordered by time."""
    first = bisect.bisect_left(calls, (step.begin,))
    counted = calls[first:bisect.bisect_left(calls, (step.end + 1,))]
    if computes:
        counted = [call for call in counted if not step.handed_over < call[0] < step.waits]
    return [call for call in counted if call[3]]


def ways(task, server):
    """For each step: (its begin, {(process, origin of threads): the calls that count})."""
    computes = next(
        thread for thread, calls in task.calls.items()
        if any(name == BEGIN for _, _, name, _ in calls)
    )
    until = min(task.complete_until, server.complete_until)
    for step in steps_of(task.calls[computes]):
        if step.end > until:
            return
        way = defaultdict(list)
        for process in (task, server):
            for thread, calls in process.calls.items():
                is_computing = process is task and thread == computes
                origin = COMPUTING if is_computing else process.origins[thread]
                if origin not in BESIDE:
                    way[process.role, origin] += on_the_way(step, calls, is_computing)
        yield step.begin, way


class Cluster(cluster.Cluster):
    """Its servers and workers record calls."""

    def _add(self, role, name, arguments):
        os.environ.pop("LD_PRELOAD", None)
        if role != "scheduler":
            os.environ["LD_PRELOAD"] = self.library
            os.environ["CAPSTAN_CALL_TRACE"] = str(self.folder)
        super()._add(role, name, arguments)
        os.environ.pop("LD_PRELOAD", None)


def record(library, role_binaries):
    """Trains, and returns what the task and the server have recorded in the middle of it."""
    Cluster.library = library
    with Cluster(servers=1, workers=1) as live:
        job = live.submit(
            synthetic.job(
                live.folder, workers=1, servers=1, epochs=100_000,
                data=synthetic.train_only_block(live.folder, count=20_000, side=8),
                more="wire { shared_memory: OFF }",
            )
        )
        live.wait_iteration(job, FIRST_ITERATION)
        task, server = live.task_pids(job)[0], live.daemons["server-0"].process.pid
        with open(live.folder / "on", "r+b", buffering=0) as on:
            on.write(b"\1")
            begun = int(live.status(job)["iteration"])
            live.wait_iteration(job, begun + RECORDED_ITERATIONS)
            on.seek(0)
            on.write(b"\0")
        live.run("job", "stop", job)
        return [
            Process(role, live.folder / f"{pid}.calls", Symbols(role_binaries[role]))
            for role, pid in (("worker", task), ("server", server))
        ]


def stations(steps):
    """[((process, origin), names)] of what runs in more than half of `steps`, in the order in which
    a gradient reaches them."""
    counts, times, order = Counter(), defaultdict(list), {}
    for begin, way in steps:
        for where, calls in way.items():
            names = dict.fromkeys(name for _, _, name, _ in sorted(calls))
            counts.update((where, name) for name in names)
            if calls:
                times[where].append(sorted(calls)[len(calls) // 2][0] - begin)
            for name in names:
                order.setdefault((where, name), len(order))
    found = defaultdict(list)
    for where, name in sorted(order, key=order.get):
        if 2 * counts[where, name] > len(steps):
            found[where].append(name)
    return sorted(
        found.items(),
        key=lambda item: (item[0][1] != COMPUTING, statistics.median(times[item[0]])),
    )


def print_report(found, step_count, is_list):
    """Prints the stations; returns whether the goals are reached."""
    print(f"{'process':10}{'origin of its threads':48}functions")
    for (role, origin), names in found:
        print(f"{role:10}{origin:48}{len(names):9}")
        if is_list:
            print("".join(f"    {name}\n" for name in names), end="")
    hops, changes = len({name for _, names in found for name in names}), len(found)
    print(f"{hops} hops (goal {HOPS_MAX}), {changes} changes of thread (goal {CHANGES_MAX}); "
          f"{step_count} steps")
    return hops <= HOPS_MAX and changes <= CHANGES_MAX


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", default="tests/lint/libcall_trace.so", help="call_trace.cc")
    parser.add_argument("--binaries", type=pathlib.Path, help="bazel-bin of another tree")
    parser.add_argument("--list", action="store_true", help="print the functions")
    arguments = parser.parse_args()
    if arguments.binaries is not None:
        cluster.runfile = lambda path: (arguments.binaries / path).resolve(strict=True)
    binaries = {role: cluster.runfile(f"{role}/capstan-{role}") for role in ("server", "worker")}
    steps = list(ways(*record(str(pathlib.Path(arguments.library).resolve()), binaries)))
    return 0 if print_report(stations(steps), len(steps), arguments.list) else 1


if __name__ == "__main__":
    sys.exit(main())
