"""Word vectors by skip-gram with negative sampling: two tables, of words and of their contexts.

    capstan run --workers=2 --output=model word2vec.py --text=FILE
    python3 word2vec.py --text=FILE --evaluate=model --near=king

After Mikolov et al. 2013. The tables need no vocabulary: a word's key is its hash.
"""

import argparse
import collections
import hashlib
import pathlib
import re

import torch
from torch import nn

import capstan.torch

DIM, WINDOW, NEGATIVES = 32, 4, 5


def key_of(word):
    return int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "little", signed=True)


class Pairs(torch.utils.data.Dataset):
    """Each word with the words around it, and words from anywhere: keys, and labels 1 or 0.

    Words from anywhere come as often as the 3/4th power of their count says.
    """

    def __init__(self, words):
        counts = collections.Counter(words)
        keys = {word: key_of(word) for word in counts}
        self.keys = torch.tensor([keys[word] for word in words])
        self.known = torch.tensor(list(keys.values()))
        self.chances = torch.tensor([float(count) for count in counts.values()]).pow(0.75)

    def __len__(self):
        return len(self.keys) - 2 * WINDOW

    def __getitem__(self, index):
        return self.keys[index:index + 2 * WINDOW + 1]

    def collate(self, windows):
        """Random numbers are those of the batch: the same whoever computes it."""
        windows = torch.stack(windows)
        near = torch.cat([windows[:, :WINDOW], windows[:, WINDOW + 1:]], 1)
        far = self.known[torch.multinomial(self.chances, len(windows) * NEGATIVES * near.shape[1],
                                           replacement=True)].view(len(windows), -1)
        labels = torch.cat([torch.ones(near.shape), torch.zeros(far.shape)], 1)
        return windows[:, WINDOW], torch.cat([near, far], 1), labels


class SkipGram(nn.Module):
    """The logarithms of the odds that words [n] are near contexts [n, m]: [n, m]."""

    def __init__(self):
        super().__init__()
        self.words, self.contexts = (
            capstan.torch.EmbeddingBag(name, DIM, keys=lambda batch, place=place: batch[place],
                                       optimizer=capstan.optimizers.Adagrad(0.1), initial_std=0.1)
            for place, name in enumerate(("words", "contexts")))
        self.bias = nn.Parameter(torch.zeros(1))  # The only parameter of torch's optimizer.

    def forward(self, words, contexts):
        vectors = self.words(words[:, None])[:, :, None]
        others = self.contexts(contexts.view(-1, 1)).view(*contexts.shape, DIM)
        return torch.bmm(others, vectors)[:, :, 0] + self.bias


def evaluate(net, data):
    with torch.no_grad():
        words, contexts, _ = data.collate([data[index] for index in range(0, len(data), 50)])
        near, far = net(words, contexts).split([2 * WINDOW, 2 * WINDOW * NEGATIVES], 1)
        higher = near[:, :, None] > far.view(*near.shape, NEGATIVES)
        print(f"near words have higher odds than others {float(higher.float().mean()):.4f}")


def words_like(table, words, word, count=8):
    """The words whose vectors have the smallest angles to that of `word`."""
    known = sorted(words)
    vectors = nn.functional.normalize(table(torch.tensor([[key_of(each)] for each in known])))
    near = (vectors @ vectors[known.index(word)]).topk(count + 1).indices[1:]
    return [known[index] for index in near]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--words", type=int, default=150_000, help="of the text")
    parser.add_argument("--near", metavar="WORD", help="with --evaluate: print words like this one")
    parser.add_argument("--evaluate", metavar="FOLDER", help="test its model instead of training")
    options = parser.parse_args()
    text = pathlib.Path(options.text).read_text(encoding="utf-8").lower()
    words = re.findall(r"[a-z']+", text)[:options.words]
    data = Pairs(words)
    net = SkipGram()
    if options.evaluate:
        capstan.torch.load(net, options.evaluate)
        evaluate(net, data)
        if options.near:
            print(f"like {options.near}:", *words_like(net.words, set(words), options.near))
        return
    optimizer = capstan.torch.Optimizer(torch.optim.Adagrad(net.parameters(), 0.1), net)
    for words, contexts, labels in capstan.torch.batches(data, 256, epochs=options.epochs,
                                                         collate=data.collate):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(net(words, contexts), labels)
        loss.backward()
        optimizer.step(loss)


if __name__ == "__main__":
    main()
