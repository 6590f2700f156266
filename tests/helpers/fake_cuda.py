"""A CUDA driver that keeps the books: GPUs, contexts, memory, who may reach it; it fails on demand.

It stands in for ``cuda.bindings.driver``. What the real one refuses, this refuses, too: a call
without a context, memory that is freed under a mapping, access of a GPU that does not reach the
memory. Memory has content, at the addresses where it is mapped.
"""
# ruff: noqa: N802  the driver's own names

import itertools
import os
import sys
import types

from cuframes_nb._cuda import devices, driver, streams

__all__ = ["GRANULE", "FakeCuda", "Gpu", "forget", "install"]

GRANULE = 1 << 21
HIDDEN = -2
READ, READ_WRITE = 1, 3


class Gpu:
    """A GPU of the machine; `reaches` are the digits of others whose memory it can map."""

    def __init__(self, digit, reaches="", name="NVIDIA H200"):
        self.digit, self.reaches, self.name = digit, reaches, name
        self.uuid = bytes.fromhex(digit * 32)

    @property
    def uuid_text(self):
        d = self.digit
        return f"GPU-{d * 8}-{d * 4}-{d * 4}-{d * 4}-{d * 12}"


class _Allocation:
    def __init__(self, nbytes, gpu):
        self.nbytes, self.gpu = nbytes, gpu
        self.data = bytearray(nbytes)


class _Status(int):
    @property
    def name(self):
        return _NAMES[self]


_NAMES = {
    0: "CUDA_SUCCESS", 1: "CUDA_ERROR_INVALID_VALUE", 2: "CUDA_ERROR_OUT_OF_MEMORY",
    100: "CUDA_ERROR_NO_DEVICE", 101: "CUDA_ERROR_INVALID_DEVICE",
    201: "CUDA_ERROR_INVALID_CONTEXT", 217: "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
}  # fmt: skip
_STATUS = {name: _Status(number) for number, name in _NAMES.items()}


class _Refused(Exception):  # noqa: N818  an answer, no error
    def __init__(self, name):
        self.status = _STATUS[name]


def _refuse_unless(condition, name="CUDA_ERROR_INVALID_VALUE"):
    if not condition:
        raise _Refused(name)


class FakeCuda:
    """The driver of a process that sees some GPUs.

    Parameters
    ----------
    visible
        The GPUs that this process sees, by ordinal.
    """

    def __init__(self, visible):
        self.visible = list(visible)
        self.contexts = set()  #: ordinals on which this process has one
        self.stack = []  #: ordinals, the current one last
        self.log = []  #: name of each call, and the GPU that was current
        self.copies = []  #: of between GPUs: target, source, bytes, stream
        self.handles = {}
        self.reserved = {}
        self.mapped = {}  #: address to allocation
        self.access = {}  #: address to {ordinal: flags}
        self._failures = {}
        self._exported = {}  # by inode
        self._numbers = itertools.count(1)
        self._next_address = 1 << 40

    def books(self):
        """Return what is held: handles, reserved and mapped addresses."""
        return len(self.handles), dict(self.reserved), sorted(self.mapped)

    def fail(self, name, error, *, nth=1):
        """Have the `nth` call of a function fail."""
        self._failures[name] = [nth, error]

    def make(self, gpu, nbytes=GRANULE):
        """Return a descriptor of memory that another process has on `gpu`, and its content."""
        allocation = _Allocation(nbytes, gpu)
        return self._export(allocation), allocation.data

    def read(self, address, nbytes, ordinal):
        """Return what a GPU reads at an address."""
        start, allocation = self._at(address, nbytes, ordinal, READ)
        return bytes(allocation.data[address - start :][:nbytes])

    def calls(self):
        """Return the names of the calls that were made, with the GPU that was current."""
        return [(name, at) for name, at in self.log if name.startswith("cuMem")]

    def _export(self, allocation):
        fd = os.memfd_create("memory of a GPU")
        self._exported[os.fstat(fd).st_ino] = allocation
        return fd

    def _at(self, address, nbytes, ordinal, flags):
        for start, allocation in self.mapped.items():
            if start <= address and address + nbytes <= start + allocation.nbytes:
                _refuse_unless(self.access[start].get(ordinal, 0) & flags == flags)
                return start, allocation
        raise _Refused("CUDA_ERROR_INVALID_VALUE")

    def _location(self, allocation):
        return self.visible.index(allocation.gpu) if allocation.gpu in self.visible else HIDDEN

    # --- The functions ----------------------------------------------------------------------------

    def call(self, name, *arguments):
        """Do what the driver does, and return what its binding returns."""
        self.log.append((name, self.stack[-1] if self.stack else None))
        try:
            failure = self._failures.get(name)
            if failure is not None:
                failure[0] -= 1
                _refuse_unless(failure[0], failure[1])
            if name.startswith("cuMem") and name != "cuMemGetAllocationGranularity":
                _refuse_unless(self.stack, "CUDA_ERROR_INVALID_CONTEXT")
            values = getattr(self, f"_{name}")(*arguments)
        except _Refused as refused:
            return (refused.status,)
        if values is None:
            return (_STATUS["CUDA_SUCCESS"],)
        return (_STATUS["CUDA_SUCCESS"], values)

    def _cuInit(self, _flags):
        _refuse_unless(self.visible, "CUDA_ERROR_NO_DEVICE")

    def _cuDeviceGetCount(self):
        return len(self.visible)

    def _cuDeviceGet(self, ordinal):
        _refuse_unless(ordinal < len(self.visible), "CUDA_ERROR_INVALID_DEVICE")
        return ordinal

    def _cuDeviceGetName(self, _room, device):
        return self.visible[device].name.encode() + b"\0"

    def _cuDeviceGetPCIBusId(self, _room, device):
        return f"0000:0{self.visible[device].digit}:00.0\0".encode()

    def _cuDeviceGetUuid_v2(self, device):
        return types.SimpleNamespace(bytes=self.visible[device].uuid)

    def _cuDeviceTotalMem(self, _device):
        return 140 << 30

    def _cuDeviceGetAttribute(self, which, _device):
        return {"INTEGRATED": 0}.get(which, 1)

    def _cuDevicePrimaryCtxRetain(self, device):
        self.contexts.add(device)
        return device

    def _cuCtxPushCurrent(self, context):
        self.stack.append(context)

    def _cuCtxPopCurrent(self):
        return self.stack.pop()

    def _cuCtxSynchronize(self):
        _refuse_unless(self.stack, "CUDA_ERROR_INVALID_CONTEXT")

    def _cuThreadExchangeStreamCaptureMode(self, _mode):
        return 0

    def _cuGetErrorString(self, _status):
        return b"in words"

    def _cuMemGetAllocationGranularity(self, _properties, _which):
        return GRANULE

    def _cuMemCreate(self, nbytes, properties, _flags):
        _refuse_unless(nbytes and nbytes % GRANULE == 0)
        return self._handle(_Allocation(nbytes, self.visible[properties.location.id]))

    def _handle(self, allocation):
        number = next(self._numbers)
        self.handles[number] = allocation
        return number

    def _cuMemRelease(self, handle):
        _refuse_unless(self.handles.pop(handle, None))

    def _cuMemExportToShareableHandle(self, handle, _kind, _flags):
        return self._export(self.handles[handle])

    def _cuMemImportFromShareableHandle(self, fd, _kind):
        allocation = self._exported.get(os.fstat(fd).st_ino)
        _refuse_unless(allocation)
        return self._handle(allocation)

    def _cuMemGetAllocationPropertiesFromHandle(self, handle):
        location = types.SimpleNamespace(id=self._location(self.handles[handle]))
        return types.SimpleNamespace(location=location)

    def _cuMemAddressReserve(self, nbytes, _alignment, _address, _flags):
        _refuse_unless(nbytes and nbytes % GRANULE == 0)
        address = self._next_address
        self._next_address += nbytes + GRANULE
        self.reserved[address] = nbytes
        return address

    def _cuMemAddressFree(self, address, nbytes):
        _refuse_unless(self.reserved.get(address) == nbytes)
        _refuse_unless(not any(address <= at < address + nbytes for at in self.mapped))
        del self.reserved[address]

    def _cuMemMap(self, address, nbytes, _offset, handle, _flags):
        allocation = self.handles.get(handle)
        _refuse_unless(allocation and nbytes == allocation.nbytes)
        inside = any(a <= address < a + size for a, size in self.reserved.items())
        _refuse_unless(inside and address not in self.mapped)
        self.mapped[address], self.access[address] = allocation, {}

    def _cuMemUnmap(self, address, nbytes):
        _refuse_unless(address in self.mapped and self.mapped[address].nbytes == nbytes)
        del self.mapped[address], self.access[address]

    def _cuMemSetAccess(self, address, nbytes, wanted, count):
        _refuse_unless(len(wanted) == count)
        inside = [at for at in self.mapped if address <= at < address + nbytes]
        _refuse_unless(sum(self.mapped[at].nbytes for at in inside) == nbytes)
        for at, one in itertools.product(inside, wanted):
            gpu, home = self.visible[one.location.id], self.mapped[at].gpu
            reached = gpu is home or home.digit in gpu.reaches
            _refuse_unless(reached, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED")
            self.access[at][one.location.id] = one.flags

    def _cuMemcpyPeerAsync(self, target, to, source, where, nbytes, stream):  # noqa: PLR0917
        _refuse_unless({to, where} <= self.contexts, "CUDA_ERROR_INVALID_CONTEXT")
        start, allocation = self._at(target, nbytes, to, READ_WRITE)
        data = self.read(source, nbytes, where)
        allocation.data[target - start : target - start + nbytes] = data
        self.copies.append((target, source, nbytes, stream))


_ENUMS = {
    "CUmemAllocationGranularity_flags": {"CU_MEM_ALLOC_GRANULARITY_MINIMUM": 0},
    "CUmemAllocationHandleType": {"CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR": 1},
    "CUmemAllocationType": {"CU_MEM_ALLOCATION_TYPE_PINNED": 1},
    "CUmemLocationType": {"CU_MEM_LOCATION_TYPE_DEVICE": 1},
    "CUmemAccess_flags": {
        "CU_MEM_ACCESS_FLAGS_PROT_READ": READ, "CU_MEM_ACCESS_FLAGS_PROT_READWRITE": READ_WRITE,
    },
    "CUstreamCaptureMode": {"CU_STREAM_CAPTURE_MODE_RELAXED": 2},
}  # fmt: skip


class _Attributes:
    def __getattr__(self, name):
        return name.removeprefix("CU_DEVICE_ATTRIBUTE_")


def _located():
    return types.SimpleNamespace(location=types.SimpleNamespace())


class _Bindings(types.ModuleType):
    """``cuda.bindings.driver``."""

    def __init__(self, cuda):
        super().__init__("cuda.bindings.driver")
        self._cuda = cuda
        self.CUdevice_attribute = _Attributes()
        self.CUmemAccessDesc = self.CUmemAllocationProp = _located
        for name, values in _ENUMS.items():
            setattr(self, name, types.SimpleNamespace(**values))

    def __getattr__(self, name):
        if not name.startswith("cu") or not hasattr(self._cuda, f"_{name}"):
            raise AttributeError(name)
        return lambda *arguments: self._cuda.call(name, *arguments)


_CACHES = (
    driver.driver, driver.initialise, driver.function, devices.gpu, devices.activated,
    streams._relaxed,
)  # fmt: skip


def install(monkeypatch, visible):
    """Have this process see these GPUs; return their driver. Undone by `forget`."""
    cuda = FakeCuda(visible)
    bindings = types.ModuleType("cuda.bindings")
    bindings.driver = _Bindings(cuda)
    monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", bindings.driver)
    forget()
    return cuda


def forget():
    """Let go of what the package remembers of a driver."""
    for cache in _CACHES:
        cache.cache_clear()
