"""``cuframes-nb devices``, on whatever machine this is."""

import argparse
import json

import pytest

import cuframes_nb as cf
from cuframes_nb.cli import devices as command
from tests.helpers.commands import ran

pytestmark = pytest.mark.process

GPU = cf.DeviceInfo(0, "It", "GPU-1", "0000:01:00.0", 8 << 30, (9, 0), False, True, reason="why")


def test_where_no_gpu_is_seen_that_is_said():
    code, out, err = ran("devices", env={"CUDA_VISIBLE_DEVICES": ""})
    assert (code, err) == (0, "")
    assert out.startswith("No GPU is seen here: frames are in host memory")
    code, out, err = ran("devices", "--json", env={"CUDA_VISIBLE_DEVICES": ""})
    assert (code, err) == (0, "")
    assert all(gpu["ordinal"] is None and gpu["hidden_by"] for gpu in json.loads(out))


@pytest.mark.parametrize("found", [[], [GPU]])
def test_the_one_that_would_be_used_comes_last(found, monkeypatch, capsys):
    monkeypatch.setattr("cuframes_nb._api.devices.devices", lambda: found)
    monkeypatch.setattr("cuframes_nb._api.devices.select_device", lambda: GPU)
    assert command.run(argparse.Namespace(json=False)) == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert last == (
        "A publisher would use GPU 0, It: why"
        if found
        else "No GPU is seen here: frames are in host memory"
    )


def test_why_none_would_be_used_is_said(monkeypatch, capsys):
    def refuse():
        raise cf.DeviceError("there is no GPU GPU-9")

    monkeypatch.setattr("cuframes_nb._api.devices.devices", lambda: [GPU])
    monkeypatch.setattr("cuframes_nb._api.devices.select_device", refuse)
    assert command.run(argparse.Namespace(json=False)) == 0
    assert "A publisher would use none of them: there is no GPU GPU-9" in capsys.readouterr().out
