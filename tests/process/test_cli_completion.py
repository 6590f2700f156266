"""Completion in real shells."""

import os
import shutil
import subprocess

import pytest

from tests.helpers.children import child_env
from tests.helpers.commands import PROGRAM, ran
from tests.helpers.frames import publisher

pytestmark = pytest.mark.process

# Reads words, the last of which is to be completed; _ stands for an empty one.
BASH = """
source <(cuframes-nb completion bash)
complete -p cuframes-nb
while read -ra COMP_WORDS; do
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    [[ ${COMP_WORDS[COMP_CWORD]} == _ ]] && COMP_WORDS[COMP_CWORD]=
    _cuframes_nb cuframes-nb "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
    echo "${COMPREPLY[*]}"
done
"""


@pytest.fixture
def env(tmp_path):
    """Return an environment whose PATH has the command."""
    program = tmp_path / "bin" / "cuframes-nb"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {" ".join(PROGRAM)} "$@"\n')
    program.chmod(0o755)
    return child_env(PATH=f"{program.parent}{os.pathsep}{os.environ['PATH']}", TERM="dumb")


def said(shell, env, text="", **options):
    run = subprocess.run(
        shell, capture_output=True, check=False, env=env, input=text, text=True, timeout=60,
        **options,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout


def test_bash_completes(env):
    lines = {
        "cuframes-nb re": "record",
        "cuframes-nb completion _": "bash zsh fish",
        "cuframes-nb info _": "cam1 cam2",
        "cuframes-nb info cuframes : //cam1": "//cam1",
        "cuframes-nb record --codec = f": "ffv1",
        "cuframes-nb snapshot cam1 _": "",  # files, which bash finds itself
        "cuframes-nb nothing _": "",
    }
    with publisher("cam1"), publisher("cam2"):
        first, *found = said(["bash", "-c", BASH], env, "\n".join(lines) + "\n").splitlines()
    assert first == "complete -F _cuframes_nb cuframes-nb"
    assert dict(zip(lines, found, strict=True)) == lines


def test_a_person_at_bash_gets_keys_and_files(env, tmp_path):
    (tmp_path / "my film.mp4").touch()
    typed = "source <(cuframes-nb completion bash)\ncuframes-nb snapshot cam\tmy\t--x\x15exit\n"
    with publisher("cam1"):
        run = subprocess.run(
            ["bash", "--norc", "--noprofile", "-i"], check=False, cwd=tmp_path, env=env,
            input=typed, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
        )  # fmt: skip
    assert r"cuframes-nb snapshot cam1 my\ film.mp4 --x" in run.stdout


def test_fish_completes(env):
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    with publisher("cam1"):
        script = "cuframes-nb completion fish | source; complete -C 'cuframes-nb info c'"
        assert said(["fish", "--no-config", "-c", script], env) == "cam1\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_can_be_read(shell, env, tmp_path):
    code, out, err = ran("completion", shell)
    assert (code, err) == (0, "")
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / "script"
    script.write_text(out)
    assert said([shell, "-n", str(script)], env) == ""
