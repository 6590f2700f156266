"""A frame that a subscriber holds."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from cuframes_nb._api.chroma import check_chroma
from cuframes_nb._core.clock import now_ns
from cuframes_nb._os.forks import check_process, this_process
from cuframes_nb._runtime.leases import Lease
from cuframes_nb._views.owned import OwnedPlanes
from cuframes_nb._views.planes import PlaneSource, RecordsStreams
from cuframes_nb._wire.control import Record
from cuframes_nb._wire.messages import RingDescription
from cuframes_nb.color import ColorSpec
from cuframes_nb.errors import ClosedError
from cuframes_nb.formats import PixelFormat

if TYPE_CHECKING:
    from cuframes_nb.convert import Placement

__all__ = ["Frame"]


class Frame:
    """One frame, where its publisher wrote it.

    Nobody writes to it while this object, or any array taken from it, lives. `release` gives up
    the frame's own claim at once; arrays already taken keep theirs, and the slot goes back when the
    last of them is gone. On the GPU it goes back after the work that was queued until then: on the
    stream that is current when the frame is released (or its last array dies), on those named by
    `record_stream`, and on streams of DLPack consumers. Work queued on any other stream is not
    waited for.

    As a context manager it releases at the end of the block. May be released from any thread.

    Attributes
    ----------
    key : str
        Name of the stream.
    seq : int
        Sequence number, from 1 over the publisher's life.
    pts_ns : int
        Presentation time in nanoseconds of CLOCK_MONOTONIC.
    published_ns : int
        When it was published, the same clock.
    """

    __slots__ = (
        "__weakref__",
        "_lease",
        "_pid",
        "_planes",
        "_ring",
        "key",
        "pts_ns",
        "published_ns",
        "seq",
    )

    def __init__(
        self,
        key: str,
        ring: RingDescription,
        record: Record,
        planes: PlaneSource,
        lease: Lease | None,
    ) -> None:
        self.key = key
        self.seq, self.pts_ns, self.published_ns = record
        self._ring = ring
        self._planes: PlaneSource | None = planes
        self._lease = lease
        self._pid = this_process()

    # --- Pixels -----------------------------------------------------------------------------------

    @property
    def y(self) -> Any:
        """The luma plane: uint8 (uint16 for P010), shape ``(height, width)``, without a copy.

        For formats with one plane, that plane.
        """
        return self._source().plane(0, self._lease)

    @property
    def uv(self) -> Any:
        """The chroma plane: shape ``(ceil(height / 2), ceil(width / 2), 2)``, last axis U, V.

        Raises
        ------
        AttributeError
            For formats without one.
        """
        check_chroma(self.format.is_semiplanar, self.format)
        return self._source().plane(1, self._lease)

    @property
    def planes(self) -> tuple[Any, ...]:
        """Each plane, without a copy."""
        source = self._source()
        return tuple(source.plane(i, self._lease) for i in range(len(self._ring.layout.planes)))

    @property
    def array(self) -> Any:
        """All planes as one array of rows with the slot's pitch, without a copy.

        ``(height * 3 // 2, width)`` for NV12 and P010; the plane itself for the other formats.

        Raises
        ------
        UnsupportedError
            If the layout is not one array (odd width, planes apart); use `planes` then.
        """
        return self._source().rows(self._lease)

    def rgb(
        self,
        *,
        layout: str = "hwc",
        dtype: str = "uint8",
        size: tuple[int, int] | None = None,
        crop: tuple[int, int, int, int] | None = None,
        channels: str = "rgb",
        interpolation: str = "bilinear",
        siting: str = "left",
        out: Any = None,
        stream: Any = None,
    ) -> Any:
        """Return the frame as RGB, converted by its own colour tags.

        Within one code value of exact arithmetic. The result is yours and stays when the frame is
        released.

        Parameters
        ----------
        layout
            ``"hwc"``: shape ``(height, width, 3)``; ``"chw"``: ``(3, height, width)``.
        dtype
            ``"uint8"``: 0..255; ``"float16"``, ``"bfloat16"``, ``"float32"``: 0..1.
        size
            ``(width, height)`` in pixels to scale to; by default the frame's or crop's.
        crop
            ``(x, y, width, height)`` in pixels of the frame.
        channels, interpolation, siting
            See :meth:`tensor`.
        out
            Array to write into, of the shape, dtype and kind of memory of the result, of any
            library with DLPack. It is what is returned then.
        stream
            CUDA stream to work on, which the frame then waits for before it is given back; by
            default CuPy's current one. Not for host memory.

        Raises
        ------
        InvalidArgumentError
            If an argument does not fit the frame.
        ClosedError
            After `release`.
        """
        from cuframes_nb._api.tensors import check_layout, render
        from cuframes_nb.convert import Options

        self._source()
        check_layout(layout, ("hwc", "chw"))
        where = self.placement(size, fit="stretch", crop=crop)
        options = Options(layout, dtype, channels, interpolation, siting)
        return render([self], [where], options, out=out, stream=stream)

    def tensor(
        self,
        size: tuple[int, int] | None = (640, 640),
        *,
        fit: str = "letterbox",
        layout: str = "nchw",
        dtype: str = "float16",
        mean: float | Sequence[float] | None = None,
        std: float | Sequence[float] | None = None,
        channels: str = "rgb",
        crop: tuple[int, int, int, int] | None = None,
        interpolation: str = "bilinear",
        fill: float = 114,
        siting: str = "left",
        out: Any = None,
        stream: Any = None,
    ) -> Any:
        """Return the frame as a network takes it: resized, normalised and laid out, in one pass.

        The result is yours. `placement` says where the picture lies in it, and `cuframes_nb.stack`
        makes one of several frames.

        Parameters
        ----------
        size
            ``(width, height)`` of the result in pixels; None keeps the frame's or crop's.
        fit
            ``"letterbox"`` keeps the shape, with borders; ``"cover"`` keeps it and cuts what is too
            much on both sides; ``"stretch"`` does not keep it.
        layout
            ``"nchw"``: shape ``(1, channels, height, width)``; ``"nhwc"``, ``"chw"``, ``"hwc"``.
        dtype
            ``"float16"``, ``"bfloat16"``, ``"float32"``: 0..1; ``"uint8"``: 0..255, rounded. New
            arrays of bfloat16 need the package ``ml_dtypes`` and, on a GPU, CuPy 14.
        mean, std
            Subtracted from 0..1, and divided by: a number, or one a channel, in the order of
            `channels`. Not with ``"uint8"``.
        channels
            ``"rgb"``, ``"bgr"``, or ``"gray"``: one channel, luma alone.
        crop
            ``(x, y, width, height)`` in pixels of the frame to take.
        interpolation
            ``"bilinear"``, without a filter against aliasing; ``"area"``, the mean over what a
            pixel covers; ``"nearest"``.
        fill
            Code value, 0..255, of all channels of the border, normalised like any pixel.
        siting
            Where chroma samples lie, for resizing: ``"left"``, as in H.264 and H.265 that do not
            say otherwise, ``"center"`` as in JPEG, or ``"topleft"``.
        out, stream
            See :meth:`rgb`.

        Raises
        ------
        InvalidArgumentError
            If an argument does not fit the frame.
        UnsupportedError
            For a new array of bfloat16 where its package is not installed.
        ClosedError
            After `release`.
        """
        from cuframes_nb._api.tensors import render
        from cuframes_nb.convert import Options

        self._source()
        where = self.placement(size, fit=fit, crop=crop)
        options = Options(layout, dtype, channels, interpolation, siting, fill, mean, std)
        return render([self], [where], options, out=out, stream=stream)

    def placement(
        self,
        size: tuple[int, int] | None = (640, 640),
        *,
        fit: str = "letterbox",
        crop: tuple[int, int, int, int] | None = None,
    ) -> Placement:
        """Return where the picture lies in a result of `tensor` with the same arguments.

        ``placement.to_frame(x, y)`` maps points, such as corners of boxes, back to the frame.
        """
        from cuframes_nb.convert import placement_of

        return placement_of(self.width, self.height, crop, size, fit)

    # --- Facts ------------------------------------------------------------------------------------

    @property
    def format(self) -> PixelFormat:
        """Pixel format; equal to its name as a string."""
        return self._ring.layout.format

    @property
    def width(self) -> int:
        """Width in pixels."""
        return self._ring.layout.width

    @property
    def height(self) -> int:
        """Height in pixels."""
        return self._ring.layout.height

    @property
    def color(self) -> ColorSpec:
        """What the code values mean."""
        return self._ring.color

    @property
    def age_ns(self) -> int:
        """Nanoseconds since `pts_ns`."""
        return now_ns() - self.pts_ns

    @property
    def device(self) -> str:
        """Where the pixels are: ``"cpu"`` or ``"cuda:N"`` by this process's ordinals."""
        return self._source().device

    @property
    def xp(self) -> ModuleType:
        """The array module of the planes: numpy or cupy."""
        return self._source().xp

    @property
    def pitches(self) -> Sequence[int]:
        """Bytes from row to row of each plane in the slot."""
        return tuple(plane.pitch for plane in self._ring.layout.planes)

    @property
    def released(self) -> bool:
        """Whether `release` was called."""
        return self._planes is None

    # --- Lifetime ---------------------------------------------------------------------------------

    def copy(self) -> Frame:
        """Return a copy on the same kind of memory that is yours for ever.

        On the GPU the copy is made on CuPy's current stream.
        """
        source = self._source()
        own = OwnedPlanes(source, self._ring.layout, self._lease)
        return Frame(
            self.key, self._ring, Record(self.seq, self.pts_ns, self.published_ns), own, None
        )

    def record_stream(self, stream: object) -> None:
        """Have the slot wait for the work on `stream` too before it goes back.

        Parameters
        ----------
        stream
            A `cupy.cuda.Stream`, a `torch.cuda.Stream`, anything with ``__cuda_stream__``, or a
            stream's handle as a number. It is waited for at the time of release, so it must live
            until then. Without effect on host memory.
        """
        source = self._source()
        if self._lease is not None:
            self._lease.record_stream(stream)
        elif isinstance(source, RecordsStreams):  # a copy that was made for this subscriber
            source.record_stream(stream)

    def release(self) -> None:
        """Give up this frame's claim on the slot. Idempotent, from any thread.

        Arrays taken from the frame stay valid and keep the slot until they are gone.
        """
        lease, self._lease = self._lease, None
        self._planes = None
        if lease is not None:
            lease.touch()

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        """Refuse: a frame is several arrays, and which of them is meant cannot be guessed.

        Raises
        ------
        TypeError
            Always; NumPy would otherwise make an array of one object.
        """
        del dtype, copy
        raise TypeError(
            f"a frame of format {self.format} is no array: take frame.y, frame.planes, "
            f"frame.array, frame.rgb() or frame.tensor()"
        )

    def __enter__(self) -> Self:
        self._source()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        what = f"<Frame {self.key!r} #{self.seq} {self.width}x{self.height} {self.format}"
        if self._planes is None:
            return f"{what} released>"
        return f"{what} on {self._planes.device}, {self.age_ns / 1e6:.1f} ms old>"

    def _claim(self) -> tuple[Lease | None, PlaneSource]:
        """Return what keeps the pixels, for as long as it is held, and where they are."""
        lease = self._lease  # first: released just now by another thread, the next line raises
        return lease, self._source()

    def _source(self) -> PlaneSource:
        if self._planes is None:
            raise ClosedError(
                f"frame {self.seq} of stream {self.key!r} was released: take arrays before "
                f"release, or keep frame.copy()"
            )
        if self._pid != this_process() and self._lease is not None:
            check_process(self._pid, f"frame {self.seq} of stream {self.key!r}")
        return self._planes
