"""A management library (NVML) that tells of GPUs that are not here.

The package that calls it is the real one; its functions answer from values, and refuse with its own
errors what a GPU has no value for.
"""

import itertools
import types

import pynvml

__all__ = ["Board", "Part", "install", "refuse"]


class Part(types.SimpleNamespace):
    """A MIG instance: name, uuid, total, free."""


class Board(types.SimpleNamespace):
    """A GPU: what is not given is not supported by it."""

    def __init__(self, name, uuid, bus, **rest):
        super().__init__(name=name, uuid=uuid, bus=bus, parts=[], links={}, **rest)


def install(monkeypatch, boards, *, driver="580.95.05", cuda=13000):
    """Have NVML tell of `boards`; return the list of what was opened and closed."""
    calls = []
    answers = {
        "nvmlInit": lambda: calls.append("init"),
        "nvmlShutdown": lambda: calls.append("shutdown"),
        "nvmlSystemGetDriverVersion": lambda: driver,
        "nvmlSystemGetCudaDriverVersion_v2": lambda: cuda,
        "nvmlDeviceGetCount": lambda: len(boards),
        "nvmlDeviceGetHandleByIndex": lambda index: _there(boards[index]),
        "nvmlDeviceGetName": lambda board: board.name,
        "nvmlDeviceGetUUID": lambda board: board.uuid,
        "nvmlDeviceGetPciInfo": _pci,
        "nvmlDeviceGetMemoryInfo": lambda board: types.SimpleNamespace(
            total=_of(board, "total"), free=_of(board, "free")
        ),
        "nvmlDeviceGetBusType": lambda board: _of(board, "bus_type"),
        "nvmlDeviceGetMigMode": lambda board: [_of(board, "mig")] * 2,
        "nvmlDeviceGetMaxMigDeviceCount": lambda _: 7,
        "nvmlDeviceGetMigDeviceHandleByIndex": _part,
        "nvmlDeviceGetDisplayActive": lambda board: _of(board, "display"),
        "nvmlDeviceGetCudaComputeCapability": lambda board: _of(board, "capability"),
        "nvmlDeviceGetGpuInstanceProfileInfo": lambda board, profile: _of(
            board, f"slices{profile}"
        ),
        "nvmlDeviceGetEncoderCapacity": lambda board, kind: _of(board, f"encodes{kind}"),
        "nvmlDeviceGetP2PStatus": _link,
    }
    for name, answer in answers.items():
        assert hasattr(pynvml, name), f"the package has no {name}"
        monkeypatch.setattr(pynvml, name, answer)
    return calls


def refuse(monkeypatch, value):
    """Have NVML not start, with one of its errors."""

    def fail():
        raise pynvml.NVMLError(value)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)


def _there(board):
    if getattr(board, "lost", False):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
    return board


def _of(board, name):
    try:
        return getattr(board, name)
    except AttributeError:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED) from None


def _pci(board):
    domain, bus, device = (int(part, 16) for part in board.bus.replace(".0", "").split(":"))
    return types.SimpleNamespace(domain=domain, bus=bus, device=device)


def _part(board, index):
    for part in itertools.islice(board.parts, index, index + 1):
        return part
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)


def _link(board, other, kind):
    """Answer 0, "OK", for what two GPUs may do with each other: 0 read, 1 write, 2 NVLink."""
    assert board is not other
    return 0 if kind in board.links.get(other.uuid, ()) else 5
