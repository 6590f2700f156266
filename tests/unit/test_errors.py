"""The error tree is a promise: codes, builtin bases, and the way to another process."""

import pickle

import pytest

import cuframes_nb
from cuframes_nb import errors

TABLE = {
    "AccessDeniedError": ("permission", PermissionError),
    "ClosedError": ("closed", RuntimeError),
    "CudaError": ("device", RuntimeError),
    "CuframesError": ("error", Exception),
    "DeviceError": ("device", RuntimeError),
    "ForkedError": ("closed", RuntimeError),
    "FrameTimeout": ("timeout", TimeoutError),
    "InUseError": ("in-use", RuntimeError),
    "InvalidArgumentError": ("invalid-argument", ValueError),
    "LeaseLimitError": ("lease-limit", RuntimeError),
    "LocalProtocolError": ("protocol", ConnectionError),
    "ProtocolError": ("protocol", ConnectionError),
    "PublisherGoneError": ("publisher-gone", ConnectionError),
    "RemoteProtocolError": ("protocol", ConnectionError),
    "RingFullError": ("ring-full", RuntimeError),
    "StreamExistsError": ("already-exists", FileExistsError),
    "StreamNotFoundError": ("not-found", LookupError),
    "UnsupportedError": ("unsupported", NotImplementedError),
    "VersionMismatchError": ("protocol", ConnectionError),
}
"""Programs compare these: a change breaks them."""

PARENTS = {
    "CudaError": "DeviceError",
    "ForkedError": "ClosedError",
    "LocalProtocolError": "ProtocolError",
    "RemoteProtocolError": "ProtocolError",
    "VersionMismatchError": "RemoteProtocolError",
}


def an(name):
    kind = getattr(errors, name)
    if kind is errors.CudaError:
        return kind("cuMemCreate", 2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory")
    return kind("what was tried, what was found, what to do")


def test_the_table_has_every_error():
    assert {*TABLE, "CuframesWarning"} == set(errors.__all__)


@pytest.mark.parametrize("name", TABLE)
def test_codes_and_bases_are_stable(name):
    code, base = TABLE[name]
    kind = getattr(errors, name)
    assert kind.code == code
    assert an(name).code == code
    assert issubclass(kind, errors.CuframesError)
    assert issubclass(kind, base)
    assert issubclass(kind, getattr(errors, PARENTS.get(name, "CuframesError")))
    assert kind.__doc__


@pytest.mark.parametrize("name", TABLE)
def test_an_error_crosses_a_process_border(name):
    error = an(name)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        back = pickle.loads(pickle.dumps(error, protocol))
        assert type(back) is type(error)
        assert (str(back), back.args, back.code) == (str(error), error.args, error.code)
        assert vars(back) == vars(error)


@pytest.mark.parametrize("name", TABLE)
def test_the_message_is_what_was_said(name):
    if name != "CudaError":
        assert str(an(name)) == "what was tried, what was found, what to do"


def test_a_driver_error_tells_call_result_and_explanation():
    error = an("CudaError")
    assert str(error) == ("cuMemCreate failed with CUDA_ERROR_OUT_OF_MEMORY (2): out of memory")
    assert (error.call, error.status, error.name) == ("cuMemCreate", 2, "CUDA_ERROR_OUT_OF_MEMORY")
    assert str(errors.CudaError("cuInit", 1, "X")) == "cuInit failed with X (1)"


def test_every_error_that_users_meet_is_public():
    public = {name for name in TABLE if getattr(cuframes_nb, name, None) is getattr(errors, name)}
    assert set(TABLE) - public == {"LocalProtocolError"}


def test_a_warning_is_no_error():
    assert issubclass(errors.CuframesWarning, RuntimeWarning)
    assert not issubclass(errors.CuframesWarning, errors.CuframesError)
