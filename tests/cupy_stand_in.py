"""Replacement of `cupy` based on NumPy, for machines without a GPU.

It tests that the back end never mixes CuPy arrays with NumPy arrays, in operations or functions.
Kernels in CUDA C are compiled as C++ and run in a loop. It does not test CuPy itself, its dtypes,
or a GPU.
"""

from __future__ import annotations

import ctypes
import hashlib
import inspect
import operator
import subprocess
import sys
import types
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp


class ndarray:
    """Array that refuses operations with NumPy arrays, as CuPy's arrays do."""

    __array_ufunc__ = None

    def __init__(self, a: np.ndarray) -> None:
        self._a = a

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self._a, name)
        return wrapped(found) if callable(found) else wrap(found)

    @property
    def device(self) -> Any:
        return Device()

    def get(self) -> np.ndarray:
        return self._a.copy()

    def __getitem__(self, key: Any) -> Any:
        return wrap(self._a[unwrap(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self._a[unwrap(key)] = unwrap(value)

    def __len__(self) -> int:
        return len(self._a)

    def __float__(self) -> float:
        return float(self._a)

    def __int__(self) -> int:
        return int(self._a)

    __index__ = __int__

    def __bool__(self) -> bool:
        return bool(self._a)

    __hash__ = None  # type: ignore[assignment]


def wrap(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return ndarray(np.asarray(value))
    if isinstance(value, tuple):
        return tuple(wrap(v) for v in value)
    return value


def unwrap(value: Any) -> Any:
    if isinstance(value, ndarray):
        return value._a
    if isinstance(value, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if isinstance(value, (tuple, list)):
        return type(value)(unwrap(v) for v in value)
    return value


def wrapped(function: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        return wrap(function(*unwrap(args), **{k: unwrap(v) for k, v in kwargs.items()}))

    if isinstance(function, np.ufunc):
        call.at = wrapped(function.at)  # type: ignore[attr-defined]
    return call


def _operators() -> None:
    def binary(op: Any) -> Any:
        return lambda self, other: wrap(op(self._a, unwrap(other)))

    def swapped(op: Any) -> Any:
        return lambda self, other: wrap(op(unwrap(other), self._a))

    for name in ("add", "sub", "mul", "truediv", "pow", "matmul", "mod", "and", "or"):
        op = getattr(operator, f"__{name}__")
        setattr(ndarray, f"__{name}__", binary(op))
        setattr(ndarray, f"__r{name}__", swapped(op))
        if name in ("add", "sub", "mul", "truediv"):
            place = getattr(operator, f"__i{name}__")
            setattr(ndarray, f"__i{name}__", _in_place(place))
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(ndarray, f"__{name}__", binary(getattr(operator, f"__{name}__")))
    for name in ("neg", "abs", "invert"):
        op = getattr(operator, f"__{name}__")
        setattr(ndarray, f"__{name}__", lambda self, op=op: wrap(op(self._a)))


def _in_place(op: Any) -> Any:
    def call(self: ndarray, other: Any) -> ndarray:
        self._a = op(self._a, unwrap(other))
        return self

    return call


_operators()


class Device(nullcontext):
    def __init__(self, number: Any = None) -> None:
        super().__init__()


class RawKernel:
    """Kernel in CUDA C that is compiled as C++; two loops replace blocks and threads."""

    def __init__(self, code: str, name: str) -> None:
        self.code, self.name, self.run = code, name, None

    def __call__(self, grid: tuple[int], block: tuple[int], args: tuple[Any, ...]) -> None:
        if self.run is None:
            self.run = _compiled(self.code, self.name, args)
        self.run(grid[0], block[0], *(_c_value(a) for a in args))


FOLDER: list[Path] = []  # folder for compiled kernels, which a fixture sets
_C = {"int64": ctypes.c_longlong, "int32": ctypes.c_int, "float64": ctypes.c_double}


def _c_value(a: Any) -> Any:
    if isinstance(a, ndarray):
        assert a._a.flags.c_contiguous, "a kernel sees memory, not strides"
        return ctypes.c_void_p(a._a.ctypes.data)
    return _C[a.dtype.name](a)


def _compiled(code: str, name: str, args: tuple[Any, ...]) -> Any:
    kinds = {ctypes.c_longlong: "long long", ctypes.c_int: "int", ctypes.c_double: "double"}
    words = ["T*" if isinstance(a, ndarray) else kinds[_C[a.dtype.name]] for a in args]
    given = ", ".join(f"{word} a{i}" for i, word in enumerate(words))
    passed = ", ".join(f"a{i}" for i in range(len(words)))
    source = f"""
struct At {{ int x; }};
static At blockDim, blockIdx, threadIdx;
#define __global__ static
{code.replace('extern "C" ', "")}
extern "C" void loop(int blocks, int threads, {given}) {{
  blockDim.x = threads;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) {name}({passed});
}}
"""
    path = FOLDER[0] / f"{hashlib.sha1(source.encode()).hexdigest()}.cpp"
    library = path.with_suffix(".so")
    path.write_text(source)
    subprocess.run(["c++", "-O1", "-shared", "-fPIC", path, "-o", library], check=True)
    return ctypes.CDLL(str(library)).loop


class spmatrix:
    pass


class csr_matrix(spmatrix):
    """CSR matrix whose three arrays are on the simulated GPU."""

    def __init__(self, given: Any, shape: Any = None) -> None:
        if isinstance(given, sp.csr_matrix):
            given, shape = (
                tuple(wrap(a) for a in (given.data, given.indices, given.indptr)),
                given.shape,
            )
        self.data, self.indices, self.indptr = given
        assert self.indices.dtype == self.indptr.dtype == np.int32
        self.shape = shape

    @property
    def dtype(self) -> Any:
        return self.data.dtype

    def get(self) -> Any:
        parts = (self.data._a, self.indices._a, self.indptr._a)
        return sp.csr_matrix(parts, shape=self.shape)

    def tocsr(self, copy: bool = False) -> csr_matrix:
        return csr_matrix(self.get().copy())

    def astype(self, dtype: Any) -> csr_matrix:
        return csr_matrix(self.get().astype(dtype))

    def sum_duplicates(self) -> None:
        assert self.get().has_canonical_format

    def __matmul__(self, other: Any) -> Any:
        return wrap(self.get() @ unwrap(other))


def _module(name: str, source: Any, **more: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    for key in dir(source):
        value = getattr(source, key)
        if not key.startswith("_") and not inspect.ismodule(value):
            plain = isinstance(value, type) or not callable(value)
            setattr(module, key, value if plain else wrapped(value))
    vars(module).update(more)
    sys.modules[name] = module
    return module


def _maker(make: Any) -> Any:
    """Return a function that also accepts NumPy arrays, like CuPy's copies to the GPU."""

    def call(a: Any, *args: Any, **kwargs: Any) -> Any:
        return wrap(make(a._a if isinstance(a, ndarray) else a, *args, **kwargs))

    return call


def install(folder: Path) -> types.ModuleType:
    """Install the replacement for ``import cupy``; the function `remove` undoes this."""
    FOLDER[:] = [folder]
    makers = {name: _maker(getattr(np, name)) for name in ("array", "asarray", "ascontiguousarray")}
    memory = types.SimpleNamespace(OutOfMemoryError=MemoryError)
    cuda = types.ModuleType("cupy.cuda")
    vars(cuda).update(Device=Device, Stream=object, memory=memory)
    device = types.ModuleType("cupy.cuda.device")
    device.Device = Device
    sys.modules.update({"cupy.cuda": cuda, "cupy.cuda.device": device})
    ndarray.__module__ = "cupy"
    spmatrix.__module__ = csr_matrix.__module__ = "cupyx.scipy.sparse"
    cupy = _module("cupy", np, ndarray=ndarray, RawKernel=RawKernel, cuda=cuda, **makers)
    cupy.linalg, cupy.fft = _module("cupy.linalg", np.linalg), _module("cupy.fft", np.fft)
    sparse = types.ModuleType("cupyx.scipy.sparse")
    sparse.spmatrix, sparse.csr_matrix = spmatrix, csr_matrix
    sparse.issparse = lambda a: isinstance(a, spmatrix)
    for name in ("cupyx", "cupyx.scipy"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["cupyx"].scipy = sys.modules["cupyx.scipy"]
    sys.modules["cupyx.scipy"].sparse = sys.modules["cupyx.scipy.sparse"] = sparse
    return cupy


def remove() -> None:
    stale = ("cupy", "cupyx", "partwise.backends.cupy_data")
    for name in list(sys.modules):
        if name.split(".")[0] in stale or name in stale or "array_api_compat.cupy" in name:
            del sys.modules[name]
