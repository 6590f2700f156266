"""``cuframes-nb doctor`` where there is a GPU."""

import ctypes
import json

import pytest

import cuframes_nb as cf
from cuframes_nb._cuda.nvjpeg.binding import load
from cuframes_nb.errors import UnsupportedError
from tests.helpers.commands import ran

pytestmark = [pytest.mark.gpu, pytest.mark.process]


def test_each_gpu_is_tried():
    code, out, err = ran("doctor", "--json")
    assert (code, err) == (0, "")
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    assert checks["driver"]["status"] == "ok"
    for device in (gpu for gpu in cf.devices() if gpu.ordinal is not None):
        check = checks[f"GPU {device.ordinal}"]
        assert check["status"] in {"ok", "warn"}
        assert device.uuid in check["found"]
        assert "a frame was published and read" in check["found"]
        for what in ("descriptors", "completion", "other GPUs"):
            assert checks[f"GPU {device.ordinal} {what}"]["status"] == "ok"
        handles = checks[f"GPU {device.ordinal} older handles"]
        assert handles["status"] in {"ok", "missing"}  # containers may forbid them
        assert handles["found"]
        assert checks[f"GPU {device.ordinal} Vulkan"]["status"] in {"ok", "missing"}
        assert f"h264 on GPU {device.ordinal}" in checks
    assert checks["NVML"]["status"] == "ok"


def test_a_variable_that_ends_early_is_warned_of_and_a_double_one_has_failed():
    for value, status, words in (
        ("0", "ok", "shows 1 of"),
        ("0,99", "warn", "ends at '99'"),
        ("0,0", "failed", "names a GPU twice"),
        ("", "ok", "shows 0 of"),
    ):
        _, out, _ = ran("doctor", "--json", env={"CUDA_VISIBLE_DEVICES": value})
        checks = {check["name"]: check for check in json.loads(out)["checks"]}
        check = checks["$CUDA_VISIBLE_DEVICES"]
        assert (check["status"], words in check["found"]) == (status, True), check


def test_a_gpu_that_is_chosen_and_not_there_is_told():
    code, out, _ = ran("doctor", "--json", env={"CUFRAMES_DEVICE": "GPU-nonsense"})
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    assert (code, checks["$CUFRAMES_DEVICE"]["status"]) == (0, "failed")


def has_nvdec():
    """Return whether the driver's library for NVDEC is here; a GPU without NVDEC has no tests."""
    try:
        library = ctypes.CDLL("libnvcuvid.so.1")
    except OSError:
        return False
    return hasattr(library, "cuvidCreateDecoder")


def test_a_film_is_decoded_on_a_gpu_that_can():
    _, out, _ = ran("doctor", "--json")
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    check = checks["decoding on GPU 0"]
    if has_nvdec():
        assert check["status"] == "ok", check
        assert check["found"].startswith("h264, hevc")
        assert check["found"].count("a frame decoded by NVDEC") == 1
    else:
        assert check["status"] == "missing"
        assert "NVIDIA_DRIVER_CAPABILITIES" in check["advice"]


def test_a_picture_is_encoded_where_nvjpeg_is():
    _, out, _ = ran("doctor", "--json")
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    check = checks["JPEG on GPU 0"]
    if missing := why_no_nvjpeg():
        assert (check["status"], check["found"]) == ("missing", missing)
    else:
        assert check["status"] == "ok", check
        assert load().path in check["found"]


def why_no_nvjpeg():
    """Return why there is no nvJPEG here, or None."""
    try:
        load()
    except UnsupportedError as error:
        return str(error)
    return None
