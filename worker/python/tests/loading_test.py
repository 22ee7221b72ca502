"""Batches that are made ahead: the same as those that are not, and what fails says where."""

import multiprocessing
import multiprocessing.util
import os
import random
import unittest

from capstan import Error, _loading
from capstan._client import Work

SAMPLES, BATCH = 40, 4


class Noise:
    """Samples with random numbers; those of `wrong` raise, and those of `deadly` end the process.

    `log` gets a byte for each sample that another process makes.
    """

    def __init__(self, wrong=(), deadly=(), log=None):
        self.wrong, self.deadly, self.log = wrong, deadly, log

    def __getitem__(self, sample):
        if sample in self.wrong:
            raise ValueError("told to fail")
        if sample in self.deadly:
            os._exit(3)
        if self.log is not None:
            self.log.release()
        return sample, random.random()


class Together:
    """Gives the samples of a list at once, as datasets of PyTorch 2 may, and refuses those from 8
    on."""

    def __getitem__(self, sample):
        raise AssertionError("expected one call for all")

    def __getitems__(self, samples):
        assert isinstance(samples, list), samples
        if samples[0] >= 8:
            raise KeyError(samples[0])
        return ["asked", *samples]


def work(number, tests=False):
    samples = tuple(range(number * BATCH, (number + 1) * BATCH))
    return Work(False, 0, number, -1, 1000 + number, samples, tests)


def nothing():
    return []


class LoadingTest(unittest.TestCase):
    def loader(self, dataset, workers, ahead=2, collate=tuple, test=None):
        loader = _loading.Loader(_loading.Source(dataset, collate),
                                 test and _loading.Source(test, collate), workers, ahead)
        self.addCleanup(loader.close)
        return loader

    def load_all(self, workers):
        """The batches of an epoch, each with those after it as a task knows them."""
        loader = self.loader(Noise(), workers)
        plan = [work(number) for number in range(SAMPLES // BATCH)]
        return [loader.load(each, lambda i=i: plan[i + 1:i + 4]) for i, each in enumerate(plan)]

    def test_batches_are_the_same_for_any_number_of_processes(self):
        batches = self.load_all(workers=0)
        self.assertEqual(len({value for batch in batches for _, value in batch}), SAMPLES)
        for workers in (1, 2, 5):
            self.assertEqual(self.load_all(workers), batches)

    def test_a_batch_that_comes_in_another_order_is_made_all_the_same(self):
        batches = self.load_all(workers=0)
        loader = self.loader(Noise(), workers=2)
        for number in (3, 0, 0, 7):
            self.assertEqual(loader.load(work(number), lambda: [work(8), work(9)]),
                             batches[number])

    def test_batches_are_made_before_they_are_asked_for(self):
        made = multiprocessing.get_context("fork").Semaphore(0)
        loader = self.loader(Noise(log=made), workers=1, ahead=1)
        loader.load(work(0), lambda: [work(1), work(2)])
        for _ in range(2 * BATCH):  # The one asked for, and the one ahead of it.
            made.acquire()
        loader.load(work(1), nothing)
        self.assertFalse(made.acquire(block=False))

    def test_test_data_are_other_data(self):
        for workers in (0, 1):
            loader = self.loader(range(100), workers, test=range(100, 200))
            self.assertEqual(loader.load(work(1), nothing), (4, 5, 6, 7))
            self.assertEqual(loader.load(work(1, tests=True), nothing), (104, 105, 106, 107))

    def refused(self, words, loader, number, upcoming=nothing):
        with self.assertRaisesRegex(Error, words) as caught:
            loader.load(work(number), upcoming)
        return caught.exception

    def test_an_exception_of_a_dataset_names_the_sample_when_its_batch_is_asked_for(self):
        for workers in (0, 1):
            loader = self.loader(Noise(wrong=[5]), workers)
            loader.load(work(0), lambda: [work(1)])
            error = self.refused("^sample 5: ValueError: told to fail$", loader, 1)
            if workers > 0:
                self.assertIn("in __getitem__", str(error.__cause__))
            loader.load(work(2), nothing)  # The process is still there.

    def test_an_exception_of_collate_names_the_batch(self):
        for workers in (0, 1):
            self.refused(r"^a batch of 4 samples \(4, 5, 6, 7\): AssertionError: no$",
                         self.loader(range(9), workers, collate=lambda _: self.fail("no")), 1)

    def test_a_dataset_that_has_many_samples_at_once_is_asked_once_a_batch(self):
        for workers in (0, 1):
            loader = self.loader(Together(), workers)
            self.assertEqual(loader.load(work(1), nothing), ("asked", 4, 5, 6, 7))
            self.refused(r"^a batch of 4 samples \(8, 9, 10, 11\): KeyError: 8$", loader, 2)

    def test_an_error_names_a_few_samples_of_a_large_batch(self):
        loader = self.loader(Together(), 0)
        with self.assertRaisesRegex(Error, r"^a batch of 90 samples \(8, 9, .*, 15, \.\.\.\): Key"):
            loader.load(Work(False, 0, 0, -1, 0, tuple(range(8, 98))), nothing)

    def test_a_batch_that_cannot_be_sent_is_refused(self):
        loader = self.loader(range(9), workers=1, collate=lambda samples: lambda: samples)
        self.refused("a batch cannot be sent between processes", loader, 1)

    def test_the_end_of_a_process_is_an_error(self):
        loader = self.loader(Noise(deadly=[9]), workers=1)
        self.refused("process [0-9]+, which loads batches, has ended with 3", loader, 2)
        self.refused("has ended with 3", loader, 1)

    def test_processes_end_with_their_loader(self):
        loader = self.loader(Noise(), workers=2)
        loader.load(work(0), lambda: [work(1)])
        self.assertEqual(len(multiprocessing.active_children()), 2)
        loader.close()
        self.assertEqual(multiprocessing.active_children(), [])


    def test_a_forked_process_that_ends_leaves_the_processes_alone(self):
        loader = self.loader(Noise(), workers=1)
        loader.load(work(0), nothing)
        pid = os.fork()
        if pid == 0:
            loader.close()
            multiprocessing.util._exit_function()  # As at an interpreter's exit.
            os._exit(0)
        os.waitpid(pid, 0)
        loader.load(work(1), nothing)


if __name__ == "__main__":
    unittest.main()
