"""Calling the driver: what its answers become."""

import pytest

import cuframes_nb as cf
from cuframes_nb._cuda import driver


class Status(int):
    name = property(lambda self: {0: "CUDA_SUCCESS", 600: "CUDA_ERROR_NOT_READY"}[self])


@pytest.fixture
def answers(monkeypatch):
    """Answer each call of a driver function with what its name stands for."""
    known = {}
    monkeypatch.setattr(driver, "function", lambda name: lambda *_: known[name])
    monkeypatch.setattr(driver, "error", lambda name, status: cf.CudaError(name, status, "E", "e"))
    return known


@pytest.mark.parametrize(
    ("values", "expected"), [((), None), ((5,), 5), ((0,), 0), ((1, 2), (1, 2))]
)
def test_values_come_as_none_one_or_several(answers, values, expected):
    answers["cuAsk"] = (Status(0), *values)
    assert driver.call("cuAsk") == expected


def test_a_failure_is_raised(answers):
    answers["cuAsk"] = (Status(600), None)
    with pytest.raises(cf.CudaError, match="cuAsk"):
        driver.call("cuAsk")


def test_not_ready_is_no_failure(answers):
    answers |= {"cuIdle": (Status(0),), "cuBusy": (Status(600),)}
    assert driver.succeeded("cuIdle")
    assert not driver.succeeded("cuBusy")
