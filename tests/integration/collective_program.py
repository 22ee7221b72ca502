"""A PyTorch script that also has a process group of torch.distributed, before it trains."""

import torch
import torch.distributed

import capstan.torch


def main():
    torch.distributed.init_process_group("gloo")
    ranks = torch.tensor([torch.distributed.get_rank()])
    torch.distributed.all_reduce(ranks)
    print(f"the sum of ranks is {int(ranks)} of {torch.distributed.get_world_size()}")
    torch.manual_seed(1)
    net = torch.nn.Linear(1, 1)
    optimizer = capstan.torch.Optimizer(torch.optim.SGD(net.parameters(), lr=0.5), net, slots=2)
    x = torch.linspace(-1, 1, 64).reshape(-1, 1)
    data = torch.utils.data.TensorDataset(x, 3 * x - 1)
    for inputs, targets in capstan.torch.batches(data, 8, epochs=5):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(inputs), targets)
        loss.backward()
        optimizer.step(loss)


if __name__ == "__main__":
    main()
