"""Goal: the command says in clear lines what it does and what is wrong, with exit statuses that scripts can
use.

Method: the application is invoked in the process; one real process is started, asked and stopped.
"""

from __future__ import annotations

import errno
import importlib
import os
import pkgutil
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest
from click.testing import CliRunner

import cleaner
import protocol
import storage
from broker import testing
from broker.cli import app
from protocol.kernel import Kernel
from protocol.records import encode_batch
from storage import integrity
from storage.layout import TopicPartition, partition_directory_name
from tests.process import BrokerProcess

runner = CliRunner()
kernels = importlib.import_module("broker.cli.kernels")  # whose name in its package is that of the command


def invoke(*arguments: str) -> tuple[int, str, str]:
    result = runner.invoke(app, list(arguments))
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("how", ["version", "--version"])
def test_version(how: str) -> None:
    status, output, _ = invoke(how)
    assert status == 0
    assert output.startswith("kompakt ")


def test_kernels_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of every room that has any, so that no request waits for a compiler."""
    monkeypatch.setattr(kernels, "FROM_THE_END", "")
    called: list[str] = []
    expected = []
    for room in (cleaner, protocol, storage):
        for found in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
            module = importlib.import_module(found.name)
            if getattr(getattr(module, "compile_kernels", None), "__module__", "") == found.name:
                expected.append(found.name)
                monkeypatch.setattr(module, "compile_kernels", partial(called.append, found.name))
    status, output, _ = invoke("kernels")
    assert status == 0
    assert "compiled" in output
    assert sorted(set(called)) == sorted(expected)
    monkeypatch.setattr(Kernel, "is_kept", False)
    status, output, errors = invoke("kernels")
    assert (status, output) == (1, "")
    assert "compiled, but not kept" in errors

    def meet_a_full_disk() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(integrity, "compile_kernels", meet_a_full_disk)
    status, output, errors = invoke("kernels")
    assert (status, output) == (1, "")
    assert errors == "kompakt: the kernels cannot be kept: No space left on device\n"


@pytest.mark.parametrize(("processors", "memory_gib"), [(1, 4), (2, 1), (2, 2)])
def test_a_second_processor_compiles_kernels_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, processors: int, memory_gib: int
) -> None:
    """Where there is memory for two; from the end on, in a process that may fail: what it leaves is compiled
    all the same.
    """
    begun = tmp_path / "begun"
    monkeypatch.setattr(kernels, "FROM_THE_END", f"open({str(begun)!r}, 'x').close(); raise SystemExit(1)")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(processors)), raising=False)
    monkeypatch.setattr("broker.memory.memory_limit_bytes", lambda: memory_gib << 30)
    called: list[str] = []
    room = SimpleNamespace(compile_kernels=lambda: called.append("a room"))
    monkeypatch.setattr(kernels, "rooms_with_kernels", lambda: [room])
    status, output, errors = invoke("kernels")
    assert (status, errors, called) == (0, "", ["a room"])
    assert "compiled" in output
    assert begun.exists() == (processors > 1 and memory_gib > 1)


def test_bad_settings_are_one_line_each_and_status_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_LOG_ROLL_MS", "soon")
    status, output, errors = invoke(
        "serve",
        "--set",
        "no.such.key=1",
        "--set",
        "num.partitions=x",
        "--set",
        "nonsense",
        "--log-level",
        "loud",
    )
    assert status == 2
    assert output == ""
    lines = errors.splitlines()
    assert len(lines) == 5
    for part in ("no.such.key", "num.partitions", "nonsense", "loud", "log.roll.ms"):
        assert sum(part in line for line in lines) == 1
    assert all(line.startswith("kompakt: ") for line in lines)


def test_elsewhere_than_on_linux_serve_says_what_can_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    status, output, errors = invoke("serve")
    assert (status, output) == (2, "")
    assert errors.startswith("kompakt: the broker needs Linux")
    assert "this is darwin. Run it in a container" in errors
    with pytest.raises(ImportError, match=r"cannot run in this process: the broker needs Linux"):
        testing.__getattr__("Kompakt")


def test_the_other_commands_need_nothing_that_linux_alone_has(tmp_path: Path) -> None:
    """On a Mac they ask a broker in a container."""
    missing = {
        "os": [
            "eventfd",
            "fdatasync",
            "memfd_create",
            "posix_fadvise",
            "posix_fallocate",
            "sched_getaffinity",
        ],
        "socket": ["TCP_CORK", "TCP_INFO", "TCP_QUICKACK"],
    }
    lines = ["import asyncio, ctypes, os, socket, sys, urllib.request", "sys.platform = 'darwin'"]
    lines += [f"del {module}.{name}" for module, names in missing.items() for name in names]
    program = "\n".join([*lines, "from broker.cli import main", "main()"])

    def ask(*arguments: str) -> None:
        command = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (arguments, done.stderr)

    broker = BrokerProcess(tmp_path / "data").start()
    broker.wait_until_ready()
    for command in ("status", "topics list", "topics create t", "topics explain t", "groups list"):
        ask(*command.split(), "--http", f"127.0.0.1:{broker.http_port}")
    assert broker.stop() == 0
    ask("verify", str(tmp_path / "data"))


def test_a_missing_file_is_status_2(tmp_path: Path) -> None:
    status, _, errors = invoke("serve", "--config", str(tmp_path / "none"))
    assert status == 2
    assert len(errors.splitlines()) == 1


def test_bad_flags_are_status_2() -> None:
    assert invoke("serve", "--port", "70000")[0] == 2
    assert invoke("serve", "--nonsense")[0] == 2


def test_verify_refuses_what_is_no_data_directory(tmp_path: Path) -> None:
    assert invoke("verify", str(tmp_path / "none"))[0] == 2
    assert invoke("verify", str(tmp_path)) == (0, f"{tmp_path} is in order\n", "")
    (tmp_path / "notes.txt").write_text("something else")
    words = f"kompakt: {tmp_path} is no data directory: no meta.properties, no partition\n"
    assert invoke("verify", str(tmp_path)) == (2, "", words)


def start(directory: Path, *more: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable, "-m", "broker",
            "--port", "0", "--http-port", "0", "--data", str(directory), *more,
        ],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )  # fmt: skip


def test_serve_says_when_it_is_ready_and_stops_cleanly(tmp_path: Path) -> None:
    """One line when it serves; a second broker on the directory is refused, and so is who would verify what
    changes meanwhile; SIGTERM ends it with status 0.
    """
    directory = tmp_path / "data"
    process = start(directory)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "ready" in line, process.communicate()
        port = line.partition("HTTP on port ")[2].partition(",")[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=60) as answer:
            assert answer.status == 200
        second = start(directory)
        _, errors = second.communicate(timeout=60)
        assert second.returncode == 1
        assert "in use" in errors
        assert "Traceback" not in errors
        for place in (directory, directory / "__kompakt_metadata-0"):
            words = f"kompakt: {place} changes while it is checked, for a broker runs on it: stop it\n"
            assert invoke("verify", str(place)) == (2, "", words)
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, rest) == (0, "")
    assert "Traceback" not in errors
    assert (directory / ".kafka_cleanshutdown").exists()
    status, output, _ = invoke("verify", str(directory))
    assert (status, output) == (0, f"{directory} is in order\n")


def partition_with_records(data: Path) -> Path:
    """A partition directory whose log holds 20 batches of one record."""
    directory = data / partition_directory_name(TopicPartition("t", 0))
    directory.mkdir(parents=True)
    batches = [encode_batch([(1, b"k", b"v", ())], base_offset=offset) for offset in range(20)]
    (directory / "00000000000000000000.log").write_bytes(b"".join(batches))
    (directory / "00000000000000000000.index").write_bytes(b"")
    return directory


def test_s51_explain_read(tmp_path: Path) -> None:
    """S51: the five steps of a read, with the real files."""
    partition_with_records(tmp_path)
    status, output, _ = invoke("explain-read", "t", "0", "15", "--data", str(tmp_path))
    assert status == 0
    lines = output.splitlines()
    assert [line[:2] for line in lines] == ["1.", "2.", "3.", "4.", "5."]
    assert "holds 15 to 15" in lines[4]


def test_a_terminal_that_knows_only_ascii_gets_question_marks(tmp_path: Path) -> None:
    partition_with_records(tmp_path)
    command = [Path(sys.executable).with_name("kompakt"), "explain-read", "t", "0", "15", "--data", tmp_path]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "because 0 ? 15" in done.stdout


WITHOUT = """
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
sys.argv = ["kompakt", "spark", "archive", "orders", "/lake/orders"]
from broker.cli import main
main()
"""


def test_pipelines_without_spark_are_one_line() -> None:
    """As after `pip install .`, which brings no Spark."""
    command = [sys.executable, "-c", WITHOUT.format(module="pyspark")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    said = "kompakt: the pipelines need pyspark, which is not installed: pip install 'kompakt[spark]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


INTERRUPTING = """
import importlib.abc, sys

class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
sys.argv = ["kompakt", *{arguments!r}]
from broker.cli import main
main()
"""


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("broker.cli.get", ["version"]),
        ("broker.run", ["serve", "--port", "0"]),
        ("storage.dump", ["dump", "x"]),
    ],
)
def test_ctrl_c_while_modules_are_loaded_ends_a_command_with_130(module: str, arguments: list[str]) -> None:
    """A real signal would come at another moment each time: the import itself raises what it would."""
    script = INTERRUPTING.format(module=module, arguments=arguments)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


FULL = "kompakt: standard output: No space left on device\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["dump", "explain-read", "version", "help"])
def test_an_output_that_takes_nothing_is_no_traceback(tmp_path: Path, command: str, unbuffered: str) -> None:
    """Nor a status 1, which is an answer: of `verify` that there is damage, of `get` that no record has the
    key.
    """
    log = partition_with_records(tmp_path) / "00000000000000000000.log"
    arguments = {
        "dump": ["dump", log],
        "explain-read": ["explain-read", "t", "0", "15", "--data", tmp_path],
        "version": ["version"],
        "help": ["dump", "--help"],
    }[command]
    whole = [Path(sys.executable).with_name("kompakt"), *arguments]

    def run(*before: str, stdout: int | IO[bytes]) -> tuple[int, str]:
        environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        done = subprocess.run(
            [*before, *whole], stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment
        )
        return done.returncode, done.stderr

    reads, writes = os.pipe()
    os.close(reads)
    assert run(stdout=writes) == (141, "")
    os.close(writes)
    with Path("/dev/full").open("wb") as full:
        assert run(stdout=full) == (2, FULL)
    assert run("bash", "-c", '"$@" >&-', "x", stdout=subprocess.DEVNULL) == (0, "")


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on this machine")
def test_the_ready_line_says_an_address_as_clients_take_it(tmp_path: Path) -> None:
    """IPv6 in brackets, as a port that is taken is told too, and no port -1."""
    where, spoken = "PLAINTEXT://[::1]:0", "listener.security.protocol.map=OTHER:PLAINTEXT"
    more = ("--http-port", "-1", "--set", f"listeners={where},OTHER://127.0.0.1:0", "--set", spoken)
    process = start(tmp_path, *more)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.match(
            r"kompakt is ready: Kafka on \[::1\]:(\d+), 127\.0\.0\.1:\d+, no HTTP, 0 topics, 0 partitions, ",
            line,
        )
        assert found is not None, line
        taken = start(
            tmp_path / "other", "--set", f"listeners=PLAINTEXT://[::1]:{found[1]}", "--port", found[1]
        )
        assert f"PLAINTEXT://[::1]:{found[1]}" in taken.communicate(timeout=60)[1]
    finally:
        process.kill()
        process.communicate()


def test_a_broker_serves_though_nobody_reads_that_it_is_ready(tmp_path: Path) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    process = start(tmp_path, stdout=writes)
    os.close(writes)
    try:
        assert process.stderr is not None
        while "kompakt is ready" not in (line := process.stderr.readline()):
            assert line, process.wait()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert "Traceback" not in errors


def test_a_closed_standard_error_is_no_damage(tmp_path: Path) -> None:
    command = [Path(sys.executable).with_name("kompakt"), "verify", tmp_path]
    done = subprocess.run(["bash", "-c", '"$@" 2>&-', "x", *command], stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path} is in order\n")


def test_explain_read_of_what_is_not_there(tmp_path: Path) -> None:
    partition_with_records(tmp_path)
    status, _, errors = invoke("explain-read", "t", "0", "99", "--data", str(tmp_path))
    assert status == 1
    assert "ends at 20" in errors
    missing = f"kompakt: no t-7 in {tmp_path}\n"
    assert invoke("explain-read", "t", "7", "1", "--data", str(tmp_path)) == (2, "", missing)
    nowhere = tmp_path / "nowhere"
    missing = f"kompakt: {nowhere} is no directory: --data says where the logs lie\n"
    assert invoke("explain-read", "t", "0", "1", "--data", str(nowhere)) == (2, "", missing)
    segment = tmp_path / "t-0" / "00000000000000000000.log"
    segment.unlink()
    segment.mkdir()
    status, _, errors = invoke("explain-read", "t", "0", "15", "--data", str(tmp_path))
    assert (status, errors) == (2, f"kompakt: {segment}: Is a directory\n")


def test_verify_names_violations(tmp_path: Path) -> None:
    directory = partition_with_records(tmp_path)
    log = directory / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    status, output, _ = invoke("verify", str(directory))
    assert status == 1
    assert output.strip()
