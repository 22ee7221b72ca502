"""capstan.torch.EmbeddingBag on rows that a test gives it."""

import unittest

try:
    import torch
    import capstan.torch
    from capstan import optimizers
except ImportError:
    torch = None


@unittest.skipIf(torch is None, "PyTorch is missing: deploy/install --tests")
class EmbeddingTest(unittest.TestCase):
    def setUp(self):
        # Named in another order than their rows are in.
        self.named = torch.tensor([9, 7, -1, 5])
        self.places = torch.tensor([3, 0, 1, 2])
        self.rows = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])

    def bag(self, **settings):
        return capstan.torch.EmbeddingBag("ads", 2, keys=lambda batch: batch[0],
                                          optimizer=optimizers.Adagrad(0.05), **settings)

    def refused(self, words, call):
        with self.assertRaisesRegex((capstan.Error, ValueError), words):
            call()

    def test_it_computes_what_torchs_does(self):
        """The same bits, forward and backward."""
        for mode in ("sum", "mean"):
            bag = self.bag(mode=mode)
            plain = torch.nn.EmbeddingBag.from_pretrained(self.rows, freeze=False, mode=mode)
            for keys, places, offsets in (
                    ([[7, -1, 7], [5, 5, 9]], [[0, 1, 0], [2, 2, 3]], None),
                    ([[9], [7], [7]], [[3], [0], [0]], None),
                    ([9, 7, -1, 5], [3, 0, 1, 2], [0, 0, 3]),  # The first bag is empty.
                    ([5, 5, -1], [2, 2, 1], [0])):
                offsets = None if offsets is None else torch.tensor(offsets)
                bag.take(self.rows.clone(), self.named, self.places)
                plain.weight.grad = None
                ours = bag(torch.tensor(keys), offsets)
                theirs = plain(torch.tensor(places), offsets)
                self.assertTrue(torch.equal(ours, theirs))
                ours.square().sum().backward()
                theirs.square().sum().backward()
                self.assertTrue(torch.equal(bag.gradient(), plain.weight.grad))

    def test_gradients_are_the_same_bits_with_two_threads_and_with_another_default_type(self):
        keys = (torch.rand(4000, 4) * 1000).long()
        rows, places = torch.randn(1000, 64), torch.arange(1000)
        found = []
        for threads, dtype in ((1, torch.float32), (2, torch.float32), (1, torch.bfloat16)):
            for mode in ("sum", "mean"):
                bag = capstan.torch.EmbeddingBag("ads", 64, keys=lambda batch: batch, mode=mode,
                                                 optimizer=optimizers.Adagrad(0.05))
                bag.take(rows.clone(), places, places)
                before = torch.get_num_threads()
                torch.set_num_threads(threads)
                torch.set_default_dtype(dtype)
                try:
                    bag(keys).square().sum().backward()
                finally:
                    torch.set_default_dtype(torch.float32)
                    torch.set_num_threads(before)
                found.append(bag.gradient())
        for number in range(2, 6):
            self.assertTrue(torch.equal(found[number], found[number % 2]))

    def test_keys_that_are_changed_afterwards_are_those_that_were_named(self):
        bag, keys = self.bag(), self.named.clone()
        named = bag.keys_of((keys,))
        keys.zero_()
        self.assertTrue(torch.equal(named, self.named))

    def test_keys_may_have_weights(self):
        bag = self.bag()
        bag.take(self.rows.clone(), self.named, self.places)
        sums = bag(torch.tensor([[7, -1]]), per_sample_weights=torch.tensor([[2.0, 0.5]]))
        self.assertEqual(sums.tolist(), [[3.5, 6.0]])
        sums.sum().backward()
        self.assertEqual(bag.gradient().tolist(), [[2, 2], [0.5, 0.5], [0, 0], [0, 0]])

    def test_it_refuses_what_it_cannot_look_up(self):
        bag = self.bag()
        self.refused("'ads' has rows only in the loop", lambda: bag(torch.tensor([[1]])))
        bag.take(torch.zeros(1, 2), torch.tensor([4]), torch.tensor([0]))
        self.refused("key 3 is looked up, and `keys` has not named it",
                     lambda: bag(torch.tensor([[4, 3]])))
        self.refused("keys are torch.float32, expected", lambda: bag(torch.tensor([[4.0]])))
        self.refused("keys are list, expected", lambda: bag.keys_of([[4]]))
        self.refused("mode is 'max'", lambda: self.bag(mode="max"))


if __name__ == "__main__":
    unittest.main()
