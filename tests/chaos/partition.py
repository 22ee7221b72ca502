"""Partitions and pauses on real processes: the job goes on and its bits are those of a quiet run.

In turn: a primary cut off from everybody and joined again; a primary that can no longer reach its
replica (one way); a server that is stopped (SIGSTOP) and goes on; a worker cut off; the scheduler
stopped. Skipped, with the reason, where network namespaces are not allowed.
"""

import argparse
import sys
import time

import chaos
import namespaces
import synthetic


def cut_primary(live, job, seconds):
    name = live.primary(job)
    live.isolate(name, True)
    time.sleep(seconds)  # The fault itself: this is how long it lasts.
    live.isolate(name, False)


def deafen_primary(live, job, seconds):
    name, other = live.primary(job), live.replica(job)
    live.deafen(name, other, True)
    time.sleep(seconds)  # As above.
    live.deafen(name, other, False)


def pause_primary(live, job, seconds):
    live.pause(live.primary(job), seconds)


def cut_worker(live, _job, seconds):
    live.isolate("worker-1", True)
    time.sleep(seconds)  # As above.
    live.isolate("worker-1", False)


def pause_scheduler(live, _job, seconds):
    live.pause("scheduler", seconds)


FAULTS = (cut_primary, deafen_primary, pause_primary, cut_worker, pause_scheduler)


def run(live, text, name, fault=None, seconds=0.0):
    job = live.submit(text, f"{name}.textproto")
    if fault is not None:
        live.wait_iteration(job, 10)
        live.wait_replicated(job)
        fault(live, job, seconds)  # Some stop nobody's work: the job may end meanwhile.
    status = live.wait(job, seconds=300)
    if status["state"] != "SUCCEEDED":
        sys.exit(f"{job}: {status}\n{live.logs()}")
    return job


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=6, help="how long each fault lasts")
    parser.add_argument("--epochs", type=int, default=40)
    arguments = parser.parse_args()
    refused = namespaces.enter()
    if refused:
        print(f"SKIPPED: {refused}")
        return
    wrong = 0
    with namespaces.NamespaceCluster(servers=3, workers=2) as live:
        data = synthetic.data_block(live.folder, train=2000, test=500, side=8)
        text = chaos.job_text(live, data, epochs=arguments.epochs)
        expected = chaos.outcome(live, run(live, text, "clean"), "bsp")
        print(f"{'without faults':16}  {expected}", flush=True)
        for fault in FAULTS:
            job = run(live, text, fault.__name__.replace("_", "-"), fault, arguments.seconds)
            bad = chaos.differences(live, job, "bsp", expected)
            wrong += bool(bad)
            verdict = f"WRONG: {'; '.join(bad)}" if bad else "same"
            print(f"{fault.__name__:16}  {verdict}", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
