"""Classifies what is on images: removes noise, finds what is in front, and gives a class to that. The weights are random, but always the same."""

import gshare
import torch
from torch import nn


class Denoise(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3, 3, padding=1))

    def forward(self, image):
        return image - self.layers(image)


class Segment(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.layers = nn.Sequential(nn.Conv2d(3, 32, 5, padding=2), nn.ReLU(), nn.Conv2d(32, 1, 5, padding=2), nn.Sigmoid())

    def forward(self, image):
        return self.layers(image) > 0.5


class Classify(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 8, stride=8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 8 * 8, 10))

    def forward(self, image, front):
        return self.layers(image * front).softmax(1)


class Images(gshare.Pipeline):
    def __init__(self):
        super().__init__()
        self.denoise = self.reg(Denoise)
        self.segment = self.reg(Segment)
        self.classify = self.reg(Classify)

    def define(self, image):
        clean = self.denoise(image)
        return self.classify(clean, self.segment(clean))


def example(batch):
    return torch.linspace(0, 1, batch * 3 * 64 * 64).reshape(batch, 3, 64, 64)


def main():
    with gshare.run(Images, [["denoise"], ["segment", "classify"]]) as images:
        print([round(p, 4) for p in images(example(1))[0].tolist()])


if __name__ == "__main__":
    main()
