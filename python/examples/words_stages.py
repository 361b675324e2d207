"""Finds the words that say most about a text."""

import math
import re

import gshare


class Split:
    def __call__(self, text):
        return re.findall(r"\w+", text.lower())


class Weigh:
    def __init__(self):
        self.common = {"the": 0.1, "a": 0.1, "of": 0.1, "and": 0.2, "is": 0.2, "on": 0.2}

    def __call__(self, words):
        return {w: self.common.get(w, 1.0) * math.log1p(words.count(w)) for w in words}


class Choose:
    def __call__(self, words, weights):
        return sorted(weights, key=lambda w: (-weights[w], words.index(w)))[:3]


class Words(gshare.Pipeline):
    def __init__(self):
        super().__init__()
        self.split = self.reg(Split)
        self.weigh = self.reg(Weigh)
        self.choose = self.reg(Choose)

    def define(self, text):
        words = self.split(text)
        return self.choose(words, self.weigh(words))


def example(batch):
    return "The share of a GPU is a slice of the GPU, and a share of the time. " * batch


def main():
    with gshare.run(Words, [["split"], ["weigh", "choose"]]) as words:
        print(words(example(1)))


if __name__ == "__main__":
    main()
