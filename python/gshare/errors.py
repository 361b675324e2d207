"""What can go wrong, as exceptions. All are subclasses of Error."""

from __future__ import annotations


class Error(Exception):
    """Any error of this package."""


class GraphError(Error):
    """define, a list of stages or a build file does not describe a graph that can run."""


class NodeError(Error):
    """A node has raised an exception, perhaps in another process."""

    def __init__(self, node: str, kind: str, text: str) -> None:
        super().__init__(f"node {node}: {kind}: {text}" if text else f"node {node}: {kind}")
        self.node, self.kind, self.text = node, kind, text


class DeadlineExceeded(Error):
    """The request was not complete at its deadline, or was not begun since there was no room for it."""


class StageLost(Error):
    """The process of a stage has ended or was killed. The requests that were in the pipeline are lost, and it accepts no more."""


class Closed(Error):
    """The pipeline was closed."""


class NotTransferable(Error):
    """A value cannot be passed between stages: its type is not known, or it is larger than a slot."""
