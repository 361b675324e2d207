"""A component of a pipeline, of any framework: created in the process that runs it, called, and moved off its device and back."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Callable, Optional


class Module:
    """A factory of a component, and the component once it is loaded.

    The factory is a class or function that returns something callable, such as a torch.nn.Module. It is called only in processes that run
    the component, so that each has only the weights of its own stage. Override load, evict or memory for frameworks other than PyTorch.
    """

    def __init__(self, factory: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        if not callable(factory):
            raise TypeError(f"{factory!r} cannot make a component: pass its class, or a function that returns it")
        self._factory, self._args, self._kwargs = factory, args, kwargs
        self._component: Optional[Any] = None
        self._device = ""  # where the component is; "" before load and after evict

    @property
    def default_name(self) -> str:
        """The name of the node if the module is registered without one."""
        return str(getattr(self._factory, "__name__", type(self._factory).__name__)).lower()

    def load(self, device: str) -> None:
        """Creates the component if it does not exist yet, and moves it to the device ("cpu", "cuda")."""
        if self._component is None:
            self._component = self._factory(*self._args, **self._kwargs)
            if not callable(self._component):
                raise TypeError(f"{self.default_name} returned a {type(self._component).__name__}, which cannot be called")
        if _is_torch(self._component) and self._device != device:
            self._component.eval().to(device)
        self._device = device

    def evict(self) -> None:
        """Moves the component from the device to host memory. load moves it back."""
        if self._component is None or not self._device:
            return
        torch = sys.modules.get("torch")
        if torch is not None and _is_torch(self._component) and self._device != "cpu":
            self._component.to("cpu")
            torch.cuda.empty_cache()
        self._device = ""

    def memory(self) -> int:
        """Returns how many bytes the weights of the loaded component take, or 0 if that is unknown."""
        if not _is_torch(self._component):
            return int(getattr(self._component, "nbytes", 0))
        assert self._component is not None
        tensors = [*self._component.parameters(), *self._component.buffers()]
        return sum(t.numel() * t.element_size() for t in tensors)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the loaded component with the arguments, whose tensors are moved to its device first."""
        assert self._component is not None, "load comes first"
        torch = sys.modules.get("torch")
        if torch is None:
            return self._component(*args, **kwargs)
        with torch.inference_mode() if _is_torch(self._component) else contextlib.nullcontext():
            return self._component(*_on(args, self._device), **_on(kwargs, self._device))


def _is_torch(component: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(component, torch.nn.Module)


def _on(value: Any, device: str) -> Any:
    torch = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        return value.to(device or "cpu")
    if type(value) in (list, tuple):
        return type(value)(_on(v, device) for v in value)
    if type(value) is dict:
        return {k: _on(v, device) for k, v in value.items()}
    return value
