"""What every family of reference tensors is made with: its random inputs, its gradients, its file."""

import os

import numpy as np
import torch
from safetensors.numpy import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
DTYPE = torch.float64
ONLY = set()  # the families to write; empty: all


def f32(value):
    """A Python number as the nearest fp32: the hyper-parameters that the C code is given."""
    return float(np.float32(value))


class Random:
    """Normal numbers and integers from one fixed stream a family; the numbers are exact in fp32."""

    def __init__(self, seed):
        self.generator = np.random.default_rng(seed)

    def normal(self, *shape, std=1.0, mean=0.0):
        values = (self.generator.standard_normal(shape) * std + mean).astype(np.float32)
        return torch.tensor(values.astype(np.float64))

    def integers(self, low, high, *shape):
        return torch.tensor(self.generator.integers(low, high, shape), dtype=torch.int64)


class Family:
    """Collects the cases of one file."""

    def __init__(self, name, seed):
        self.name, self.cases, self.tensors, self.random = name, 0, {}, Random(seed)

    def add(self, dims, **tensors):
        """`dims` are ints; float tensors are stored as F32, integer ones as I32."""
        self.put(f"{self.cases}.dims", torch.tensor(dims, dtype=torch.int64))
        for key, value in tensors.items():
            self.put(f"{self.cases}.{key}", value)
        self.cases += 1

    def put(self, key, value):
        array = value.detach().numpy()
        kind = np.float32 if array.dtype.kind == "f" else np.int32
        self.tensors[key] = np.ascontiguousarray(array.astype(kind))

    def write(self):
        if ONLY and self.name not in ONLY:
            return 0
        path = os.path.join(HERE, self.name + ".safetensors")
        save_file(self.tensors, path, metadata={"format": "pt"})  # one entry: several have no fixed order
        os.chmod(path, 0o644)
        size = os.path.getsize(path)
        print(f"{self.name}: {self.cases} cases, {size} bytes")
        return size


def scalar(value):
    return torch.tensor([value], dtype=DTYPE)


def leaf(tensor):
    return tensor.clone().requires_grad_(True)


def gradients(outputs, upstream, inputs):
    """d(sum of outputs * upstream) / d(inputs)."""
    total = sum((o * g).sum() for o, g in zip(outputs, upstream))
    return torch.autograd.grad(total, inputs)
