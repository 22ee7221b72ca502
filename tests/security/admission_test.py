"""Data that is made to take all memory ends a submission, and the scheduler goes on."""

import gzip
import os
import pathlib
import time
import unittest

import cluster
import synthetic

MEMORY_MIB = 96
ZERO_MIB = 200  # As a file of 1 MiB: the readers take up to 250 bytes for a compressed one.


class LimitedCluster(cluster.Cluster):
    def _add(self, role, name, arguments):
        more = [f"--admission-memory-mib={MEMORY_MIB}"] if role == "scheduler" else []
        super()._add(role, name, [*arguments, *more])


class AdmissionTest(unittest.TestCase):
    def refused(self, running, images):
        labels = running.folder / "train-labels"
        data = f'data {{ format: IDX train {{ images: "{images}" labels: "{labels}" }} }}'
        path = running.write_job(synthetic.job(running.folder, name="bomb", data=data))
        done = running.run("job", "submit", str(path), "--no-wait", "--skip-data-check",
                           check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn('admission of job "bomb" was stopped: the check of its data needs more '
                      f"memory, expected at most {MEMORY_MIB} MiB "
                      "(capstan-scheduler --admission-memory-mib)", done.stderr)

    def test_a_decompression_bomb_and_a_huge_file_are_refused_and_the_scheduler_lives(self):
        with LimitedCluster() as running:
            scheduler = running.daemons["scheduler"].process
            good = synthetic.job(running.folder, workers=1)
            bomb = running.folder / "bomb.gz"
            with gzip.open(bomb, "wb", compresslevel=1) as out:
                out.write(os.urandom(1 << 20))
                for _ in range(ZERO_MIB):
                    out.write(bytes(1 << 20))
            self.refused(running, bomb)
            hole = running.folder / "hole"
            hole.touch()
            os.truncate(hole, 4 << 30)
            self.refused(running, hole)
            self.assertIsNone(scheduler.poll())
            resident = pathlib.Path(f"/proc/{scheduler.pid}/status").read_text()
            peak_kib = int(resident.split("VmHWM:")[1].split()[0])
            print(f"the scheduler's peak: {peak_kib} KiB")
            begun = time.monotonic()
            job = running.submit(good)
            print(f"a submission took {1000 * (time.monotonic() - begun):.0f} ms")
            self.assertEqual(running.wait(job)["state"], "SUCCEEDED")


if __name__ == "__main__":
    unittest.main()
