"""Everything this package raises on purpose.

::

    CuframesError                           .code
    +-- InvalidArgumentError  (ValueError)        invalid-argument  a wrong value was passed in
    +-- StreamNotFoundError   (LookupError)       not-found         no publisher by that name
    +-- StreamExistsError     (FileExistsError)   already-exists    a live publisher has that name
    +-- FrameTimeout          (TimeoutError)      timeout           nothing came in the time given
    +-- PublisherGoneError    (ConnectionError)   publisher-gone    the other process went away
    +-- ProtocolError         (ConnectionError)   protocol
    |   +-- LocalProtocolError                                      we spoke out of turn: our bug
    |   +-- RemoteProtocolError                                     they did: connection dropped
    |       +-- VersionMismatchError                                they speak another version
    +-- AccessDeniedError     (PermissionError)   permission        a uid, gid or mode forbids it
    +-- DeviceError           (RuntimeError)      device            no GPU, wrong GPU, hidden GPU
    |   +-- CudaError                                               a driver call failed
    +-- UnsupportedError      (NotImplementedError)  unsupported    this machine or format cannot
    +-- ClosedError           (RuntimeError)      closed            used after close or release
    |   +-- ForkedError                                             used in a forked child
    +-- InUseError            (RuntimeError)      in-use            two users where one may be
    +-- RingFullError         (RuntimeError)      ring-full         every slot is being read
    +-- LeaseLimitError       (RuntimeError)      lease-limit       this subscriber holds too many

``code`` is stable: programs may compare it. Each message says what was tried, what was found, and
what to do. Each class pickles, so an error may cross a process border.

Failures in places where nothing can be raised (finalizers, the I/O thread) are warnings of the
class :class:`CuframesWarning`.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "AccessDeniedError",
    "ClosedError",
    "CudaError",
    "CuframesError",
    "CuframesWarning",
    "DeviceError",
    "ForkedError",
    "FrameTimeout",
    "InUseError",
    "InvalidArgumentError",
    "LeaseLimitError",
    "LocalProtocolError",
    "ProtocolError",
    "PublisherGoneError",
    "RemoteProtocolError",
    "RingFullError",
    "StreamExistsError",
    "StreamNotFoundError",
    "UnsupportedError",
    "VersionMismatchError",
]


class CuframesError(Exception):
    """Base of every error that this package raises on purpose.

    Attributes
    ----------
    code
        A stable word for the kind of failure, for programs.
    """

    code: ClassVar[str] = "error"


class InvalidArgumentError(CuframesError, ValueError):
    """A value passed in is wrong; nothing was changed."""

    code = "invalid-argument"


class StreamNotFoundError(CuframesError, LookupError):
    """No publisher by that name was found; the message lists those that are there."""

    code = "not-found"


class StreamExistsError(CuframesError, FileExistsError):
    """A live publisher already has that name."""

    code = "already-exists"


class FrameTimeout(CuframesError, TimeoutError):  # noqa: N818  the public name is a contract
    """Nothing came within the time given; the object can go on being used."""

    code = "timeout"


class PublisherGoneError(CuframesError, ConnectionError):
    """The publisher closed its stream or its process ended."""

    code = "publisher-gone"


class ProtocolError(CuframesError, ConnectionError):
    """The control connection broke a rule of the protocol. Never raised itself."""

    code = "protocol"


class LocalProtocolError(ProtocolError):
    """This side was about to say something it must not say now: a bug of ours."""


class RemoteProtocolError(ProtocolError):
    """The other side said something it must not say; that connection was dropped."""


class VersionMismatchError(RemoteProtocolError):
    """The other side speaks another version of the protocol; the message names both."""


class AccessDeniedError(CuframesError, PermissionError):
    """A user id, group id or file mode does not allow this."""

    code = "permission"


class DeviceError(CuframesError, RuntimeError):
    """There is no usable GPU, or it is not the one that holds the frames."""

    code = "device"


class CudaError(DeviceError):
    """A call of the CUDA driver failed.

    Attributes
    ----------
    call : str
        Name of the driver function.
    status : int
        The ``CUresult`` it returned.
    name : str
        That result's name, e.g. ``CUDA_ERROR_OUT_OF_MEMORY``.
    """

    def __init__(self, call: str, status: int, name: str, explanation: str = "") -> None:
        super().__init__(call, status, name, explanation)
        self.call = call
        self.status = status
        self.name = name
        self.explanation = explanation

    def __str__(self) -> str:
        """Return one line: the call, the result and the driver's explanation."""
        tail = f": {self.explanation}" if self.explanation else ""
        return f"{self.call} failed with {self.name} ({self.status}){tail}"


class UnsupportedError(CuframesError, NotImplementedError):
    """This machine, driver, memory or format cannot do what was asked."""

    code = "unsupported"


class ClosedError(CuframesError, RuntimeError):
    """The object was closed or the frame released, and then used."""

    code = "closed"


class ForkedError(ClosedError):
    """The object was made before a fork and used in the child; open it anew there."""


class InUseError(CuframesError, RuntimeError):
    """Two used at once what only one may: threads, or a reader of a buffer and who writes it."""

    code = "in-use"


class RingFullError(CuframesError, RuntimeError):
    """No slot is free: subscribers read them all, or the GPU has not finished with them."""

    code = "ring-full"


class LeaseLimitError(CuframesError, RuntimeError):
    """This subscriber already holds as many frames as one subscriber may."""

    code = "lease-limit"


class CuframesWarning(RuntimeWarning):
    """Something failed where no error can be raised, e.g. in a finalizer."""
