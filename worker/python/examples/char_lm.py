"""A small transformer that continues a text, character by character.

    capstan run --workers=2 --output=model char_lm.py --text=FILE
    python3 char_lm.py --text=FILE --evaluate=model
"""

import argparse
import math
import pathlib

import torch
from torch import nn

import capstan.torch

DIM, HEADS, LAYERS, CONTEXT = 64, 4, 2, 64


class Characters(torch.utils.data.Dataset):
    """Windows of a text that do not overlap: CONTEXT characters, and for each the next one."""

    def __init__(self, text, alphabet):
        numbers = {character: number for number, character in enumerate(alphabet)}
        self.text = torch.tensor([numbers[character] for character in text])

    def __len__(self):
        return (len(self.text) - 1) // CONTEXT

    def __getitem__(self, index):
        window = self.text[index * CONTEXT:(index + 1) * CONTEXT + 1]
        return window[:-1], window[1:]


class Transformer(nn.Module):
    """A decoder alone: positions see those before them."""

    def __init__(self, characters):
        super().__init__()
        self.characters = nn.Embedding(characters, DIM)
        self.positions = nn.Parameter(0.02 * torch.randn(CONTEXT, DIM))
        layer = nn.TransformerEncoderLayer(DIM, HEADS, 4 * DIM, dropout=0.1, activation="gelu",
                                           batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, norm=nn.LayerNorm(DIM),
                                            enable_nested_tensor=False)
        self.head = nn.Linear(DIM, characters)

    def forward(self, text):
        length = text.shape[1]
        later = torch.full((length, length), -math.inf).triu(1)
        return self.head(self.layers(self.characters(text) + self.positions[:length], later))


def loss_of(net, text, following):
    return nn.functional.cross_entropy(net(text).flatten(0, 1), following.flatten())


def evaluate(net, data):
    net.eval()
    with torch.no_grad():
        losses = [float(loss_of(net, *batch)) for batch in torch.utils.data.DataLoader(data, 64)]
    print(f"loss on the text's last tenth {sum(losses) / len(losses):.4f}")


def sample(net, alphabet, length=300):
    text = torch.zeros(1, 1, dtype=torch.int64)
    with torch.no_grad():
        for _ in range(length):
            chances = net(text[:, -CONTEXT:])[0, -1].softmax(0)
            text = torch.cat([text, torch.multinomial(chances, 1)[None]], 1)
    print("".join(alphabet[number] for number in text[0]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", required=True)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--characters", type=int, default=700_000, help="of the text")
    parser.add_argument("--evaluate", metavar="FOLDER", help="test its model instead of training")
    options = parser.parse_args()
    torch.manual_seed(1)
    text = pathlib.Path(options.text).read_text(encoding="utf-8")[:options.characters]
    alphabet = sorted(set(text))
    last_tenth = len(text) * 9 // 10
    net = Transformer(len(alphabet))
    if options.evaluate:
        capstan.torch.load(net, options.evaluate)
        evaluate(net, Characters(text[last_tenth:], alphabet))
        sample(net, alphabet)
        return
    data = Characters(text[:last_tenth], alphabet)
    adamw = torch.optim.AdamW(net.parameters(), 3e-3)
    warm_up = torch.optim.lr_scheduler.LambdaLR(adamw, lambda update: min(1, (update + 1) / 100))
    optimizer = capstan.torch.Optimizer(adamw, net, schedule=warm_up)
    for batch in capstan.torch.batches(data, 8, epochs=options.epochs):
        optimizer.zero_grad()
        loss = loss_of(net, *batch)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step(loss)


if __name__ == "__main__":
    main()
