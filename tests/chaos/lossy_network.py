"""A network that loses packets: 30 of 100, between any two hosts, for a minute, while jobs train.

At random also a slow one: each host receives at most so many megabits a second. Daemons and tasks
are taken for dead meanwhile, several servers at a time, and come back with their logs; the jobs go
on and nothing is lost or counted twice.
BSP: the model has the sha256 of a run without faults. SSP and ASP: every acknowledged push is in
the model once. Skipped, with the reason, where network namespaces or packet filters are not
allowed.
"""

import time

import chaos
import namespaces
import network_rounds

RATES = (None, "200mbit", "20mbit")
# A small model, so that training makes progress at all: TCP sends a packet or two and waits.
MODEL = 'zoo: "softmax_regression"'


class LossyNetwork(network_rounds.NetworkRounds):
    def __init__(self):
        super().__init__(__doc__, epochs=60, enter=namespaces.enter_filtered)
        self.parser.add_argument("--seconds", type=float, default=60,
                                 help="how long packets are lost")
        self.parser.add_argument("--percent", type=int, default=30, help="of the packets are lost")

    def job_text(self, live, data, mode, draw):
        return chaos.job_text(live, data, epochs=self.arguments.epochs, name=mode, model=MODEL,
                              consistency=chaos.MODES[mode], more="durability: LOG")

    def spoil(self, live, job, draw):
        rate = draw.choice(RATES)
        live.wait_iteration(job, 5)
        before = live.iteration(job)
        if rate:
            live.limit_bandwidth(rate)
        live.lose(self.arguments.percent)
        time.sleep(self.arguments.seconds)  # The fault itself: this is how long it lasts.
        live.lose(0)
        if rate:
            live.limit_bandwidth(None)
        trained = live.iteration(job) - before
        return (f"{self.arguments.percent} % lost for {self.arguments.seconds} s at "
                f"{rate or 'any rate'}: {trained} iterations meanwhile")


if __name__ == "__main__":
    LossyNetwork().main()
