"""The benchmark as a user runs it: all of it, quickly."""

import json

import pytest

from cuframes_nb.cli.bench import SECTIONS
from tests.helpers.commands import running

pytestmark = pytest.mark.process


@pytest.mark.timeout(300)
def test_it_measures_everything_and_writes_its_figures(tmp_path):
    path = tmp_path / "bench.json"
    with running("bench", "--quick", "--memory", "host", "--json", path) as process:
        output, errors = process.communicate(timeout=280)
    assert process.returncode == 0, errors
    figures = json.loads(path.read_text())
    assert {"date", "machine", "versions", "memory", "results"} <= set(figures)
    results = figures["results"]
    assert set(results) == set(SECTIONS)
    assert all(f"### {section}" in output for section in SECTIONS)
    assert [row["torn"] for row in results["scale"]] == [0, 0]
    assert all(results.values())
    ours = results["latency"][0]
    assert ours["library"] == "cuframes_nb"
    assert ours["latency_p50_us"] > 0
    assert ours["peer_ratio"] > 0
