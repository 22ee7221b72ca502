"""Models of the zoo (common/model/zoo.cc) in PyTorch, and their training step as it is usual there.

Used by compare_training.py and tests/benchmark/train_cpu.py, which need PyTorch; importing this
module does not.
"""

_FULL_STEM_MIN = 64          # Images below have the CIFAR form of ResNets.


def _normed(nn, channels_in, channels, kernel, stride=1):
    return nn.Sequential(
        nn.Conv2d(channels_in, channels, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(channels))


def _block(nn, channels_in, filters, stride, wide):
    """A residual block: two 3x3 convolutions, or 1x1, 3x3 (with the stride: v1.5) and 1x1."""
    relu = lambda: nn.ReLU(inplace=True)  # noqa: E731
    channels = 4 * filters if wide else filters
    if wide:
        main = nn.Sequential(_normed(nn, channels_in, filters, 1), relu(),
                             _normed(nn, filters, filters, 3, stride), relu(),
                             _normed(nn, filters, channels, 1))
    else:
        main = nn.Sequential(_normed(nn, channels_in, filters, 3, stride), relu(),
                             _normed(nn, filters, channels, 3))
    projects = stride != 1 or channels_in != channels

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.main = main
            self.shortcut = (_normed(nn, channels_in, channels, 1, stride) if projects
                             else nn.Identity())
            self.relu = relu()

        def forward(self, x):
            return self.relu(self.main(x) + self.shortcut(x))

    return Block(), channels


def _resnet(nn, image, classes, blocks, wide=False, filters=64):
    height, width, channels_in = image
    full = filters == 64 and min(height, width) >= _FULL_STEM_MIN
    layers = [_normed(nn, channels_in, filters, 7 if full else 3, 2 if full else 1),
              nn.ReLU(inplace=True)]
    if full:
        layers.append(nn.MaxPool2d(3, 2, 1))
    channels = filters
    for stage, count in enumerate(blocks):
        for index in range(count):
            stride = 2 if stage > 0 and index == 0 else 1
            block, channels = _block(nn, channels, filters << stage, stride, wide)
            layers.append(block)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(channels, classes))


def _vgg16(nn, image, classes):
    height, width, channels = image
    layers = []
    for count, filters in ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)):
        for _ in range(count):
            layers += [nn.Conv2d(channels, filters, 3, padding=1), nn.ReLU(inplace=True)]
            channels = filters
        layers.append(nn.MaxPool2d(2))
    features = channels * (height // 32) * (width // 32)
    layers.append(nn.Flatten())
    for _ in range(2):
        layers += [nn.Linear(features, 4096), nn.ReLU(inplace=True), nn.Dropout(0.5)]
        features = 4096
    return nn.Sequential(*layers, nn.Linear(features, classes))


def _lenet(nn, image, classes):
    height, width, channels = image
    left = [((side - 4) // 2 - 4) // 2 for side in (height, width)]
    features = 50 * left[0] * left[1]
    return nn.Sequential(nn.Conv2d(channels, 20, 5), nn.MaxPool2d(2),
                         nn.Conv2d(20, 50, 5), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(features, 500), nn.ReLU(inplace=True),
                         nn.Linear(500, classes))


def model(nn, zoo, image, classes):
    """The model named `zoo` for images (height, width, channels)."""
    if zoo == "lenet":
        return _lenet(nn, image, classes)
    if zoo == "vgg16":
        return _vgg16(nn, image, classes)
    if zoo == "resnet18":
        return _resnet(nn, image, classes, (2, 2, 2, 2))
    if zoo == "resnet20":
        return _resnet(nn, image, classes, (3, 3, 3), filters=16)
    if zoo == "resnet50":
        return _resnet(nn, image, classes, (3, 4, 6, 3), wide=True)
    raise ValueError(f"no model {zoo}")


class Training:
    """Steps of training with momentum SGD, in bf16 by autocast where the case says so; its batches
    lie on the device from the start."""

    def __init__(self, torch, case, compiled=None, device="cuda", channels_last=True):
        self.torch, self.case, self.device = torch, case, device
        torch.manual_seed(1)
        network = model(torch.nn, case.zoo, case.image, case.classes)
        layout = torch.channels_last if channels_last else torch.contiguous_format
        network = network.to(device).to(memory_format=layout)
        self.parameters = sum(parameter.numel() for parameter in network.parameters())
        fused = {"fused": True} if device == "cuda" else {}
        self.optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, **fused)
        # Its mode, if it is to be compiled.
        self.network = torch.compile(network, mode=compiled) if compiled else network
        height, width, channels = case.image
        count = case.batches
        self.images = [torch.rand(case.batch, channels, height, width, device=device).to(
            memory_format=layout) for _ in range(count)]
        self.labels = [torch.randint(0, case.classes, (case.batch,), device=device)
                       for _ in range(count)]
        self.steps_done = 0
        self.loss = None

    def step(self):
        index = self.steps_done % len(self.images)
        half = self.case.compute == "BF16"
        with self.torch.autocast(self.device, dtype=self.torch.bfloat16, enabled=half):
            loss = self.torch.nn.functional.cross_entropy(self.network(self.images[index]),
                                                          self.labels[index])
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss = loss.detach()
        self.steps_done += 1
