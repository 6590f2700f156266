"""What a GPU's driver promises, tried: each trial takes an ordinal and returns what came of it."""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from cuframes_nb._doctor.checks import Status
from cuframes_nb.errors import CudaError, CuframesError, UnsupportedError

if TYPE_CHECKING:
    from cuframes_nb._cuda.vmm import Allocation

__all__ = ["TRIALS", "Outcome", "open_handle"]

Outcome = tuple[Status, str, str]
"""How it is, what was found, and what to do."""

_PATTERN: Final = 0x600DF00D
_SECONDS: Final = 30.0
_WITHOUT_SHARING: Final = "memory='host' works without"


def _descriptors(ordinal: int) -> Outcome:
    """Share memory with ourselves as a publisher with a subscriber: export, import, map twice."""
    from cuframes_nb._cuda.devices import gpu
    from cuframes_nb._cuda.vmm import Allocation

    try:
        with contextlib.closing(Allocation.create(1, ordinal)) as ours:
            with ours.export() as fd:
                theirs = Allocation.adopt(fd, ours.nbytes, ordinal)
            with contextlib.closing(theirs):
                seen = _through(ours, theirs, ordinal)
    except CudaError as error:
        promised = "the driver says that it can, and" if gpu(ordinal).can_share else "as it says,"
        return Status.FAILED, f"{promised} it cannot: {error}", _WITHOUT_SHARING
    if seen != _PATTERN:
        return Status.FAILED, f"what was written came as {seen:#x}", _WITHOUT_SHARING
    return Status.OK, "memory exported as a descriptor, imported, and read where it was written", ""


def _through(ours: Allocation, theirs: Allocation, ordinal: int) -> int:
    """Write a word by one mapping of an allocation and return it as the other shows it."""
    from cuframes_nb._cuda.devices import activated
    from cuframes_nb._cuda.driver import call

    source, target = ours.map(writable=True), theirs.map(writable=False)
    word = ctypes.c_uint32()
    with activated(ordinal):
        call("cuMemsetD32", source.address, _PATTERN, 1)
        call("cuMemcpyDtoH", ctypes.addressof(word), target.address, 4)
    return word.value


def _completion(ordinal: int) -> Outcome:
    """Have the GPU write a word into shared memory."""
    from cuframes_nb._cuda.completion import RegisteredWords
    from cuframes_nb._os.memfd import create_sealed

    fd, mapping = create_sealed("doctor", 4096)
    with contextlib.closing(mapping), fd:
        try:
            RegisteredWords(mapping, ordinal, 0).close()  # which tries it
        except UnsupportedError as error:
            return Status.WARN, str(error), "it works; publish takes as long as the GPU's work"
    return Status.OK, "a word that the GPU wrote into shared memory arrived", ""


def _handles(ordinal: int) -> Outcome:
    """Share memory of ``cuMemAlloc``, which needs another process to open it."""
    from cuframes_nb._cuda.devices import activated
    from cuframes_nb._cuda.driver import call
    from cuframes_nb._cuda.ipc import handle_of

    advice = "it is for buffers that others have made; frames go by descriptors"
    with activated(ordinal):
        address = int(call("cuMemAlloc", 4096))
        call("cuMemsetD32", address, _PATTERN, 1)
        call("cuCtxSynchronize")
    try:
        opened = _in_another_process(handle_of(address, ordinal), ordinal)
    except CuframesError as error:
        return Status.MISSING, str(error), advice
    finally:
        with activated(ordinal):
            call("cuMemFree", address)
    if opened != f"{_PATTERN:#x}":
        return Status.MISSING, opened or "the process that opened it said nothing", advice
    return Status.OK, "memory of cuMemAlloc opened by another process, and read", ""


def _in_another_process(handle: bytes, ordinal: int) -> str:
    command = [
        sys.executable,
        "-P",
        "-m",
        "cuframes_nb._doctor.gpu_trials",
        handle.hex(),
        str(ordinal),
    ]
    try:
        run = subprocess.run(  # noqa: S603  our own module
            command, capture_output=True, check=False, text=True, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"the process that opened it did not end within {_SECONDS:g} s"
    return (run.stdout.strip() or run.stderr.strip()).rpartition("\n")[2]


def open_handle(handle: bytes, ordinal: int) -> str:
    """Return what a handle of another process shows, or why it shows nothing."""
    from cuframes_nb._cuda.devices import activated
    from cuframes_nb._cuda.driver import call
    from cuframes_nb._cuda.ipc import OpenedRange

    word = ctypes.c_uint32()
    try:
        opened = OpenedRange(handle, ordinal)
        with activated(ordinal):
            call("cuMemcpyDtoH", ctypes.addressof(word), opened.address, 4)
    except CuframesError as error:
        return str(error)
    return f"{word.value:#x}"


def _peers(ordinal: int) -> Outcome:
    """Reach the memory of each other visible GPU, by copying from it."""
    from cuframes_nb._cuda.devices import gpus, peers

    others = [other for other in gpus() if other.ordinal != ordinal]
    if not others:
        return Status.OK, "there is no other GPU to reach", ""
    reached = peers(ordinal)
    told = ", ".join(
        f"GPU {other.ordinal}: {'yes' if other.uuid_text in reached else 'no'}" for other in others
    )
    return Status.OK, f"reaches others by the driver's word, not tried: {told}", ""


def _vulkan(ordinal: int) -> Outcome:
    """Open the GPU with Vulkan, with what it needs to share memory."""
    from cuframes_nb._cuda.devices import gpu
    from cuframes_nb._vulkan.device import Device

    try:
        with contextlib.closing(Device.open(gpu(ordinal).uuid)) as device:
            name = device.name
    except CuframesError as error:
        return Status.MISSING, str(error), "nothing, without Vulkan programs"
    return Status.OK, f"{name} opened by its UUID, with what sharing memory needs", ""


TRIALS: Final[tuple[tuple[str, Callable[[int], Outcome]], ...]] = (
    ("descriptors", _descriptors),
    ("completion", _completion),
    ("older handles", _handles),
    ("other GPUs", _peers),
    ("Vulkan", _vulkan),
)
"""What is tried on each GPU, by name."""

if __name__ == "__main__":
    print(open_handle(bytes.fromhex(sys.argv[1]), int(sys.argv[2])))  # noqa: T201  to whoever asked
