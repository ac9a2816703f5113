"""Goal: the room of large files is given back a piece at a time, so that no flush waits for all of it, and
what somebody still holds is never cut short.

Method: real files with readers, second names and a disk that tells what it was asked.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from storage import removal
from storage.file import DataFile, Disk
from storage.page_cache import CAN_TELL_CACHED
from storage.region import Region
from storage.removal import MOST_PIECES, PIECE_BYTES, Pace


class TellingDisk(Disk):
    """Remembers how long a file was made, and whether its name was gone by then."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.had_names: set[int] = set()

    def truncate(self, descriptor: int, size: int) -> None:
        self.sizes.append(size)
        self.had_names.add(os.fstat(descriptor).st_nlink)
        super().truncate(descriptor, size)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "PIECE_SECONDS", 0.0)


def sparse(path: Path, size: int) -> Path:
    path.touch()
    os.truncate(path, size)
    return path


def test_a_large_file_goes_in_pieces_once_it_has_no_name(tmp_path: Path) -> None:
    disk, path = TellingDisk(), sparse(tmp_path / "0.log.deleted", 3 * PIECE_BYTES - 5)
    Pace().remove(disk, path)
    assert disk.sizes == [2 * PIECE_BYTES, PIECE_BYTES]  # the ends of pages
    assert disk.had_names == {0}
    assert not path.exists()


def test_no_file_takes_more_than_its_number_of_pieces(tmp_path: Path) -> None:
    disk, path = TellingDisk(), sparse(tmp_path / "0.log.deleted", 4 << 30)
    Pace().remove(disk, path)
    assert len(disk.sizes) == MOST_PIECES - 1
    assert not path.exists()


def test_a_small_file_goes_at_once_and_one_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    disk, path = TellingDisk(), sparse(tmp_path / "0.log.deleted", PIECE_BYTES)
    Pace().remove(disk, path)
    Pace().remove(disk, path)
    assert disk.sizes == []
    assert not path.exists()


def test_who_still_reads_a_removed_file_reads_all_of_it(tmp_path: Path) -> None:
    size = 3 * PIECE_BYTES
    disk, path = TellingDisk(), tmp_path / "0.log.deleted"
    path.write_bytes(b"x" * size)
    file = DataFile(disk, path)
    with file.descriptor():
        file.close()
        Pace().remove(disk, path)
        assert not path.exists()
        assert file.read(size, 0) == b"x" * size
    assert disk.sizes == []


@pytest.mark.skipif(not CAN_TELL_CACHED, reason="Linux before 6.5 does not tell what is in the page cache")
def test_who_has_not_taken_what_was_sent_gets_all_of_it(told_path: Path) -> None:
    """A socket refers to the pages of a file that was sent; cut off, they would come as zeros."""
    size, disk, path = 3 * PIECE_BYTES + 5, TellingDisk(), told_path / "0.log.deleted"
    with socket.create_server(("127.0.0.1", 0)) as server:
        receiver = socket.create_connection(server.getsockname())
        sender, _ = server.accept()
    with sender, receiver:
        sender.setblocking(False)
        for is_taken in (False, True):
            data = os.urandom(size)
            path.write_bytes(data)
            file = DataFile(disk, path)
            file.flush_data()
            start = 2 * PIECE_BYTES - 1000
            sent = Region(file, start, size - start).send(sender.fileno())
            assert sent > 2000
            file.close()
            if is_taken:
                assert receiver.recv(sent, socket.MSG_WAITALL) == data[start : start + sent]
            Pace().remove(disk, path)
            assert not path.exists()
            assert bool(disk.sizes) == is_taken
            if not is_taken:
                assert receiver.recv(sent, socket.MSG_WAITALL) == data[start : start + sent]


@pytest.mark.skipif(not CAN_TELL_CACHED, reason="Linux before 6.5 does not tell what is in the page cache")
def test_what_is_not_written_yet_is_not_written_for_its_removal(told_path: Path) -> None:
    disk, path = TellingDisk(), told_path / "0.log.deleted"
    path.write_bytes(b"x" * 3 * PIECE_BYTES)
    Pace().remove(disk, path)
    assert not path.exists()
    assert disk.sizes == []


def test_a_backup_by_hard_links_is_left_whole(tmp_path: Path) -> None:
    disk, path, backup = TellingDisk(), sparse(tmp_path / "0.log.deleted", 3 * PIECE_BYTES), tmp_path / "copy"
    backup.hardlink_to(path)
    Pace().remove(disk, path)
    assert disk.sizes == []
    assert not path.exists()
    assert backup.stat().st_size == 3 * PIECE_BYTES


def test_a_broker_that_stops_does_not_take_its_time(tmp_path: Path) -> None:
    disk, path = TellingDisk(), sparse(tmp_path / "0.log.deleted", 3 * PIECE_BYTES)
    pace = Pace()
    pace.hurry()
    pace.remove(disk, path)
    assert disk.sizes == []
    assert not path.exists()


def test_without_a_descriptor_it_goes_at_once(tmp_path: Path) -> None:
    class Exhausted(TellingDisk):
        def open(self, path: Path, flags: int) -> int:
            raise OSError(24, "too many open files")

    disk, path = Exhausted(), sparse(tmp_path / "0.log.deleted", 3 * PIECE_BYTES)
    Pace().remove(disk, path)
    assert not path.exists()


def test_the_directory_of_a_deleted_partition_goes_the_same_way(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0.0-delete"
    directory.mkdir()
    sparse(directory / "0.log", 2 * PIECE_BYTES)
    sparse(directory / "0.index", 100)
    disk = TellingDisk()
    Pace().remove_tree(disk, directory)
    assert disk.sizes == [PIECE_BYTES]
    assert not directory.exists()


LOG_FILES = (f"{0:020d}.log", f"{0:020d}.index.tmp", "partition.metadata", "leader-epoch-checkpoint.tmp")


@pytest.mark.parametrize("others", [(), ("lost+found",)])
def test_of_a_linked_directory_our_files_and_the_link_go(tmp_path: Path, others: tuple[str, ...]) -> None:
    """A partition on another disk, by hand: its removal failed for ever, and left everything."""
    target, link = tmp_path / "disk" / "t-0", tmp_path / "t-0.0123-delete"
    target.mkdir(parents=True)
    for name in (*LOG_FILES, *others):
        (target / name).touch()
    link.symlink_to(target)
    Pace().remove_tree(Disk(), link)
    assert not link.is_symlink()
    assert [path.name for path in target.iterdir()] == list(others) if others else not target.exists()


def test_a_link_to_nothing_goes(tmp_path: Path) -> None:
    link = tmp_path / "t-0.0123-delete"
    link.symlink_to(tmp_path / "nothing")
    Pace().remove_tree(Disk(), link)
    assert not link.is_symlink()
