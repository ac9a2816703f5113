"""Goal: in a container as Docker makes them by default the broker serves, cleans and stops as elsewhere: as
process 1, without capabilities or a home, on a file system that is read-only but for its data, without
io_uring, in little memory.

Method: the real process in name spaces and a control group of its own, under a filter of system calls; what
Docker itself would do is done by `unshare`, `mount` and `setpriv`. Needs root, else it is skipped.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from storage.verify import verify_data_directory
from tests.crash.machine import needs, work_directory
from tests.process import BrokerProcess
from tests.waiting import wait_for

pytestmark = pytest.mark.crash
ROOT = Path(__file__).resolve().parents[2]
NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
MEMORY_BYTES = 256 << 20
KEYS = 1_500_000
VALUE = bytes(100)
GROUPS = (("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"))

JAIL = """
data=$1 group=$2 filter=$3; shift 3
echo $$ > "$group/cgroup.procs"
mount --bind "$data" "$data"
mount -o remount,bind,ro /
cd /
exec env -u HOME setpriv --no-new-privs --bounding-set=-all --inh-caps=-all python3 "$filter" "$@"
"""
FILTER = """
import ctypes, os, struct, sys
EPERM, ALLOW, REFUSE = 1, 0x7FFF0000, 0x00050000
def step(code, number, jump_true=0, jump_false=0):
    return struct.pack("HBBI", code, jump_true, jump_false, number)
program = step(0x20, 0)  # the number of the call
for forbidden in (425, 426, 427, 451):  # io_uring_*, cachestat
    program += step(0x15, forbidden, 0, 1) + step(0x06, REFUSE | EPERM)
program += step(0x06, ALLOW)
buffer = ctypes.create_string_buffer(program, len(program))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]
filter = Program(len(program) // 8, ctypes.addressof(buffer))
if ctypes.CDLL(None).prctl(22, 2, ctypes.byref(filter), 0, 0):
    sys.exit("no filter of system calls")
os.execv(sys.argv[1], sys.argv[1:])
"""


@contextlib.contextmanager
def memory_group() -> Iterator[Path]:
    """A control group that may take `MEMORY_BYTES`, or a skipped test where none can be made."""
    for top, limit in GROUPS:
        group = Path(top) / f"kompakt-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if not (group / limit).exists():
                continue
            (group / limit).write_text(str(MEMORY_BYTES))
            yield group
            return
        finally:
            group.rmdir()
    pytest.skip("no control group of memory can be made")


@contextlib.contextmanager
def jailed() -> Iterator[BrokerProcess]:
    """A broker in a container, started."""
    needs("unshare", "mount", "setpriv")
    with work_directory() as work, memory_group() as group:
        data = work / "volume"
        data.mkdir()
        for name, text in (("jail", JAIL), ("filter", FILTER)):
            (work / name).write_text(text)
        script = ["sh", "-e", str(work / "jail"), str(data), str(group), str(work / "filter")]
        broker = BrokerProcess(data / "log", {"log.cleaner.backoff.ms": "500"}, prefix=[*NAMESPACES, *script])
        broker.output = work / "output"
        try:
            broker.start()
            broker.wait_until_ready()
            yield broker
        except BaseException:
            print(broker.log())  # pytest shows it
            raise
        finally:
            if broker.process is not None:
                broker.kill()
            wait_for(lambda: not (group / "cgroup.procs").read_text(), "the end of all in the group")


def inner_pid(broker: BrokerProcess) -> int:
    """Of the process that is the first one of its name space."""
    assert broker.process is not None
    children = Path(f"/proc/{broker.process.pid}/task/{broker.process.pid}/children")
    return int(children.read_text())


def test_it_serves_cleans_and_stops() -> None:
    """A topic whose offset map alone would take all of the memory, by its default."""
    with jailed() as broker:
        config = {
            "cleanup.policy": "compact",
            "segment.bytes": str(16 << 20),
            "min.cleanable.dirty.ratio": "0.01",
        }
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("table", 1, config=config)])["table"].result(60)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
        for number in range(KEYS + 1000):
            while True:
                try:
                    producer.produce("table", VALUE, key=b"%d" % (number % KEYS))
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(120) == 0
        broker.compact("table")
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["table"])
        keys = set()

        def read() -> bool:
            keys.update(message.key() for message in consumer.consume(10_000, 1.0))
            return len(keys) == KEYS

        wait_for(read, "all keys")
        consumer.close()
        pid = inner_pid(broker)
        status = Path(f"/proc/{pid}/status").read_text()
        for line in ("Seccomp:\t2", "CapEff:\t0000000000000000", f"NSpid:\t{pid}\t1\n"):
            assert line in status
        os.kill(pid, 15)
        assert broker.process is not None
        assert broker.process.wait(60) == 0
        broker.process = None
        said = broker.log()
        assert "memory is 256 MiB, to which fit " in said
        assert "Traceback" not in said
        assert " ERROR " not in said
        assert (broker.data / ".kafka_cleanshutdown").exists()
        assert verify_data_directory(broker.data) == []


def test_sigterm_ends_the_first_process_of_a_container_while_its_modules_are_loaded() -> None:
    """The system keeps from it what it does not handle: `docker stop` would wait ten seconds, and kill it."""
    needs("unshare")
    script = "import os, broker.cli; os.kill(os.getpid(), 15); print('it lives')"
    command = [*NAMESPACES, sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "")
