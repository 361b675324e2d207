"""Loads the classes of functions, and calls their nodes."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from typing import Any, Callable, Iterator, Mapping, Type

from .errors import GraphError
from .graph import Node, resolve
from .pipeline import Pipeline

FROM_FILE = "__gshare__"  # prefix of the names of modules that load_class has loaded from a file
MAX_TEXT = 4096  # characters of an error message


def load_class(target: str) -> Type[Pipeline]:
    """Loads the class that module:Class or path.py:Class names. Raises GraphError if it is not a subclass of Pipeline."""
    where, _, name = target.rpartition(":")
    if not where or not name:
        raise GraphError(f"{target!r} is not module:Class or file.py:Class")
    if where.endswith(".py"):
        spec = importlib.util.spec_from_file_location(FROM_FILE + os.path.abspath(where), where)
        if spec is None or spec.loader is None:
            raise GraphError(f"{where} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(where)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or not issubclass(found, Pipeline):
        raise GraphError(f"{target} is not a subclass of gshare.Pipeline")
    return found


def device() -> str:
    """Returns "cuda" if a component has imported PyTorch and PyTorch sees a GPU, else "cpu"."""
    torch = sys.modules.get("torch")
    return "cuda" if torch is not None and torch.cuda.is_available() else "cpu"


def caller(before: Callable[[Node], None] = lambda node: None) -> Callable[[Node, Mapping[str, Any]], Any]:
    """Returns a function with which Graph.run can run nodes. It loads evicted modules, and raises NodeFailed."""

    def call(node: Node, values: Mapping[str, Any]) -> Any:
        before(node)
        with failing(node.name):
            node.module.load(device())
            return node.module.call(*resolve(node.args, values), **resolve(node.kwargs, values))

    return call


@contextlib.contextmanager
def failing(node: str) -> Iterator[None]:
    """Turns any exception of a node's own code into NodeFailed, which becomes the result of the request."""
    try:
        yield
    except Exception as e:
        raise NodeFailed(node, type(e).__name__, str(e)[:MAX_TEXT]) from e


class NodeFailed(Exception):
    """A node raised an exception. args are the node's name, and the exception's type and text."""


class Late(Exception):
    """The deadline of a request has passed."""
