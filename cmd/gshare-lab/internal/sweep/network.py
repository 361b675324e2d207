"""A residual network with random weights, of the size of ResNet-18 on small images. It answers each line that it reads once it has run a batch of that
size."""
import os
import sys

import torch
from torch import nn

SIZE = 128  # pixels of a side


class Block(nn.Module):
    def __init__(self, before, channels, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, channels, 3, stride, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels))
        self.skip = nn.Identity()
        if stride > 1 or before != channels:
            self.skip = nn.Sequential(nn.Conv2d(before, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        return torch.relu(self.body(x) + self.skip(x))


def network():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for channels in (64, 128, 256, 512):
        layers += [Block(before, channels, 1 if channels == before else 2), Block(channels, channels, 1)]
        before = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000)).eval()


torch.manual_seed(1)
torch.set_num_threads(len(os.sched_getaffinity(0)))
with torch.inference_mode():
    model, inputs = network(), {}
    print("ready", flush=True)
    for line in sys.stdin:
        batch = int(line)
        if batch not in inputs:
            inputs[batch] = torch.rand(batch, 3, SIZE, SIZE)
        model(inputs[batch])
        print(batch, flush=True)
