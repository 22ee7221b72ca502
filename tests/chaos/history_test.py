"""The history checker finds each broken promise: one test for each, beside histories that are good.

Times are small numbers; a history is written line by line, as clients write theirs.
"""

import pathlib
import tempfile
import unittest

import history

ONE = "0/0"


class HistoryFixture(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.messages = 0

    def write(self, rank, line, incarnation=1):
        path = pathlib.Path(self.folder.name, f"job-1-{rank}-{incarnation}.history")
        with open(path, "a", encoding="utf-8") as file:
            file.write(line)

    def train(self, rank, time, start=0, incarnation=1):
        self.write(rank, f"W {time} train {start}\n", incarnation)

    def push(self, rank, begun, answered, iteration, sequence, slots="0-0", incarnation=1):
        self.messages += 1
        number = self.messages
        self.write(rank, f"B {begun} {number} push {iteration} {slots} {ONE}:{sequence}\n",
                   incarnation)
        if answered:
            self.write(rank, f"A {answered} {number} {ONE}:done:0\n", incarnation)

    def read(self, rank, begun, answered, iteration, version, kind="pull", outcome="done"):
        self.messages += 1
        number = self.messages
        self.write(rank, f"B {begun} {number} {kind} {iteration} 0-0 {ONE}:0\n")
        self.write(rank, f"A {answered} {number} {ONE}:{outcome}:{version}\n")

    def export(self, version, begun=1000):
        self.read(0, begun, begun + 1, 0, version, kind="snapshot")

    def problems(self, mode, bound=0, slots=0):
        return history.check(self.folder.name, "job-1", mode, bound, slots)[0]

    def expect(self, mode, *wanted, bound=0, slots=0):
        problems = self.problems(mode, bound, slots)
        self.assertEqual(len(problems), len(wanted), problems)
        for problem, part in zip(problems, wanted):
            self.assertIn(part, problem)


class OnceTest(HistoryFixture):
    def two_pushes(self, second_answered=40):
        self.push(0, 10, 20, iteration=0, sequence=1)
        self.push(1, 30, second_answered, iteration=0, sequence=1)

    def test_as_many_as_were_acknowledged(self):
        self.two_pushes()
        self.export(2)
        self.expect("asp")

    def test_a_lost_push(self):
        self.two_pushes()
        self.export(1)
        self.expect("asp", "counts 1 pushes; 2 were acknowledged", "read version 1")

    def test_a_push_counted_twice(self):
        self.two_pushes()
        self.export(3)
        self.expect("asp", "counts 3 pushes; 2 were acknowledged", "read version 3")

    def test_one_without_an_answer_may_count_or_not(self):
        for version in (1, 2):
            with self.subTest(version=version):
                self.setUp()
                self.two_pushes(second_answered=None)
                self.export(version)
                self.expect("asp")

    def test_a_repeated_push_is_one(self):
        self.two_pushes()
        self.push(1, 50, 60, iteration=0, sequence=1)
        self.export(2)
        self.expect("asp")

    def test_a_number_used_for_two_pushes(self):
        self.two_pushes()
        self.push(1, 50, 60, iteration=1, sequence=1)
        self.export(2)
        self.expect("asp", "is of iteration 0, slots 0-0, and of 1")

    def test_incarnations_of_a_rank_are_told_apart(self):
        self.two_pushes()
        self.push(1, 50, 60, iteration=1, sequence=1, incarnation=2)
        self.export(3)
        self.expect("asp")

    def test_a_torn_last_line_counts_for_nothing(self):
        self.two_pushes(second_answered=None)
        self.write(1, "A 40 2 0/0:do")
        self.export(1)
        self.expect("asp")

    def test_nobody_read_the_end(self):
        self.export(0, begun=5)
        self.two_pushes()
        self.expect("asp", "nobody read it after the last push")

    def test_an_empty_history(self):
        self.expect("asp", "has no history")


class ReadsTest(HistoryFixture):
    def test_a_reader_sees_a_shard_go_back(self):
        self.push(0, 1, 99, iteration=0, sequence=1)
        self.read(1, 10, 20, iteration=0, version=1)
        self.read(1, 30, 40, iteration=1, version=0)
        self.export(1)
        self.expect("asp", "read version 1, and then 0")

    def test_reads_that_overlap_may_see_either(self):
        self.push(0, 1, 99, iteration=0, sequence=1)
        self.read(1, 10, 35, iteration=0, version=1)
        self.read(1, 30, 40, iteration=1, version=0)
        self.export(1)
        self.expect("asp")

    def test_an_acknowledged_push_is_not_seen(self):
        self.push(0, 10, 20, iteration=0, sequence=1)
        self.read(1, 21, 30, iteration=0, version=0)
        self.export(1)
        self.expect("asp", "read version 0 for iteration 0; 1 pushes had been acknowledged")

    def test_a_read_of_what_nobody_sent(self):
        self.read(1, 1, 5, iteration=0, version=1)
        self.push(0, 10, 20, iteration=0, sequence=1)
        self.export(1)
        self.expect("asp", "and 0 sent when it was answered")


class BspTest(HistoryFixture):
    def iteration(self, number, slots, begun):
        for slot in range(slots):
            self.push(slot, begun, begun + 5, number, sequence=number + 1,
                      slots=f"{slot}-{slot + 1}")

    def good(self):
        self.iteration(0, 2, begun=10)
        self.read(0, 11, 19, iteration=1, version=1)
        self.iteration(1, 2, begun=20)

    def test_exactly_the_version_of_its_iteration(self):
        self.good()
        self.read(1, 15, 16, iteration=0, version=0, outcome="past")
        self.export(2)
        self.expect("bsp", slots=2)

    def test_another_version(self):
        self.good()
        self.read(1, 30, 40, iteration=1, version=2)
        self.export(2)
        self.expect("bsp", "pulled iteration 1 and read version 2", slots=2)

    def test_work_of_an_earlier_iteration_is_taken_over(self):
        self.good()
        self.read(0, 30, 31, iteration=2, version=2)
        self.read(0, 40, 41, iteration=1, version=1)
        self.export(2)
        self.expect("bsp", slots=2)

    def test_an_answer_before_the_last_slot(self):
        self.push(0, 10, 15, iteration=0, sequence=1, slots="0-1")
        self.read(0, 11, 19, iteration=1, version=1)
        self.push(1, 20, 25, iteration=0, sequence=1, slots="1-2")
        self.export(1)
        self.expect("bsp", "before slots [1] of 0 were sent", slots=2)

    def test_a_slot_that_nobody_pushed(self):
        self.iteration(0, 1, begun=10)
        self.export(1)
        self.expect("bsp", "nobody pushed (iteration, slot) [(0, 1)]", slots=2)

    def test_an_iteration_is_lost(self):
        self.good()
        self.export(1)
        self.expect("bsp", *2 * ["and the shard ends with version 1"], slots=2)


class StalenessTest(HistoryFixture):
    def both(self, second_push, answered_pull, start_of_other=0):
        """Worker 1 pulls iteration 3 at a bound of 1: worker 0 must have finished iteration 1."""
        self.train(0, start_of_other)
        self.train(1, 0)
        self.push(0, 5, 6, iteration=0, sequence=1)
        self.read(1, 10, answered_pull, iteration=3, version=1)
        self.push(0, second_push, second_push + 50, iteration=1, sequence=2)
        self.export(2)

    def test_within_the_bound(self):
        self.both(second_push=15, answered_pull=20)
        self.expect("ssp", bound=1)

    def test_beyond_the_bound(self):
        self.both(second_push=21, answered_pull=20)
        self.expect("ssp", "sent one up to 1 only afterwards", bound=1)
        self.assertEqual(self.problems("ssp", bound=2), [])
        self.assertEqual(self.problems("asp"), [])

    def test_who_joined_later_was_not_waited_for(self):
        self.both(second_push=21, answered_pull=20, start_of_other=11)
        self.expect("ssp", bound=1)

    def test_who_had_no_work_was_not_waited_for(self):
        self.train(0, 0)
        self.push(0, 5, 6, iteration=0, sequence=1)
        self.write(0, "W 7 other 0\n")
        self.train(1, 0)
        self.read(1, 10, 20, iteration=3, version=1)
        self.train(0, 20)
        self.push(0, 21, 30, iteration=1, sequence=2)
        self.export(2)
        self.expect("ssp", bound=1)

    def test_a_push_that_was_never_acknowledged_may_be_of_who_was_fenced_off(self):
        self.train(0, 0)
        self.read(1, 10, 20, iteration=3, version=0)
        self.push(0, 21, None, iteration=1, sequence=1)
        self.push(1, 25, 26, iteration=3, sequence=1)
        self.export(1)
        self.expect("ssp", bound=1)


if __name__ == "__main__":
    unittest.main()
