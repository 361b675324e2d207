"""Functions for the tests, of plain Python."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Dict, List

import gshare


class Add:
    def __init__(self, n: int = 1) -> None:
        self.n = n

    def __call__(self, x: Any) -> Any:
        return x + self.n


class Sleep:
    """Sleeps for as many seconds as the request says."""

    def __call__(self, request: Dict[str, Any]) -> Dict[str, Any]:
        time.sleep(request.get("sleep", 0))
        return request


class Fault:
    """Does to its process what the request says."""

    def __call__(self, request: Dict[str, Any]) -> Dict[str, Any]:
        fault = request.get("fault")
        if fault == "raise":
            raise ValueError("no such request")
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "exit":
            os._exit(7)
        if fault == "large":
            return {"large": bytes(request["bytes"])}
        if fault == "unknown":
            return {"unknown": object()}
        return request


class Where:
    def __init__(self) -> None:
        self.evicted = 0

    def __call__(self, *seen: Any) -> Dict[str, Any]:
        return {"pid": os.getpid(), "device": os.environ.get("CUDA_VISIBLE_DEVICES"), "seen": seen}


class Unloadable:
    def __init__(self) -> None:
        raise RuntimeError("no weights")


class Counting(gshare.Module):
    """Counts its loads and evictions."""

    def __init__(self) -> None:
        super().__init__(lambda: lambda x: [x, self.log], )
        self.log: List[str] = []

    def load(self, device: str) -> None:
        if not self._device:
            self.log.append("load")
        super().load(device)

    def evict(self) -> None:
        self.log.append("evict")
        super().evict()


class Chain(gshare.Pipeline):
    """(x + 1) + 10 + 100"""

    def define(self, x: gshare.Symbol) -> gshare.Symbol:
        first, second, third = self.reg(Add, name="first"), self.reg(Add, 10, name="second"), self.reg(Add, n=100, name="third")
        return third(second(first(x)))


class Join:
    def __call__(self, left: int, right: int, x: int) -> List[int]:
        return [left, right, x]


class Diamond(gshare.Pipeline):
    """Two branches and an edge past them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = self.reg(Add, name="first")
        self.left = self.reg(Add, 10, name="left")
        self.right = self.reg(Add, 20, name="right", chance=0.5)
        self.join = self.reg(Join)

    def define(self, x: gshare.Symbol) -> Any:
        first = self.first(x)
        join = self.join(self.left(first), right=self.right(first), x=x)
        return {"join": join, "left": join[0], "input": x}


class Slow(gshare.Pipeline):
    def define(self, request: gshare.Symbol) -> gshare.Symbol:
        return self.reg(Sleep, name="second")(self.reg(Sleep, name="first")(request))


class Faulty(gshare.Pipeline):
    def define(self, request: gshare.Symbol) -> gshare.Symbol:
        return self.reg(Sleep, name="last")(self.reg(Fault)(self.reg(Sleep, name="first")(request)))


class Places(gshare.Pipeline):
    def define(self, x: gshare.Symbol) -> gshare.Symbol:
        return self.reg(Where, name="b")(self.reg(Where, name="a")(x))


class Broken(gshare.Pipeline):
    def define(self, x: gshare.Symbol) -> gshare.Symbol:
        return self.reg(Unloadable)(self.reg(Add)(x))


class Evicted(gshare.Pipeline):
    def define(self, x: gshare.Symbol) -> gshare.Symbol:
        return self.reg(Counting(), name="count")(x)


class Repeat:
    def __call__(self, text: Any, count: Any) -> Any:
        word = text[0]
        if word == "raise":
            raise ValueError("no such text")
        if word == "sleep":
            print("begun", flush=True)
            time.sleep(0.3)
        if word == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return None if word == "none" else [word] * int(count[0])


class Same:
    def __call__(self, x: Any) -> Any:
        return x


class Served(gshare.Pipeline):
    def define(self, text: gshare.Symbol, count: gshare.Symbol) -> gshare.Symbol:
        return self.reg(Same)(self.reg(Repeat)(text, count))


class Item(gshare.Pipeline):
    """Takes items that a request may not have."""

    def define(self, request: gshare.Symbol) -> gshare.Symbol:
        return self.reg(Same, name="second")(self.reg(Same, name="first")(request)["a"])["b"]
