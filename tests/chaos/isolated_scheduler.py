"""The scheduler lives and nobody reaches it: for a while, all of its links are cut.

Training goes on meanwhile as without a scheduler, and afterwards nothing has happened: every daemon
has the incarnation that it had, no task was started again, and no server has lost a shard. BSP: the
model has the sha256 of a run without faults. SSP and ASP: every batch is in the model, on all
shards alike, and none twice. Skipped, with the reason, where network namespaces are not allowed.
"""

import time

import chaos
import namespaces
import network_rounds


class IsolatedScheduler(network_rounds.NetworkRounds):
    same_updates = True

    def __init__(self):
        super().__init__(__doc__, epochs=30, enter=namespaces.enter)
        self.parser.add_argument("--seconds", type=float, default=30,
                                 help="how long it is cut off")
        self.incarnations = {}

    def job_text(self, live, data, mode, draw):
        replicas = draw.randrange(2) if draw else 1
        return chaos.job_text(live, data, epochs=self.arguments.epochs, name=mode,
                              consistency=chaos.MODES[mode],
                              resources=f"replicas: {replicas} max_restarts: 1000")

    def spoil(self, live, job, draw):
        self.incarnations = live.incarnations()
        live.wait_iteration(job, draw.randrange(3, 40))
        at = live.iteration(job)
        live.isolate("scheduler", True)
        time.sleep(self.arguments.seconds)  # The fault itself: this is how long it lasts.
        live.isolate("scheduler", False)
        return f"cut off at iteration {at} for {self.arguments.seconds} s"

    def check(self, live, job):
        wrong = []
        restarts = live.status(job).get("restarts", 0)
        if restarts:
            wrong.append(f"{restarts} tasks were started again")
        incarnations = live.incarnations()
        changed = sorted(node for node, incarnation in incarnations.items()
                         if self.incarnations.get(node) != incarnation)
        if changed:
            wrong.append(f"new incarnations of {', '.join(changed)}")
        return wrong


if __name__ == "__main__":
    IsolatedScheduler().main()
