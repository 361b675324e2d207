"""The load format "gshare" of vLLM: the model's weights are those of the model store, without a copy of the process's own.

    vllm serve /models/llama-shard --load-format gshare --model-loader-extra-config '{"digests": ["sha256:..."]}'

The folder has been written by vLLM's save_sharded_state, in which the tensors are named and fused as in vLLM's own model: model-rank-0-part-0.safetensors
and so on. digests are those that `python3 gshare_safetensors.py FILE` prints of its files, in the order of their parts, each with or without its size. vLLM
finds this module by its entry point (see pyproject.toml), in each of its processes.

It has not run with vLLM or on a GPU. What it expects of vLLM is in its source of 2026: BaseModelLoader, register_model_loader, initialize_model and
process_weights_after_loading.
"""

import glob
import os
import re

import gshare_safetensors
import gshare_store

FORMAT = "gshare"

# The types that the CUDA array interface has as integers, as PyTorch names them.
_TORCH_TYPES = {"BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}

# Connections and mappings of this process, which last as long as it: kernels may use the weights until then.
_held = []


class UnsupportedError(ValueError):
    """A model, or an option of vLLM, with which weights cannot be shared."""


def parts_of(folder):
    """Returns the files of a model that one GPU has, in the order of their parts."""
    found = {}
    for path in glob.glob(os.path.join(glob.escape(folder), "model-rank-*-part-*.safetensors")):
        match = re.fullmatch(r"model-rank-(\d+)-part-(\d+)\.safetensors", os.path.basename(path))
        if match and match[1] != "0":
            raise UnsupportedError("%s is for several GPUs" % folder)
        if match:
            found[int(match[2])] = path
    if not found or sorted(found) != list(range(len(found))):
        raise UnsupportedError("%s does not have all parts of a model as save_sharded_state writes them, but %s" % (folder, sorted(found)))
    return [found[part] for part in sorted(found)]


def parse_digest(text):
    """Returns the 32 bytes of a digest as pods declare it, with or without its size."""
    match = re.fullmatch(r"sha256:([0-9a-f]{64})(=.*)?", text) if isinstance(text, str) else None
    if not match:
        raise UnsupportedError("%.100r is no digest such as sha256:9f86...0a08" % (text,))
    return bytes.fromhex(match[1])


def check(vllm_config, model_config):
    """Raises UnsupportedError for what would write the weights, or would leave a copy of them in the process."""
    parallel = vllm_config.parallel_config
    if parallel.world_size != 1:
        raise UnsupportedError("%d GPUs: a store has the weights of one" % parallel.world_size)
    if getattr(model_config, "quantization", None):
        raise UnsupportedError("quantization %s: vLLM would convert the weights in their place" % model_config.quantization)
    if getattr(model_config, "enable_sleep_mode", False):
        raise UnsupportedError("sleep mode: vLLM would copy the weights away and back")
    if getattr(vllm_config, "lora_config", None):
        raise UnsupportedError("LoRA: it pads some of the weights")


def load(folder, digests):
    """Maps the tensors of all files of a folder. Returns their arrays and the names of their types by their names."""
    files = parts_of(folder)
    if len(digests) != len(files):
        raise UnsupportedError("%d digests of %d files: %s" % (len(digests), len(files), ", ".join(map(os.path.basename, files))))
    store = gshare_store.Store()
    _held.append(store)
    arrays, types = {}, {}
    for path, digest in zip(files, map(parse_digest, digests)):
        tensors = gshare_safetensors.load(store, path, digest)
        _held.append(tensors)
        twice = arrays.keys() & tensors.keys()
        if twice:
            raise UnsupportedError("several files have %s" % sorted(twice))
        arrays.update(tensors)
        types.update(tensors.dtypes)
    return arrays, types


def tensors_of(model):
    """Returns the parameters and buffers of a model by their names. Those with several names are there with each."""
    found = {}
    for name, module in model.named_modules(remove_duplicate=False):
        for tensors in (module._parameters, module._buffers):
            found.update((name + "." * bool(name) + leaf, tensor) for leaf, tensor in tensors.items() if tensor is not None)
    return found


def place(torch, model, arrays, types, device):
    """Puts arrays into a model whose parameters have no memory. Returns the addresses of its parameters by their names.

    Buffers are copied: vLLM writes some of them when it has loaded a model, such as the scales of its attention layers, and memory of a store cannot be
    written. They are a few bytes.
    """
    found = tensors_of(model)
    unknown = sorted(arrays.keys() - found.keys())
    if unknown:
        raise UnsupportedError("the model has no %s" % ", ".join(unknown[:8]))
    new = {}  # by the identity of what it replaces: a tensor may have several names
    addresses = {}
    for name, array in arrays.items():
        old = found[name]
        tensor = torch.as_tensor(array, device=device)
        if types[name] in _TORCH_TYPES:
            tensor = tensor.view(getattr(torch, _TORCH_TYPES[types[name]]))
        if tuple(tensor.shape) != tuple(old.shape) or tensor.dtype != old.dtype:
            raise UnsupportedError("%s is %s of %s, the model's %s of %s" % (name, tensor.dtype, tuple(tensor.shape), old.dtype, tuple(old.shape)))
        if tensor.data_ptr() != array.__cuda_array_interface__["data"][0]:
            raise UnsupportedError("PyTorch has copied %s" % name)
        if isinstance(old, torch.nn.Parameter):
            parameter = torch.nn.Parameter(tensor, requires_grad=False)
            parameter.__dict__.update(old.__dict__)  # which vLLM's layers have set on it
            tensor, addresses[name] = parameter, parameter.data_ptr()
        else:
            tensor = tensor.clone()
        new[id(old)] = tensor
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for leaf, old in tensors.items():
                if old is not None and id(old) in new:
                    tensors[leaf] = new[id(old)]
    return addresses


def check_placed(model, addresses):
    """Raises UnsupportedError unless each tensor of the model has memory, and those of the store still are the store's."""
    tensors = tensors_of(model)
    missing = sorted(name for name, tensor in tensors.items() if tensor.device.type == "meta")
    if missing:
        raise UnsupportedError("the files have no %s" % ", ".join(missing[:8]))
    moved = sorted(name for name, address in addresses.items() if name not in tensors or tensors[name].data_ptr() != address)
    if moved:
        raise UnsupportedError("vLLM has made copies of %s, which the process has alone" % ", ".join(moved[:8]))


def without_memory(torch):
    """Returns a mode of PyTorch in which torch.empty, which vLLM's layers make their parameters with, takes no memory. Other tensors are as ever, such as the
    tables of rotary embeddings, which are no weights and are computed."""
    from torch.overrides import TorchFunctionMode

    class WithoutMemory(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if function is torch.empty and kwargs.get("device") is None:
                kwargs["device"] = "meta"
            return function(*args, **kwargs)

    return WithoutMemory()


def register():
    """Makes the load format known to vLLM, which calls this in each of its processes, before any of them uses the GPU."""
    from vllm.model_executor.model_loader import register_model_loader
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader

    @register_model_loader(FORMAT)
    class GshareModelLoader(BaseModelLoader):
        def __init__(self, load_config):
            super().__init__(load_config)
            extra = dict(load_config.model_loader_extra_config or {})
            self.digests = extra.pop("digests", None)
            if extra or not isinstance(self.digests, list):
                raise UnsupportedError("--model-loader-extra-config of --load-format %s is {\"digests\": [\"sha256:...\"]}" % FORMAT)

        def download_model(self, model_config):
            parts_of(model_config.model)

        def load_weights(self, model, model_config):
            raise UnsupportedError("weights of a store cannot be replaced in a model that runs")

        def load_model(self, vllm_config, model_config, prefix=""):
            import torch
            from vllm.model_executor.model_loader.utils import initialize_model, process_weights_after_loading
            try:
                from vllm.utils.torch_utils import set_default_torch_dtype
            except ImportError:  # before 0.12
                from vllm.model_executor.model_loader.utils import set_default_torch_dtype

            check(vllm_config, model_config)
            device = torch.device(self.load_config.device or vllm_config.device_config.device)
            torch.zeros(1, device=device)  # creates the context that the weights are mapped in
            arrays, types = load(model_config.model, self.digests)
            with set_default_torch_dtype(model_config.dtype):
                with device, without_memory(torch):
                    model = initialize_model(vllm_config=vllm_config, model_config=model_config, prefix=prefix)
                addresses = place(torch, model, arrays, types, device)
                process_weights_after_loading(model, model_config, device)
            check_placed(model, addresses)
            return model.eval()
