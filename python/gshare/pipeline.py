"""The base class of functions."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, List, Optional, Union

from .errors import GraphError
from .graph import Graph, Node, Symbol
from .module import Module


class Registered:
    """A registered module. define calls it as it would call the component."""

    def __init__(self, pipeline: "Pipeline", name: str, module: Module, chance: int) -> None:
        self._pipeline, self.name, self.module, self._chance = pipeline, name, module, chance

    def __call__(self, *args: Any, **kwargs: Any) -> Symbol:
        return self._pipeline._call(Node(self.name, self.module, args, kwargs, self._chance))


class Pipeline:
    """A function as a graph of modules. Subclasses register modules with reg, in __init__ or in define, and call them in define, which
    thereby says what each of them reads. The parameters of define are the inputs of the function."""

    def __init__(self) -> None:
        self._registered: Dict[str, Registered] = {}
        self._calls: Optional[List[Node]] = None

    def reg(self, factory: Union[Module, Callable[..., Any]], *args: Any, name: str = "", chance: float = 1.0, **kwargs: Any) -> Registered:
        """Registers a component as a node of the graph. factory is a Module, or a class or function that returns the component when called
        with the further arguments.

        name is the name of the node; by default that of the class or function in lower case. chance is the fraction of requests for which the
        node has work to do, above 0 and up to 1. The planner multiplies the node's time by it when it computes rates, but not for latencies.
        """
        if not hasattr(self, "_registered"):
            raise GraphError(f"{type(self).__name__}.__init__ has to call super().__init__() before it registers modules")
        module = factory if isinstance(factory, Module) else Module(factory, *args, **kwargs)
        if module is factory and (args or kwargs):
            raise GraphError("a Module already has the arguments of its component")
        name = name or module.default_name
        if not name.isidentifier():
            raise GraphError(f"{name!r} is not a name of a node: letters, digits and _ are, with no digit first")
        if name in self._registered:
            raise GraphError(f"two nodes have the name {name}: pass name= to reg")
        if not 0 < chance <= 1:
            raise GraphError(f"the chance {chance} of node {name} is not above 0 and at most 1")
        per_mille = 0 if chance == 1 else max(1, round(chance * 1000))
        self._registered[name] = Registered(self, name, module, per_mille)
        return self._registered[name]

    def define(self, *inputs: Any, **_: Any) -> Any:
        """Calls the registered modules on the inputs, and returns the result: what a module has returned, or a list, tuple or dict of such
        values. It runs once, before any request, on symbols instead of values."""
        raise NotImplementedError(f"{type(self).__name__} has to define its graph: override define")

    def graph(self) -> Graph:
        """Calls define, and returns the graph. Raises GraphError if the graph cannot run."""
        if type(self).define is Pipeline.define:
            self.define()
        inputs = tuple(inspect.signature(self.define).parameters)
        for name, parameter in inspect.signature(self.define).parameters.items():
            if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD or parameter.default is not parameter.empty:
                raise GraphError(f"define's parameter {name} is not a plain one: each is an input of the function")
        if not inputs:
            raise GraphError("define has no parameters: each is an input of the function")
        self._calls = []
        try:
            output = self.define(*(Symbol(name) for name in inputs))
            graph = Graph(inputs, tuple(self._calls), output)
        finally:
            self._calls = None
        graph.check()
        return graph

    def _call(self, node: Node) -> Symbol:
        if self._calls is None:
            raise GraphError(f"node {node.name} is called outside define")
        if node.name in [n.name for n in self._calls]:
            raise GraphError(f"define calls node {node.name} twice: register a second one")
        if node.name in inspect.signature(self.define).parameters:
            raise GraphError(f"node {node.name} has the name of an input: pass name= to reg")
        self._calls.append(node)
        return Symbol(node.name)
