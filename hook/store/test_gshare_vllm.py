"""Tests of gshare_vllm with stand-ins for PyTorch and vLLM, which behave, and refuse, as theirs do as far as the loader uses them."""

import abc
import ctypes
import importlib.util
import inspect
import json
import math
import os
import struct
import sys
import tempfile
import types
import unittest
from unittest import mock

import gshare_safetensors
import gshare_store
import gshare_vllm
from gshare_vllm import UnsupportedError


def file_of(*tensors):
    """Returns a safetensors file with tensors: their names, types, shapes and bytes."""
    header, data = {}, b""
    for name, dtype, shape, content in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def fake_torch():
    """Returns a module that is like PyTorch: with tensors of addresses, modes, and modules. Its attribute allocated is how many elements have memory."""
    torch = types.ModuleType("torch")
    torch.allocated, torch.modes, torch.devices = 0, [], []
    torch.bfloat16, torch.float32, torch.int16 = "bfloat16", "float32", "int16"
    torch.copies = False  # whether as_tensor has to copy

    class device:
        def __init__(self, text):
            self.type, _, self.index = str(text).partition(":")

        def __str__(self):
            return self.type

        def __enter__(self):
            torch.devices.append(self)

        def __exit__(self, *_):
            torch.devices.pop()

    class Tensor:
        __slots__ = ("shape", "dtype", "device", "address", "__dict__")  # the first ones are not among the attributes that a program has set

        def __init__(self, shape, dtype, device, address=None):
            self.shape, self.dtype, self.device = tuple(shape), dtype, device
            self.address = address
            if address is None and device.type != "meta":
                size = 1
                for n in self.shape:
                    size *= n
                torch.allocated += size
                self.address = -torch.allocated  # of memory that is its own

        def data_ptr(self):
            return self.address or 0

        def view(self, dtype):
            return Tensor(self.shape, dtype, self.device, self.address)

        def clone(self):
            return Tensor(self.shape, self.dtype, self.device)

        def fill_(self, _):
            if self.data_ptr() > 0:
                raise RuntimeError("an illegal memory access was encountered")

    class Parameter(Tensor):
        __slots__ = ()

        def __init__(self, tensor, requires_grad=True):
            super().__init__(tensor.shape, tensor.dtype, tensor.device, tensor.address)

    def overridable(function):
        def call(*args, **kwargs):
            if not torch.modes:
                return function(*args, **kwargs)
            mode = torch.modes.pop()  # which does not see its own calls
            try:
                return mode.__torch_function__(call, (), args, kwargs)
            finally:
                torch.modes.append(mode)
        return call

    def make(*shape, dtype="float32", device=None):
        return Tensor(shape, dtype, device if isinstance(device, torch.device) else torch.device(device or torch.devices[-1]))

    torch.empty, torch.ones, torch.zeros = overridable(make), overridable(make), overridable(make)

    def as_tensor(array, device):
        interface = array.__cuda_array_interface__
        address, read_only = interface["data"]
        if read_only:
            raise TypeError("the read only flag is not supported")
        return Tensor(interface["shape"], {"<i2": "int16", "<f4": "float32"}[interface["typestr"]], device, None if torch.copies else address)

    torch.as_tensor = as_tensor

    class Module:
        def __init__(self):
            self._parameters, self._buffers, self._modules = {}, {}, {}

        def modules(self):
            yield self
            for m in self._modules.values():
                yield from m.modules()

        def named_modules(self, memo=None, prefix="", remove_duplicate=True):
            yield prefix, self
            for name, m in self._modules.items():
                yield from m.named_modules(memo, prefix + "." * bool(prefix) + name, remove_duplicate)

        def eval(self):
            self.evaluates = True
            return self

    class TorchFunctionMode:
        def __enter__(self):
            torch.modes.append(self)

        def __exit__(self, *_):
            torch.modes.pop()

    torch.device, torch.Tensor = device, Tensor
    torch.nn = types.SimpleNamespace(Module=Module, Parameter=Parameter)
    torch.overrides = types.ModuleType("torch.overrides")
    torch.overrides.TorchFunctionMode = TorchFunctionMode
    return torch


def model_class(torch):
    """Returns the class of a model as vLLM's are: layers without values, a table that is computed, and an output layer tied to the embedding."""
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            embed, norm, head, rotary, attention = (torch.nn.Module() for _ in range(5))
            embed._parameters["weight"] = torch.nn.Parameter(torch.empty(4, 2, dtype="bfloat16"))
            embed._parameters["weight"].weight_loader = "vLLM's"
            norm._parameters["weight"] = torch.nn.Parameter(torch.ones(2))
            norm._parameters["bias"] = None
            head._parameters["weight"] = embed._parameters["weight"]
            rotary._buffers["cos_sin_cache"] = torch.ones(8)
            attention._buffers["_k_scale"] = torch.ones()
            self._modules.update(embed=embed, norm=norm, head=head, rotary=rotary, attention=attention)
    return Model


def fake_vllm(torch, model, process):
    """Returns the modules of vLLM that a loader uses, as of its source in 2026."""
    loaders = {}

    class BaseModelLoader(abc.ABC):
        def __init__(self, load_config):
            self.load_config = load_config

        @abc.abstractmethod
        def download_model(self, model_config):
            raise NotImplementedError

        @abc.abstractmethod
        def load_weights(self, model, model_config):
            raise NotImplementedError

    def register_model_loader(load_format):
        def wrapper(cls):
            if not issubclass(cls, BaseModelLoader):
                raise ValueError("The model loader must be a subclass of `BaseModelLoader`.")
            loaders[load_format] = cls
            return cls
        return wrapper

    class set_default_torch_dtype:
        def __init__(self, dtype):
            assert isinstance(dtype, str)

        def __enter__(self):
            pass

        def __exit__(self, *_):
            pass

    def initialize_model(vllm_config, *, prefix="", model_class=None, model_config=None):
        return model()

    def process_weights_after_loading(model, model_config, target_device):
        process(model)

    modules = {name: types.ModuleType(name) for name in (
        "vllm", "vllm.model_executor", "vllm.model_executor.model_loader", "vllm.model_executor.model_loader.base_loader",
        "vllm.model_executor.model_loader.utils", "vllm.utils", "vllm.utils.torch_utils")}
    modules["vllm.model_executor.model_loader"].register_model_loader = register_model_loader
    modules["vllm.model_executor.model_loader.base_loader"].BaseModelLoader = BaseModelLoader
    utils = modules["vllm.model_executor.model_loader.utils"]
    utils.initialize_model, utils.process_weights_after_loading = initialize_model, process_weights_after_loading
    modules["vllm.utils.torch_utils"].set_default_torch_dtype = set_default_torch_dtype
    return modules, loaders


class FakeStore:
    """A store that has all weights, at an address."""

    def load(self, digest, size, fill):
        self.digest = digest
        return gshare_store.Weights(None, 1 << 40, size, size)


EMBED = ("embed.weight", "BF16", [4, 2], b"e" * 16)
NORM = ("norm.weight", "F32", [2], b"n" * 8)


class TestLoader(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.torch = folder.name, fake_torch()
        self.model, self.process = model_class(self.torch), lambda model: None
        self.addCleanup(gshare_vllm._held.clear)

    def write(self, *tensors, name="model-rank-0-part-0.safetensors"):
        """Writes a part of a model, and returns its digest as pods declare it."""
        with open(os.path.join(self.folder, name), "wb") as file:
            file.write(file_of(*tensors))
        return gshare_safetensors.declaration(os.path.join(self.folder, name))

    def load(self, digests, extra=None, **config):
        """Loads the model as vLLM does."""
        modules, loaders = fake_vllm(self.torch, self.model, lambda model: self.process(model))
        modules.update({"torch": self.torch, "torch.overrides": self.torch.overrides})
        with mock.patch.dict(sys.modules, modules), mock.patch.object(gshare_store, "Store", FakeStore):
            gshare_vllm.register()
            load_config = types.SimpleNamespace(load_format="gshare", device=None, model_loader_extra_config=extra if extra is not None else {"digests": digests})
            loader = loaders["gshare"](load_config)  # get_model_loader
            model_config = types.SimpleNamespace(model=self.folder, dtype="bfloat16", quantization=config.get("quantization"), enable_sleep_mode=config.get("sleep", False))
            vllm_config = types.SimpleNamespace(
                device_config=types.SimpleNamespace(device="cuda"), parallel_config=types.SimpleNamespace(world_size=config.get("world_size", 1)),
                lora_config=config.get("lora"))
            loader.download_model(model_config)
            model = loader.load_model(vllm_config=vllm_config, model_config=model_config, prefix="")
            with self.assertRaises(UnsupportedError):
                loader.load_weights(model, model_config)
            return model

    def refused(self, text, digests, extra=None, **config):
        with self.assertRaisesRegex(UnsupportedError, text):
            self.load(digests, extra, **config)

    def test_no_copy(self):
        """The tensors are those of the store, and only what is no weight has memory of its own."""
        model = self.load([self.write(EMBED, NORM)])
        tensors = gshare_vllm.tensors_of(model)
        for own in ("rotary.cos_sin_cache", "attention._k_scale"):
            self.assertLess(tensors.pop(own).data_ptr(), 0)
        self.assertEqual({name: t.data_ptr() for name, t in tensors.items()}, {"embed.weight": 1 << 40, "head.weight": 1 << 40, "norm.weight": (1 << 40) + 16})
        self.assertIs(tensors["head.weight"], tensors["embed.weight"])
        self.assertEqual((tensors["embed.weight"].dtype, tensors["embed.weight"].weight_loader), ("bfloat16", "vLLM's"))
        self.assertEqual(self.torch.allocated, 1 + 2 + 8 + 1)  # to create the context, the norm's ones, the table, and the scale
        self.assertTrue(model.evaluates)

    def test_parts(self):
        digests = [self.write(EMBED), self.write(NORM, name="model-rank-0-part-1.safetensors")]
        self.assertEqual(len(gshare_vllm.tensors_of(self.load(digests))), 5)
        self.assertEqual(gshare_vllm._held[0].digest, gshare_vllm.parse_digest(digests[1]))
        self.refused("1 digests of 2 files", digests[:1])
        os.remove(os.path.join(self.folder, "model-rank-0-part-0.safetensors"))
        self.refused("all parts", digests)

    def test_refused(self):
        digest = self.write(EMBED, NORM)
        for text, config in {"2 GPUs": {"world_size": 2}, "quantization fp8": {"quantization": "fp8"}, "sleep": {"sleep": True}, "LoRA": {"lora": object()}}.items():
            self.refused(text, [digest], **config)
        self.refused("digests", None, extra={"digests": [digest], "more": 1})
        self.refused("digests", None, extra={})
        self.refused("no digest", ["sha256:0"])
        self.refused("no digest", [7])

    def test_other_models(self):
        self.refused("the files have no embed.weight, head.weight", [self.write(NORM)])
        self.refused("the model has no other", [self.write(EMBED, NORM, ("other", "F32", [1], b"four"))])
        self.refused(r"\(2, 4\)", [self.write(("embed.weight", "BF16", [2, 4], b"e" * 16), NORM)])
        self.refused("float32", [self.write(("embed.weight", "F32", [4, 2], b"e" * 32), NORM)])
        self.write(EMBED, NORM)
        self.refused("several GPUs", [self.write(EMBED, name="model-rank-1-part-0.safetensors")] * 2)

    def test_copies(self):
        """Where PyTorch or vLLM makes a copy, the process would have the weights alone, beside those of the store."""
        digest = self.write(EMBED, NORM)

        def process(model):
            embed = model._modules["embed"]._parameters
            embed["weight"] = self.torch.nn.Parameter(self.torch.zeros(4, 2, dtype="bfloat16", device="cuda"))

        self.process = process
        self.refused("copies of embed.weight", [digest])
        self.process, self.torch.copies = lambda model: None, True
        self.refused("PyTorch has copied embed.weight", [digest])

    def test_buffers(self):
        """vLLM writes the scales of its attention layers when it has loaded a model, and save_sharded_state saves them as it does weights."""
        self.process = lambda model: model._modules["attention"]._buffers["_k_scale"].fill_(1)
        model = self.load([self.write(EMBED, NORM, ("attention._k_scale", "F32", [], b"k" * 4))])
        self.assertLess(gshare_vllm.tensors_of(model)["attention._k_scale"].data_ptr(), 0)

    def test_entry_point(self):
        """vLLM calls what pyproject.toml names, without arguments."""
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "pyproject.toml")) as file:
            text = file.read()
        self.assertIn('[project.entry-points."vllm.general_plugins"]\ngshare = "gshare_vllm:register"\n', text)
        self.assertEqual(len(inspect.signature(gshare_vllm.register).parameters), 0)


@unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
class TestPyTorch(unittest.TestCase):
    def test_no_copy(self):
        """With PyTorch itself, in memory of the host in place of the device's."""
        import torch

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.norm, self.head, self.rotary = (torch.nn.Module() for _ in range(4))
                self.embed.weight = torch.nn.Parameter(torch.empty(4, 2, dtype=torch.bfloat16), requires_grad=False)
                self.embed.weight.weight_loader = "vLLM's"
                self.norm.weight = torch.nn.Parameter(torch.ones(2))
                self.head.weight = self.embed.weight
                self.rotary.register_buffer("cache", torch.arange(8).float().cos(), persistent=False)

        def as_tensor(array, device):  # PyTorch takes the interface of arrays on a GPU only
            interface = array.__cuda_array_interface__
            elements, (address, _) = interface["shape"], interface["data"]
            dtype = {"<i2": torch.int16, "<f4": torch.float32}[interface["typestr"]]
            memory = (ctypes.c_char * (math.prod(elements) * int(interface["typestr"][2:]))).from_address(address)
            return torch.frombuffer(memory, dtype=dtype).reshape(elements)

        memory = ctypes.create_string_buffer(struct.pack("<8H2f", *[0x3f80] * 8, 4, 4), 24)
        weights = gshare_store.Weights(None, ctypes.addressof(memory), 24, 24)
        with gshare_vllm.without_memory(torch):
            model = Model()
        self.assertEqual([t.device.type for t in (model.embed.weight, model.norm.weight, model.rotary.cache)], ["meta", "cpu", "cpu"])
        arrays = {"embed.weight": weights.array((4, 2), "<i2"), "norm.weight": weights.array((2,), "<f4", 16)}
        with mock.patch.object(torch, "as_tensor", as_tensor):
            addresses = gshare_vllm.place(torch, model, arrays, {"embed.weight": "BF16", "norm.weight": "F32"}, torch.device("cpu"))
        gshare_vllm.check_placed(model, addresses)
        self.assertIs(model.head.weight, model.embed.weight)
        self.assertEqual((model.embed.weight.weight_loader, model.embed.weight.requires_grad), ("vLLM's", False))
        ones = torch.ones(1, 2, dtype=torch.bfloat16)
        self.assertEqual(torch.nn.functional.linear(ones, model.head.weight).tolist(), [[2, 2, 2, 2]])
        memory[0:2] = struct.pack("<H", 0x4000)
        self.assertEqual((model.head.weight[0, 0].item(), model.norm.weight.tolist()), (2, [4, 4]))
        model.norm.weight = torch.nn.Parameter(torch.ones(2))
        with self.assertRaisesRegex(UnsupportedError, "copies of norm.weight"):
            gshare_vllm.check_placed(model, addresses)


if __name__ == "__main__":
    unittest.main()
