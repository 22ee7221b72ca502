"""Rounds of jobs on a network that is spoiled while they train, and what they come to.

BSP: the model has the sha256 of a run without faults. SSP and ASP: the histories of all clients
explain the model. A round that does not succeed ends the program.
"""

import argparse
import random
import sys

import chaos
import namespaces
import synthetic


class NetworkRounds:
    """A program of this folder says what is spoiled, and what else must hold."""

    # No task is replaced: the model counts the same updates as without faults, in any mode.
    same_updates = False

    def __init__(self, description, epochs, enter, servers=3, workers=2):
        self.enter = enter
        self.daemons = {"servers": servers, "workers": workers}
        self.parser = argparse.ArgumentParser(
            description=description, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        self.parser.add_argument("--rounds", type=int, default=20, help="of each mode")
        self.parser.add_argument("--epochs", type=int, default=epochs)
        self.parser.add_argument("--seed", type=int, default=1)
        self.parser.add_argument("--modes", nargs="+", choices=sorted(chaos.MODES),
                                 default=sorted(chaos.MODES))
        self.arguments = None  # The command line's; main() parses them.

    def job_text(self, live, data, mode, draw):
        """The job. `draw`: of the round; None: without faults."""
        raise NotImplementedError

    def spoil(self, live, job, draw):
        """Spoils the network while the job trains, and mends it; returns what it did."""
        raise NotImplementedError

    def check(self, live, job):
        """The problems of a job that has succeeded, except those of its model."""
        return []

    def main(self):
        self.arguments = self.parser.parse_args()
        refused = self.enter()
        if refused:
            print(f"SKIPPED: {refused}")
            return
        with namespaces.NamespaceCluster(**self.daemons) as live:
            data = synthetic.data_block(live.folder, train=2000, test=500, side=8)
            wrong = sum(self._mode(live, data, mode) for mode in self.arguments.modes)
        print(f"{wrong} rounds went wrong")
        sys.exit(1 if wrong else 0)

    def _train(self, live, text, name, draw=None):
        job = live.submit(text, f"{name}.textproto")
        did = self.spoil(live, job, draw) if draw else None
        status = live.wait(job, seconds=300)
        if status["state"] != "SUCCEEDED":
            sys.exit(f"WRONG: {job}: {status}\n{live.logs()}")
        return job, did

    def _mode(self, live, data, mode):
        """The rounds that went wrong."""
        job, _ = self._train(live, self.job_text(live, data, mode, None), mode)
        expected = chaos.outcome(live, job, mode)
        print(f"{mode}  without faults  {expected}", flush=True)
        bad = 0
        for number in range(self.arguments.rounds):
            draw = random.Random(f"{self.arguments.seed} {mode} {number}")
            text = self.job_text(live, data, mode, draw)
            job, did = self._train(live, text, f"{mode}-{number}", draw)
            wrong = self.check(live, job) + chaos.differences(live, job, mode, expected)
            got = chaos.outcome(live, job, mode)
            if self.same_updates and mode != "bsp" and got != expected:
                wrong.append(f"comes to {got}")
            bad += bool(wrong)
            verdict = f"WRONG: {'; '.join(wrong)}" if wrong else "good"
            print(f"{mode}  round {number + 1:2}  {verdict}  {did}, {got}", flush=True)
            if wrong:
                print(live.run("job", "describe", job).stdout, live.logs(), sep="\n", flush=True)
        return bad
