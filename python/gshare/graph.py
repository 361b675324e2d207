"""The graph of a function: its nodes, and what each of them reads. Pipeline.graph obtains it by calling define once."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, NoReturn, Sequence, Set, Tuple

from .errors import GraphError
from .module import Module

MAX_NODES = 12  # the maximum for which the planner can cut stages


class Symbol:
    """The placeholder of a value of a request in define: an input, the result of a node, or an item of either."""

    def __init__(self, source: str, path: Tuple[Any, ...] = ()) -> None:
        self.source, self.path = source, path

    def __getitem__(self, key: Any) -> "Symbol":
        if not isinstance(key, (int, str)):
            raise GraphError(f"an item of {self.source} is taken by {key!r}: in define, items are taken by a number or a name")
        return Symbol(self.source, self.path + (key,))

    def __iter__(self) -> NoReturn:
        raise GraphError(f"define takes {self.source} apart: write {self.source}[0], {self.source}[1] and so on, as its length is not known yet")

    def __bool__(self) -> NoReturn:
        raise GraphError(f"define decides by {self.source}: it runs before any request, so decide in a node")

    def __repr__(self) -> str:
        return self.source + "".join(f"[{p!r}]" for p in self.path)


class Node(NamedTuple):
    """A registered module with its arguments: values that may contain symbols, also inside lists, tuples and dicts."""

    name: str
    module: Module
    args: Tuple[Any, ...]
    kwargs: Dict[str, Any]
    chance: int  # for how many requests it has work, in per mille; 0: for all

    def reads(self) -> List[str]:
        """Returns the names of the inputs and nodes that the node reads, each once."""
        return sources((self.args, self.kwargs))


class Graph(NamedTuple):
    """The nodes, in an order in which each comes after all nodes that it reads."""

    inputs: Tuple[str, ...]
    nodes: Tuple[Node, ...]
    output: Any  # may contain symbols, like the arguments of a node

    def after(self, node: Node) -> List[str]:
        """Returns the names of the nodes that a node reads."""
        return [name for name in node.reads() if name not in self.inputs]

    def run(self, names: Iterable[str], values: Dict[str, Any], call: Any) -> None:
        """Runs the named nodes. values has the values of a request by the names of inputs and nodes; what nodes return is added to it.
        call(node, values) runs one node."""
        wanted = set(names)
        for node in self.nodes:
            if node.name in wanted:
                values[node.name] = call(node, values)

    def check(self) -> None:
        """Raises GraphError if there are no nodes or too many, if a node reads nothing of the request, or if nothing reads a node's result."""
        if not 1 <= len(self.nodes) <= MAX_NODES:
            raise GraphError(f"define calls {len(self.nodes)} nodes: want 1 to {MAX_NODES}")
        read = set(sources(self.output))
        for node in self.nodes:
            if not node.reads():
                raise GraphError(f"node {node.name} reads nothing of the request: do its work in the node that reads its result")
            read.update(node.reads())
        for name in [n.name for n in self.nodes]:
            if name not in read:
                raise GraphError(f"nothing reads what node {name} returns: return it, or leave it out")


class Flow(NamedTuple):
    """The values that one group of nodes sends to another. HEAD, the caller, sends the inputs and receives the output."""

    sender: int
    receiver: int
    values: Tuple[str, ...]


HEAD = -1


def flows(graph: Graph, groups: Sequence[Sequence[str]]) -> List[Flow]:
    """Returns which values flow between groups of nodes, each of which runs in a process of its own. Raises GraphError if a node is in no group
    or in two, or if groups wait for each other."""
    group: Dict[str, int] = {name: HEAD for name in graph.inputs}
    for i, names in enumerate(groups):
        for name in names:
            if name in group:
                raise GraphError(f"{name} is an input" if group[name] == HEAD else f"node {name} is in stages {group[name]} and {i}")
            group[name] = i
    unknown = sorted(set(group) - set(graph.inputs) - {n.name for n in graph.nodes})
    missing = [n.name for n in graph.nodes if n.name not in group]
    if unknown or missing or not all(groups):
        raise GraphError(f"unknown nodes in stages: {unknown}, nodes in no stage: {missing}, empty stages: {[i for i, g in enumerate(groups) if not g]}")
    values: Dict[Tuple[int, int], Set[str]] = {}
    for node in graph.nodes:
        for source in node.reads():
            if group[source] != group[node.name]:
                values.setdefault((group[source], group[node.name]), set()).add(source)
    for source in sources(graph.output):
        if group[source] != HEAD:
            values.setdefault((group[source], HEAD), set()).add(source)
    depths(len(groups), values)
    return [Flow(s, r, tuple(sorted(names))) for (s, r), names in sorted(values.items())]


def depths(groups: int, edges: Iterable[Tuple[int, int]]) -> List[int]:
    """Returns, for each group, the largest number of groups that a request passes before it. Raises GraphError if groups wait for each other."""
    before: Dict[int, Set[int]] = {i: set() for i in range(groups)}
    for sender, receiver in edges:
        if sender != HEAD and receiver != HEAD:
            before[receiver].add(sender)
    depth: Dict[int, int] = {}
    while len(depth) < groups:
        ready = [i for i in before if i not in depth and all(b in depth for b in before[i])]
        if not ready:
            raise GraphError(f"stages {sorted(set(before) - set(depth))} wait for each other: cut the nodes in the order of define")
        for i in ready:
            depth[i] = max((depth[b] + 1 for b in before[i]), default=0)
    return [depth[i] for i in range(groups)]


def sources(value: Any) -> List[str]:
    """Returns the names of the inputs and nodes whose symbols a value contains, each once."""
    found: Dict[str, None] = {}

    def visit(v: Any) -> None:
        if isinstance(v, Symbol):
            found[v.source] = None
        elif isinstance(v, (list, tuple)):
            for item in v:
                visit(item)
        elif isinstance(v, dict):
            for item in v.values():
                visit(item)

    visit(value)
    return list(found)


def resolve(value: Any, values: Mapping[str, Any]) -> Any:
    """Returns a value with each symbol replaced by the value that it stands for."""
    if isinstance(value, Symbol):
        found = values[value.source]
        for key in value.path:
            found = found[key]
        return found
    if type(value) in (list, tuple):
        return type(value)(resolve(v, values) for v in value)
    if type(value) is dict:
        return {k: resolve(v, values) for k, v in value.items()}
    return value
