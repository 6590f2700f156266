"""How others make pictures of NV12 frames: what ours is measured against."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

import cuframes_nb as cf

__all__ = ["FILL", "MEAN", "SIDE", "STD", "Converter", "batchers", "to_pictures", "to_tensors"]

SIDE: Final = 640
MEAN: Final = (0.485, 0.456, 0.406)
STD: Final = (0.229, 0.224, 0.225)
FILL: Final = 114

Converter: TypeAlias = Callable[[cf.Frame], Any]

# BT.709, limited range.
_LUMA: Final = 1.164383
_V_TO_R: Final = 1.792741
_U_TO_G: Final = -0.213249
_V_TO_G: Final = -0.532909
_U_TO_B: Final = 2.112402


def to_pictures(xp: Any) -> dict[str, Converter]:
    """Return ways to RGB, uint8, (height, width, 3), of what is installed."""
    found: dict[str, Converter] = {f"plain {xp.__name__}": _plain}
    if xp.__name__ == "cupy":
        with contextlib.suppress(ImportError):
            import torch  # noqa: F401

            found["torch"] = _torch_picture
        return found
    with contextlib.suppress(ImportError):
        import av  # noqa: F401

        found["PyAV"] = lambda frame: _av_frame(frame).to_ndarray(format="rgb24")
    with contextlib.suppress(ImportError):
        cv2 = importlib.import_module("cv2")
        found["OpenCV"] = lambda frame: cv2.cvtColor(frame.array, cv2.COLOR_YUV2RGB_NV12)
    return found


def to_tensors(xp: Any) -> dict[str, Converter]:
    """Return ways to a network's input: 640x640, letterbox, normalised, float16, (1, 3, h, w)."""
    found: dict[str, Converter] = {}
    if xp.__name__ == "cupy":
        with contextlib.suppress(ImportError):
            import torch  # noqa: F401

            found["torch"] = _torch_tensor
        return found
    with contextlib.suppress(ImportError):
        import av  # noqa: F401

        found["PyAV"] = _av_tensor
    with contextlib.suppress(ImportError):
        from PIL import Image  # noqa: F401

        found["Pillow"] = _pillow_tensor
    with contextlib.suppress(ImportError):
        importlib.import_module("cv2")
        found["OpenCV"] = _cv2_tensor
    return found


def batchers(xp: Any) -> dict[str, Callable[[Sequence[cf.Frame]], Any]]:
    """Return ways to one such array of several frames."""

    def all_of(convert: Converter, join: Callable[[list[Any]], Any]) -> Callable[..., Any]:
        return lambda frames: join([convert(frame) for frame in frames])

    join = xp.concatenate
    if xp.__name__ == "cupy":
        with contextlib.suppress(ImportError):
            join = importlib.import_module("torch").cat
    return {name: all_of(convert, join) for name, convert in to_tensors(xp).items()}


# --- Array libraries ------------------------------------------------------------------------------


def _plain(frame: cf.Frame) -> Any:
    """Convert as one would write it down."""
    xp: Any = frame.xp
    luma = _LUMA * (frame.y.astype(xp.float32) - 16)
    chroma = frame.uv.astype(xp.float32).repeat(2, axis=0).repeat(2, axis=1) - 128
    u, v = chroma[: frame.height, : frame.width, 0], chroma[: frame.height, : frame.width, 1]
    red, green, blue = luma + _V_TO_R * v, luma + _U_TO_G * u + _V_TO_G * v, luma + _U_TO_B * u
    return xp.clip(xp.stack([red, green, blue], axis=-1) + 0.5, 0, 255).astype(xp.uint8)


def _torch_rgb(frame: cf.Frame) -> Any:
    """Return 0..255 as float32, (3, height, width)."""
    import torch

    luma = _LUMA * (torch.from_dlpack(frame.y).float() - 16)
    chroma = torch.from_dlpack(frame.uv).float() - 128
    chroma = chroma.repeat_interleave(2, 0).repeat_interleave(2, 1)
    u, v = chroma[: frame.height, : frame.width].unbind(-1)
    return torch.stack([luma + _V_TO_R * v, luma + _U_TO_G * u + _V_TO_G * v, luma + _U_TO_B * u])


def _torch_picture(frame: cf.Frame) -> Any:
    rgb = _torch_rgb(frame)
    return (rgb + 0.5).clamp_(0, 255).byte().permute(1, 2, 0).contiguous()


def _torch_tensor(frame: cf.Frame) -> Any:
    import torch
    from torch.nn import functional

    left, top, width, height = frame.placement((SIDE, SIDE)).target
    rgb = _torch_rgb(frame).clamp_(0, 255)[None] / 255
    rgb = functional.interpolate(rgb, (height, width), mode="bilinear", align_corners=False)
    borders = (left, SIDE - width - left, top, SIDE - height - top)
    rgb = functional.pad(rgb, borders, value=FILL / 255)
    mean = torch.tensor(MEAN, device=rgb.device).view(1, 3, 1, 1)
    std = torch.tensor(STD, device=rgb.device).view(1, 3, 1, 1)
    return ((rgb - mean) / std).half()


# --- On the host ----------------------------------------------------------------------------------


def _av_frame(frame: cf.Frame) -> Any:
    import av

    return av.VideoFrame.from_ndarray(np.ascontiguousarray(frame.array), "nv12")


def _av_tensor(frame: cf.Frame) -> Any:
    _, _, width, height = frame.placement((SIDE, SIDE)).target
    return _normalised(_av_frame(frame).to_ndarray(format="rgb24", width=width, height=height))


def _pillow_tensor(frame: cf.Frame) -> Any:
    from PIL import Image

    _, _, width, height = frame.placement((SIDE, SIDE)).target
    picture = Image.fromarray(_av_frame(frame).to_ndarray(format="rgb24"))
    return _normalised(np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR)))


def _cv2_tensor(frame: cf.Frame) -> Any:
    cv2 = importlib.import_module("cv2")
    _, _, width, height = frame.placement((SIDE, SIDE)).target
    picture = cv2.cvtColor(frame.array, cv2.COLOR_YUV2RGB_NV12)
    return _normalised(cv2.resize(picture, (width, height), interpolation=cv2.INTER_LINEAR))


def _normalised(picture: Any) -> Any:
    """Put a picture into the middle, normalise it and bring it into order."""
    height, width = picture.shape[:2]
    left, top = (SIDE - width) // 2, (SIDE - height) // 2
    square = np.full((SIDE, SIDE, 3), FILL, np.uint8)
    square[top : top + height, left : left + width] = picture
    values = (square.astype(np.float32) / 255 - np.array(MEAN)) / np.array(STD)
    return np.ascontiguousarray(values.transpose(2, 0, 1)[None].astype(np.float16))
