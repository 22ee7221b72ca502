"""A PyTorch script that has gRPC of its own in the process: fits a line while it calls itself.

    wheel_program.py FOLDER     writes what its process has loaded to FOLDER/maps-RANK
"""

import concurrent.futures
import os
import pathlib
import sys

import grpc
import torch

import capstan.torch

SAMPLES, METHOD = 64, "/test.Echo/Call"


class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, _context: request)


def main():
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=1), handlers=[Echo()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    call = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary(METHOD)

    torch.manual_seed(1)
    net = torch.nn.Linear(1, 1)
    optimizer = capstan.torch.Optimizer(
        torch.optim.SGD(net.parameters(), lr=0.5), net, slots=2)
    x = torch.linspace(-1, 1, SAMPLES).reshape(-1, 1)
    data = torch.utils.data.TensorDataset(x, 3 * x - 1)
    for inputs, targets in capstan.torch.batches(data, 8, epochs=20):
        message = str(capstan.torch.current().samples).encode()
        assert call(message, timeout=30) == message
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(inputs), targets) / 2
        loss.backward()
        optimizer.step(loss)
    server.stop(None)
    maps = pathlib.Path("/proc/self/maps").read_text()
    pathlib.Path(sys.argv[1], "maps-" + os.environ["RANK"]).write_text(maps)


if __name__ == "__main__":
    main()
