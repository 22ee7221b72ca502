"""Jobs whose programs push and pull tables at their own pace."""

import json
import sys
import unittest

import cluster
import programs
from own_pace_program import DIM, SHARED
from programs import ENVIRONMENT, tensors

WORKERS = 2


def job(folder, *arguments, more=""):
    words = (sys.executable, cluster.runfile("tests/integration/own_pace_program.py"),
             f"--log={folder}", f"--stop={folder}/stop", *arguments)
    command = " ".join(f"command: {json.dumps(str(word))}" for word in words)
    variables = " ".join(f"environment {{ key: {json.dumps(name)} value: {json.dumps(value)} }}"
                         for name, value in ENVIRONMENT.items())
    return f"""
        program {{
          {command} {variables} own_pace: true
          parameters {{ name: "counts" shape: {WORKERS} }} parameters {{ name: "total" shape: 4 }}
          rows {{ name: "ads" dim: {DIM} initial_std: 0 buckets: 4 }}
        }}
        optimizer {{ sgd {{}} learning_rate: 1 }}
        consistency {{ asp {{}} }}
        resources {{ workers: {WORKERS} replicas: 1 max_restarts: 3 }}
        {more}
    """


class OwnPaceTest(programs.ProgramCase):
    def setUp(self):
        self.folder = self.cluster.folder / self.id()
        self.folder.mkdir()

    def lines(self, rank):
        """The lines of a rank's file: (word, number) of each."""
        path = self.folder / str(rank)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return [(word, int(number)) for word, number in map(str.split, text.splitlines())]

    def reached(self, rank):
        return max((number for word, number in self.lines(rank) if word == "reached"), default=0)

    def wait_for_more(self):
        """Until each rank has pushed 20 times more."""
        goals = [self.reached(rank) + 20 for rank in range(WORKERS)]
        cluster.until("each program goes on", lambda: all(
            self.reached(rank) >= goal for rank, goal in enumerate(goals)))

    def test_each_acknowledged_push_is_in_once_while_a_server_and_a_program_are_killed(self):
        name = self.cluster.submit(job(self.folder))
        self.wait_for_more()
        self.cluster.daemons["server-0"].kill()
        self.wait_for_more()
        self.cluster.daemons["server-0"].start()
        self.kill_program(name)
        cluster.until("the program runs again", lambda: sum(
            word == "found" for rank in range(WORKERS) for word, _ in self.lines(rank)) == 3)
        self.wait_for_more()
        (self.folder / "stop").touch()
        model = self.model_of(name)
        counts = [0] * WORKERS
        for rank in range(WORKERS):
            for word, number in self.lines(rank):
                if word == "snapshot":
                    continue
                if word == "reached":
                    self.assertEqual(number, counts[rank] + 1)
                else:  # All acknowledged pushes, and perhaps some that were on their way.
                    self.assertIn(number - counts[rank], range(5))
                counts[rank] = number
        self.assertIn("snapshot", [word for word, _ in self.lines(0)])
        found = tensors(model)
        self.assertEqual(found["counts"], tuple(counts))
        # The others were pushed beside: the killed program may have got further there, or less.
        for total in found["total"]:
            self.assertIn(total - sum(counts), range(-4, 5))
        rows = programs.rows(model.with_name("rows-ads.safetensors"))
        self.assertEqual(set(rows), {SHARED, *range(WORKERS)})
        for value in rows[SHARED]:
            self.assertIn(value - sum(counts), range(-4, 5))
        for rank in range(WORKERS):
            self.assertIn(rows[rank][0] - 2 * counts[rank], range(-8, 9, 2))

    def test_a_checkpoint_is_taken_while_programs_run_and_the_job_goes_on_from_it(self):
        name = self.cluster.submit(job(self.folder))
        self.wait_for_more()
        self.cluster.run("job", "stop", name, "--save")
        again = self.cluster.json("job", "resume", name, "--no-wait")["jobId"]
        self.wait_for_more()
        (self.folder / "stop").touch()
        found = tensors(self.model_of(again))
        for rank in range(WORKERS):
            self.assertEqual(found["counts"][rank], self.lines(rank)[-1][1])

    def test_what_is_not_finite_is_not_sent_and_the_job_says_so(self):
        name = self.cluster.submit(job(self.folder, "--fail"))
        status = self.cluster.wait(name)
        self.assertEqual(status["state"], "FAILED")
        self.assertIn('Diverged: what is pushed to "total" has nan at 1', str(status))


if __name__ == "__main__":
    unittest.main()
