"""What define may do, and what flows between stages."""

from __future__ import annotations

import unittest
from typing import Any, Callable, Dict, List, Tuple

import gshare
from gshare.graph import HEAD, flows

from . import functions
from .functions import Add


def defined(define: Callable[..., Any]) -> gshare.Pipeline:
    function: gshare.Pipeline = type("Function", (gshare.Pipeline,), {"define": define})()
    return function


class TestGraph(unittest.TestCase):
    def test_diamond(self) -> None:
        graph = functions.Diamond().graph()
        self.assertEqual({n.name: graph.after(n) for n in graph.nodes}, {"first": [], "left": ["first"], "right": ["first"], "join": ["left", "right"]})
        self.assertEqual([n.chance for n in graph.nodes], [0, 0, 500, 0])
        self.assertEqual(graph.inputs, ("x",))

    def test_twice(self) -> None:
        function = functions.Diamond()
        self.assertEqual([n.name for n in function.graph().nodes], [n.name for n in function.graph().nodes])

    def test_refused(self) -> None:
        def twice(self: Any, x: Any) -> Any:
            add = self.reg(Add)
            return add(add(x))

        def apart(self: Any, x: Any) -> Any:
            a, b = self.reg(Add)(x)
            return a

        cases: Dict[str, Tuple[Callable[..., Any], str]] = {
            "no input": (lambda self: self.reg(Add)(1), "no parameters"),
            "default": (lambda self, x=1: self.reg(Add)(x), "not a plain one"),
            "many": (lambda self, *x: self.reg(Add)(x), "not a plain one"),
            "no node": (lambda self, x: x, "0 nodes"),
            "too many": (lambda self, x: [self.reg(Add, name=f"n{i}")(x) for i in range(13)], "13 nodes"),
            "twice": (twice, "calls node add twice"),
            "taken apart": (apart, r"write add\[0\]"),
            "decides": (lambda self, x: self.reg(Add)(x) if x else x, "decides by x"),
            "slice": (lambda self, x: self.reg(Add)(x[1:]), "taken by"),
            "unread": (lambda self, x: [self.reg(Add, name="a")(x), x][1], "nothing reads"),
            "constant": (lambda self, x: self.reg(Add)(1), "reads nothing"),
            "same name": (lambda self, x: self.reg(Add)(self.reg(Add)(x)), "two nodes have the name add"),
            "input's name": (lambda self, add: self.reg(Add)(add), "name of an input"),
            "bad name": (lambda self, x: self.reg(Add, name="a b")(x), "not a name"),
            "chance": (lambda self, x: self.reg(Add, chance=0)(x), "chance"),
        }
        for name, (define, text) in cases.items():
            with self.subTest(name), self.assertRaisesRegex(gshare.GraphError, text):
                defined(define).graph()
        with self.assertRaises(NotImplementedError):
            gshare.Pipeline().graph()
        with self.assertRaises(TypeError):
            gshare.Pipeline().reg(5)  # type: ignore[arg-type]

    def test_flows(self) -> None:
        graph = functions.Diamond().graph()
        self.assertEqual(
            [tuple(f) for f in flows(graph, [["first", "left"], ["right"], ["join"]])],
            [(HEAD, 0, ("x",)), (HEAD, 2, ("x",)), (0, 1, ("first",)), (0, 2, ("left",)), (1, 2, ("right",)), (2, HEAD, ("join",))],
        )

    def test_flows_refused(self) -> None:
        cases: Dict[str, Tuple[List[List[str]], str]] = {
            "missing": ([["first", "left", "right"]], "in no stage"),
            "unknown": ([["first", "left", "right", "join", "x2"]], "unknown"),
            "input": ([["first", "left", "right", "join", "x"]], "is an input"),
            "twice": ([["first", "left"], ["left", "right", "join"]], "in stages 0 and 1"),
            "empty": ([["first", "left", "right", "join"], []], "empty"),
            "cycle": ([["first", "join"], ["left", "right"]], "wait for each other"),
        }
        graph = functions.Diamond().graph()
        for name, (groups, text) in cases.items():
            with self.subTest(name), self.assertRaisesRegex(gshare.GraphError, text):
                flows(graph, groups)
