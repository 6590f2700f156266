"""The unit, compose files and command lines of the documentation are such as would work."""

import configparser
import re
import shlex
import shutil
import subprocess

import pytest
import yaml

from cuframes_nb.cli import _parser
from tests.helpers.children import ROOT

HOW_TO = ROOT / "docs/how-to"
EXAMPLES = HOW_TO / "examples"
SERVICES = HOW_TO / "services.md"
FROM_C = HOW_TO / "c-publisher.md"
UNIT = "cuframes-publish@.service"
COMPOSE = sorted(path.name for path in EXAMPLES.glob("compose*.yaml"))
COMMAND = "cuframes-nb"


def fenced(page, language):
    """Return the blocks of a page in that language."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def sections(name):
    """Return a unit, drop-in or environment file: of each section its keys with their values."""
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    found = {}
    for line in filter(None, text.splitlines()):
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), {})
        else:
            key, value = line.split("=", 1)
            section.setdefault(key, []).append(value)
    return found


def environment(name):
    """Return the variables of an environment file."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read_string("[all]\n" + (EXAMPLES / name).read_text(encoding="utf-8"))
    return dict(parser["all"])


def expanded(line, variables):
    """Return the arguments that systemd makes of a command line."""
    arguments = []
    for word in line.split():
        whole = re.fullmatch(r"\$(\w+)", word)
        if whole:
            arguments += variables[whole[1]].split()
        else:
            arguments.append(re.sub(r"\$\{(\w+)\}", lambda name: variables[name[1]], word))
    return arguments


def parsed(arguments):
    """Return what the command line makes of arguments, the program's name among them."""
    assert arguments[0].rpartition("/")[2] == COMMAND
    return _parser().parse_args(arguments[1:])


def compose(*names):
    """Return the services of compose files, the later over the earlier."""
    services = {}
    for name in names:
        more = yaml.safe_load((EXAMPLES / name).read_text(encoding="utf-8"))["services"]
        for service, keys in more.items():
            services.setdefault(service, {}).update(keys)
    return services


# --- What is quoted -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", sorted(path.name for path in EXAMPLES.iterdir() if path.suffix != ".c")
)
def test_the_page_quotes_each_file_and_links_to_it(name):
    quoted = [text for kind in ("ini", "yaml", "dockerfile") for text in fenced(SERVICES, kind)]
    assert (EXAMPLES / name).read_text(encoding="utf-8") in quoted
    assert f"](examples/{name})" in SERVICES.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["c-publisher.md", "publish.md", "services.md"])
def test_command_lines_of_a_page_are_understood(page):
    text = "".join(fenced(HOW_TO / page, "sh")).splitlines()
    lines = [line for line in text if line.startswith(f"{COMMAND} ")]
    assert lines or page == "services.md"
    for line in lines:
        assert parsed(shlex.split(line)).run


# --- C --------------------------------------------------------------------------------------------


def test_the_page_says_how_the_program_is_built_and_what_is_in_it():
    page = FROM_C.read_text(encoding="utf-8")
    source = (EXAMPLES / "publisher.c").read_text(encoding="utf-8")
    assert "](examples/publisher.c)" in page
    commands = re.findall(r"^cc .*$", page, re.MULTILINE)
    assert commands == re.findall(r"^ \*     (cc .*)$", source, re.MULTILINE)
    assert len(commands) == 2
    named = set(re.findall(r"`(\w+)\(\)`", page))
    assert len(named) > 20
    for name in named:
        assert re.search(rf"^(?:static|int|__attribute__).*\b{name}\(", source, re.MULTILINE), name


def test_the_program_names_sections_of_the_protocol():
    source = (EXAMPLES / "publisher.c").read_text(encoding="utf-8")
    protocol = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    sections = {title.upper() for title in re.findall(r"^##+ (.*)$", protocol, re.MULTILINE)}
    cited = re.findall(r"see ([A-Z][A-Z ]*[A-Z])", source)
    named = {title for words in cited for title in re.split(" and ", words)}
    assert len(named) > 8
    assert {re.sub(r" \(\d+\)$", "", title) for title in named} <= sections


# --- systemd --------------------------------------------------------------------------------------


def test_the_unit_says_what_the_command_relies_on():
    service = sections(UNIT)["Service"]
    wanted = {
        "Type": "notify",
        "NotifyAccess": "main",
        "WatchdogSec": "30",
        "Restart": "on-failure",
        "User": "cuframes",
        "DynamicUser": "no",
        "RuntimeDirectory": "cuframes",
        "RuntimeDirectoryMode": "0750",
        "RuntimeDirectoryPreserve": "yes",
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "PrivateTmp": "yes",
    }
    assert {key: service.get(key) for key in wanted} == {
        key: [value] for key, value in wanted.items()
    }
    assert not {"PrivateDevices", "PrivateUsers", "PrivateNetwork", "ProtectClock"} & {*service}


def test_the_unit_calls_the_command_as_it_is():
    service = sections(UNIT)["Service"]
    variables = {"OPTIONS": "", "CREDENTIALS": "", **environment("cam1.env")}
    (line,) = service["ExecStart"]
    args = parsed(expanded(line.replace("%i", "cam1"), variables))
    assert (args.key, args.source) == ("cam1", environment("cam1.env")["SOURCE"])
    assert args.group == service["Group"][0]
    assert args.credentials is None


def test_the_password_is_one_that_systemd_loads():
    more = sections("password.conf")["Service"]
    name, _, source = more["LoadCredential"][0].partition(":")
    variable, _, value = more["Environment"][0].partition("=")
    variables = {"OPTIONS": "", variable: value, **environment("cam1.env")}
    args = parsed(expanded(sections(UNIT)["Service"]["ExecStart"][0], variables))
    assert str(args.credentials) == f"%d/{name}"
    assert source.startswith("/etc/cuframes/")


@pytest.mark.process
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
@pytest.mark.parametrize("wrong", [False, True])
def test_systemd_understands_the_unit(tmp_path, wrong):
    text = (EXAMPLES / UNIT).read_text(encoding="utf-8")
    text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE)
    (tmp_path / UNIT).write_text(text)
    more = tmp_path / f"{UNIT}.d"
    more.mkdir()
    for name in ("password.conf", "devices.conf"):
        shutil.copy(EXAMPLES / name, more)
    if wrong:
        with (more / "devices.conf").open("a") as file:
            file.write("DeviceAlow=/dev/null\n")
    run = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", UNIT.replace("@", "@cam1")],
        capture_output=True,
        check=False,
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:", "PATH": "/usr/bin:/bin"},
        text=True,
    )
    told = [line for line in run.stderr.splitlines() if "cuframes" in line or "devices" in line]
    assert bool(told) == wrong, run.stderr


# --- Docker ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMPOSE)
def test_containers_share_nothing_but_a_volume(name):
    services = compose("compose.yaml", name)
    assert {*services} == {"camera", "notebook"}
    for service in services.values():
        assert not {"pid", "ipc", "network_mode", "privileged", "shm_size"} & {*service}
        assert "cuframes:/run/cuframes" in service["volumes"]
        assert "context" in service["build"] or "args" in service["build"]


@pytest.mark.parametrize("name", COMPOSE)
def test_the_publishers_command_is_understood(name):
    args = parsed(compose("compose.yaml", name)["camera"]["command"])
    assert args.key == "cam1"
    if args.credentials:
        secrets = yaml.safe_load((EXAMPLES / name).read_text(encoding="utf-8"))["secrets"]
        assert str(args.credentials) in {f"/run/secrets/{secret}" for secret in secrets}


def test_jupyterlab_is_for_this_machine_alone():
    notebook = compose("compose.yaml")["notebook"]
    assert all(port.startswith("127.0.0.1:") for port in notebook["ports"])
    assert not any("token" in word or "password" in word for word in notebook["command"])


def test_both_containers_have_the_gpu():
    for service in compose("compose.gpu.yaml").values():
        (device,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
        assert "cuda" in service["build"]["args"]["EXTRAS"]


def test_the_image_has_the_directory_and_extras_that_there_are():
    text = (EXAMPLES / "Dockerfile").read_text(encoding="utf-8")
    assert "/run/cuframes" in text
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    named = re.findall(r"^ARG EXTRAS=(.*)$", text, re.MULTILINE)
    named += [
        service["build"]["args"]["EXTRAS"] for service in compose("compose.gpu.yaml").values()
    ]
    for extra in {extra for extras in named for extra in extras.split(",")}:
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE), extra
