"""The link between a worker and a server is dead for good, and the scheduler reaches both.

Drawn: one worker does not reach a server, and leaves its work to the other one; or neither does,
and the server's shards move to servers that they reach. The job says so and ends while the link is
dead. BSP: the model has the sha256 of a run without faults. SSP and ASP: the histories of all
clients explain the model. Skipped, with the reason, where network namespaces or packet filters are
not allowed.
"""

import chaos
import cluster
import namespaces
import network_rounds

# From the cut: 3 s until the server counts as silent, 10 s until that is judged, and the way on.
GOES_ON_SECONDS = 40


class DeadLink(network_rounds.NetworkRounds):
    def __init__(self):
        super().__init__(__doc__, epochs=20, enter=namespaces.enter_filtered)
        self.cut = []
        self.movable = True  # The shards of the job in this round.

    def job_text(self, live, data, mode, draw):
        more = draw.choice(("", "durability: LOG")) if draw else ""
        # One copy of an incomplete iteration cannot leave its server (scheduler/core/links).
        self.movable = mode != "bsp" or more != ""
        replicas = draw.randrange(2) if draw else 1
        self.movable = self.movable or replicas > 0
        return chaos.job_text(live, data, epochs=self.arguments.epochs, name=mode,
                              consistency=chaos.MODES[mode], more=more,
                              resources=f"replicas: {replicas} max_restarts: 0")

    def spoil(self, live, job, draw):
        live.wait_iteration(job, draw.randrange(3, 40))
        server = live.primary(job)
        choices = [["worker-0"], ["worker-1"]] + [["worker-0", "worker-1"]] * 2 * self.movable
        workers = draw.choice(choices)
        self.cut = [(worker, server) for worker in workers]
        for worker, _ in self.cut:
            live.cut_link(worker, server, True)
        at = live.iteration(job)
        said = f"{workers[0]} cannot reach {server}" if len(workers) == 1 else "cannot reach"
        live.until_status(job, f"{job} names the link",
                          lambda status: said in status.get("detail", ""), GOES_ON_SECONDS)
        live.wait_iteration(job, live.iteration(job) + 1)
        return f"{server} cut off from {' and '.join(workers)} at iteration {at}"

    def check(self, live, job):
        for worker, server in self.cut:  # Only now: the job has ended.
            live.cut_link(worker, server, False)
        return []


if __name__ == "__main__":
    DeadLink().main()
