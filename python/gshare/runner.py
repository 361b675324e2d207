"""The interface of running functions, and functions that run whole in this process."""

from __future__ import annotations

import threading
import time
from typing import Any, Dict, Optional, Sequence, TypeVar

from .call import Late, NodeFailed, caller, device, failing
from .errors import Closed, DeadlineExceeded, NodeError
from .graph import Graph, resolve


Self = TypeVar("Self", bound="Runner")


class Runner:
    """A running function. It may be called from several threads."""

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __call__(self, *inputs: Any, timeout: Optional[float] = None) -> Any:
        """Runs a request and returns its result. Raises NodeError, NotTransferable, StageLost, Closed, or DeadlineExceeded after timeout seconds."""
        raise NotImplementedError

    def evict(self) -> None:
        """Moves the components from the device to host memory. The next request moves them back."""
        raise NotImplementedError

    def close(self) -> None:
        """Completes the requests that were accepted, and ends all processes. Later calls raise Closed."""
        raise NotImplementedError


class Whole(Runner):
    """A function that runs whole in this process, one request at a time."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._lock, self._closed = graph, threading.Lock(), False
        for node in graph.nodes:
            node.module.load(device())
            node.module.load(device())

    def __call__(self, *inputs: Any, timeout: Optional[float] = None) -> Any:
        deadline = monotonic_deadline(timeout)
        values = named(self._graph, inputs)
        if not self._lock.acquire(timeout=-1 if timeout is None else max(0, timeout)):
            raise DeadlineExceeded("other requests ran until the deadline")
        try:
            if self._closed:
                raise Closed("the function was closed")

            def check(node: Any) -> None:
                if deadline and time.monotonic_ns() >= deadline:
                    raise Late(node.name)

            self._graph.run([n.name for n in self._graph.nodes], values, caller(check))
            with failing("output"):
                return resolve(self._graph.output, values)
        except Late as e:
            raise DeadlineExceeded(f"the deadline passed before node {e}") from None
        except NodeFailed as e:
            raise NodeError(*e.args) from e.__cause__
        finally:
            self._lock.release()

    def evict(self) -> None:
        with self._lock:
            for node in self._graph.nodes:
                node.module.evict()

    def close(self) -> None:
        with self._lock:
            self._closed = True


def monotonic_deadline(timeout: Optional[float]) -> int:
    """Converts a timeout in seconds to a deadline on the clock of time.monotonic_ns; 0: none."""
    return 0 if timeout is None else max(1, time.monotonic_ns() + int(timeout * 1e9))


def named(graph: Graph, inputs: Sequence[Any]) -> Dict[str, Any]:
    """Returns the inputs of a request by name."""
    if len(inputs) != len(graph.inputs):
        raise TypeError(f"{len(inputs)} inputs: the function takes {', '.join(graph.inputs)}")
    return dict(zip(graph.inputs, inputs))
