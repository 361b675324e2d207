"""The exceptions of this package. All are subclasses of Error."""

from __future__ import annotations


class Error(Exception):
    """Any error of this package."""


class GraphError(Error):
    """define, a list of stages or a build file does not describe a graph that can run."""


class NodeError(Error):
    """A node raised an exception, possibly in another process."""

    def __init__(self, node: str, kind: str, text: str) -> None:
        super().__init__(f"node {node}: {kind}: {text}" if text else f"node {node}: {kind}")
        self.node, self.kind, self.text = node, kind, text


class DeadlineExceeded(Error):
    """The request was not complete at its deadline, or there was no room to begin it before."""


class StageLost(Error):
    """The process of a stage ended or was killed. Requests in the pipeline are lost, and it accepts no more."""


class Closed(Error):
    """The pipeline was closed."""


class NotTransferable(Error):
    """A value cannot be passed between stages: its type is unknown, or it is larger than a slot."""
