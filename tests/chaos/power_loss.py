"""The power is cut, again and again: what no daemon has synced is lost, any part of it.

All processes die at one time, and of what they wrote since their last sync any sectors are taken
back, and in each folder the last names (tests/chaos/power): server logs, checkpoints, the
scheduler's store, models. Then all daemons are started again. With `durability: LOG`

BSP       the model has the sha256 of a run without faults;
SSP, ASP  every batch is in the model, on all shards alike; those that tasks had pushed since their
          last report are computed again, and no others.

At last the same with syncs of servers left out, as a build without fsync would be: that must lose
acknowledged pushes, and be noticed.
"""

import argparse
import json
import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "power"))

import chaos  # noqa: E402
import cluster  # noqa: E402
import power  # noqa: E402
import synthetic  # noqa: E402

PUSHES_IN_FLIGHT = 2  # Per task.
REPORT_SECONDS = 0.4  # A task reports what it has done every 0.2 s; the machine may be busy.
CONTROL_CUTS_MAX = 10  # Now and then everything had reached the disk by itself.
MODES = {"bsp": "bsp {}", "ssp": "ssp { staleness_bound: 2 }", "asp": "asp {}"}


class PowerCluster(chaos.ChaosCluster):
    def __init__(self, deaf="", **settings):
        self.deaf = deaf
        self.layer = None
        super().__init__(**settings)

    def place(self, _name):
        if self.layer is None:
            self.layer = power.Layer(self.folder, self.deaf)
        return {"prefix": self.layer.prefix()}

    def cut(self, draw):
        """Ends every process, cuts the power, and starts every daemon; returns what was lost."""
        daemons = list(self.daemons.values())
        tasks = [child for daemon in daemons for child in cluster.children(daemon.process.pid)]
        for pid in [daemon.process.pid for daemon in daemons] + tasks:
            chaos.signal_if_there(pid, signal.SIGKILL)
        for daemon in daemons:
            daemon.process.wait()
        cluster.until("all tasks are gone",
                      lambda: not any(b"--task" in cluster.command_line(pid) for pid in tasks))
        lost = self.layer.cut(draw)
        for name in self.daemons:
            self.start(name)
        self.wait_for_nodes(len(self.daemons) - 1)
        return lost


def text_of(live, data, mode, epochs):
    return chaos.job_text(
        live, data, epochs=epochs, name=mode, consistency=MODES[mode],
        resources="max_restarts: 1000", more="durability: LOG checkpoints { every_iterations: 60 }",
    )


def run(live, text, name, cuts=0, draw=None):
    """One job; returns (its id, what each cut has lost)."""
    job = live.submit(text, f"{name}.textproto")
    lost = []
    for _ in range(cuts):
        live.wait_iteration(job, live.iteration(job) + draw.randrange(3, 25))
        lost.append(f"{live.iteration(job)}: {live.cut(draw)}")
    status = live.wait(job, seconds=300)
    if status["state"] != "SUCCEEDED":
        sys.exit(f"{job}: {status}\n{live.logs()}")
    return job, lost


def updates(live, job):
    """How often the table was updated: at the end the number is the same for each shard."""
    manifest = json.loads((live.output(job) / "model.json").read_text())
    return int(next(t for t in manifest["tables"] if t["name"] == "parameters")["version"])


def bsp(live, data, arguments):
    text = text_of(live, data, "bsp", arguments.epochs)
    job, _ = run(live, text, "bsp")
    expected = chaos.digest(live.output(job))
    print(f"bsp  without faults  {expected}", flush=True)
    wrong = 0
    for number in range(arguments.rounds):
        draw = random.Random(arguments.seed + number)
        job, lost = run(live, text, f"bsp-{number}", arguments.cuts, draw)
        got = chaos.digest(live.output(job))
        wrong += got != expected
        verdict = "same" if got == expected else f"DIFFERS: {got}"
        print(f"bsp  round {number + 1:2}  {verdict}  lost at iteration {'; '.join(lost)}",
              flush=True)
    return wrong


def ledger(mode, live, data, arguments):
    text = text_of(live, data, mode, arguments.epochs)
    began = time.monotonic()
    job, _ = run(live, text, mode)
    seconds = time.monotonic() - began
    batches = updates(live, job)
    tasks = 2
    a_cut = tasks * PUSHES_IN_FLIGHT + int(batches / seconds * REPORT_SECONDS)
    unreported = arguments.cuts * a_cut
    print(f"{mode}  without faults  {batches} updates; at most {unreported} unreported ones",
          flush=True)
    wrong = 0
    for number in range(arguments.rounds):
        draw = random.Random(arguments.seed + 1000 + number)
        job, lost = run(live, text, f"{mode}-{number}", arguments.cuts, draw)
        twice = updates(live, job) - batches
        bad = not 0 <= twice <= unreported
        wrong += bad
        verdict = "BAD " if bad else "good"
        print(f"{mode}  round {number + 1:2}  {verdict}  {twice} batches computed again  "
              f"lost at iteration {'; '.join(lost)}", flush=True)
    return wrong


def control(arguments):
    """Without the servers' syncs acknowledged pushes are lost. Returns whether that is seen."""
    with PowerCluster(deaf="/server-", servers=2, workers=2) as live:
        data = synthetic.data_block(live.folder, train=2000, test=500, side=8)
        job = live.submit(text_of(live, data, "bsp", epochs=1000), "deaf.textproto")
        draw = random.Random(arguments.seed)
        live.wait_iteration(job, 5)
        for _ in range(CONTROL_CUTS_MAX):
            lost = live.cut(draw)
            reached = live.iteration(job)  # As the scheduler has kept it; no earlier one runs.

            def missed(status):
                return status["state"] in cluster.ENDED or "are lost" in status.get("detail", "")

            def missed_or_moved_on(status):
                moved_on = int(status.get("iteration", 0)) >= reached + 5
                return status if moved_on or missed(status) else None

            status = live.until_status(job, "the job misses what was lost, or goes on",
                                       missed_or_moved_on)
            if missed(status):
                print(f"without fsync  lost {lost}: {status.get('detail', '')}", flush=True)
                live.run("job", "stop", job, check=False)
                return True
    return False


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--cuts", type=int, default=2, help="power cuts a round")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--modes", nargs="+", choices=sorted(MODES), default=sorted(MODES))
    arguments = parser.parse_args()
    wrong = 0
    with PowerCluster(servers=2, workers=2) as live:
        data = synthetic.data_block(live.folder, train=2000, test=500, side=8)
        for mode in arguments.modes:
            check = bsp if mode == "bsp" else lambda *given, m=mode: ledger(m, *given)
            wrong += check(live, data, arguments)
    print(f"{wrong} rounds went wrong")
    if not control(arguments):
        sys.exit(f"WRONG: servers without fsync lost nothing in {CONTROL_CUTS_MAX} power cuts, so "
                 "this program would not notice a build without it")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
