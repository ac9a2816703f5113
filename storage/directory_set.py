"""Which data directories belong together: the `meta.properties` of all of `log.dirs`.

Each says of which cluster and node it is, and, where there are several, which others the broker had with it.
So a start that misses records can tell a directory that is not mounted, or that `log.dirs` does not name any
more, from one that was never there.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from storage import layout
from storage.checkpoint import encode_uuid, read_properties, write_properties
from storage.data_directory import DataDirectoryError
from storage.file import Disk
from storage.small_files import room_or_none

if TYPE_CHECKING:
    from storage.data_directory import DataDirectory
    from storage.layout import TopicPartition

logger = logging.getLogger(__name__)

META_VERSION = "1"
KNOWN_VERSIONS = frozenset({"0", META_VERSION})
"""0 is of Kafka with ZooKeeper: it says broker.id for node.id"""
CLUSTER_ID = "cluster.id"
DIRECTORY_ID = "directory.id"
TOGETHER = "kompakt.directories"
"""our own: `id@path` of each directory of `log.dirs`, with commas between them, which no path there has"""


class DirectorySet:
    """The directories of `log.dirs`, of one cluster and of this node; DataDirectoryError when they are not.

    Owned by: the log manager. A missing `meta.properties` is made at once, but not that of an empty directory
    beside others, which may be the place of a disk that is not mounted (`admit_new` makes it), unless the
    broker `is_fresh`: it has no partition yet.
    """

    def __init__(
        self, directories: Sequence[DataDirectory], node_id: int, disk: Disk, *, is_fresh: bool
    ) -> None:
        self._directories = directories
        self._node_id = str(node_id)
        self._disk = disk
        self._new: list[DataDirectory] = []
        self._absent: list[str] = []  # paths of directories that the broker had
        found = {one: self._read(one.path) for one in directories}
        self.cluster_id = self._agree(found, is_fresh)

    def _agree(self, known: Mapping[DataDirectory, dict[str, str] | None], is_fresh: bool) -> str:
        clusters = {found[CLUSTER_ID] for found in known.values() if found}
        if len(clusters) > 1:
            raise DataDirectoryError(f"the data directories are of several clusters: {sorted(clusters)}")
        cluster_id = clusters.pop() if clusters else encode_uuid(uuid.uuid4())
        ids: set[str] = set()
        for directory, found in known.items():
            node_id = (found or {}).get("node.id", (found or {}).get("broker.id", self._node_id))
            if node_id != self._node_id:
                raise DataDirectoryError(
                    f"{directory.path} is of node {node_id}, this is node {self._node_id}: set node.id"
                )
            if found is None and not is_fresh and not _has_partitions(directory.path):
                self._new.append(directory)
            elif found is None or found.get(DIRECTORY_ID, "") in {"", *ids}:  # copied, with the id
                self._write(directory, cluster_id, found or {})
            ids.add((found or {}).get(DIRECTORY_ID, ""))
        paths = {_path_text(directory.path) for directory in known}
        had = dict(item for found in known.values() if found for item in _together(found))
        self._absent = sorted({path for one, path in had.items() if one not in ids and path not in paths})
        return cluster_id

    def _read(self, directory: Path) -> dict[str, str] | None:
        """The file's values, a cluster id among them; None when there is no file."""
        path = directory / layout.META_PROPERTIES
        try:
            found = read_properties(self._disk, path)
        except OSError as error:
            raise DataDirectoryError(f"{path} cannot be read: {error.strerror}") from error
        if found is None and _has_partitions(directory):
            logger.warning("%s is missing beside partitions: it is made anew", path)
        elif found is not None and not found.get(CLUSTER_ID):
            raise DataDirectoryError(
                f"{path} is damaged: it has no cluster.id. Put it right, or delete it to have it made anew"
            )
        if found is not None and found.get("version", META_VERSION) not in KNOWN_VERSIONS:
            raise DataDirectoryError(
                f"{path} has version {found['version']}, and 0 and 1 are known here: a newer broker has "
                "written it, or it is damaged"
            )
        return found

    def _write(self, directory: DataDirectory, cluster_id: str, found: Mapping[str, str]) -> None:
        own = {
            CLUSTER_ID: cluster_id,
            "node.id": self._node_id,
            DIRECTORY_ID: encode_uuid(uuid.uuid4()),
            "version": META_VERSION,
        }
        write_properties(self._disk, directory.path / layout.META_PROPERTIES, {**found, **own})

    def expect_none_of(self, missing: Sequence[TopicPartition]) -> None:
        """Partitions are in no directory: DataDirectoryError when one may be missing that has them."""
        if not missing:
            return
        lost = f"{len(missing)} partitions ({missing[0]} ...) are nowhere"
        anew = "what is missing then begins anew, without records"
        known = [str(one.path / layout.META_PROPERTIES) for one in self._directories if one not in self._new]
        if self._absent:
            raise DataDirectoryError(
                f"log.dirs does not name {' and '.join(self._absent)}, which this broker had, and {lost}: "
                "put it back into log.dirs. If it is lost, delete the line "
                f"{TOGETHER} from {' and '.join(known)}: {anew}"
            )
        if self._new:
            empty = [str(one.path) for one in self._new]
            raise DataDirectoryError(
                f"{' and '.join(empty)} {'is' if len(empty) == 1 else 'are'} empty, and {lost}: mount the "
                f"disk that has them. If it is lost, copy {known[0]} to {empty[0]}: {anew}"
            )

    def admit_new(self) -> None:
        """Nothing is missed: take those into the cluster that were added to `log.dirs`, and write into each
        which there are now. OSError.
        """
        for directory in self._new:
            self._write(directory, self.cluster_id, {})
        self._new.clear()
        found = {
            one: read_properties(self._disk, one.path / layout.META_PROPERTIES) for one in self._directories
        }
        members = (
            f"{(values or {}).get(DIRECTORY_ID, '')}@{_path_text(one.path)}" for one, values in found.items()
        )
        together = ",".join(sorted(members)) if len(found) > 1 else None
        for directory, values in found.items():
            if values is not None and values.get(TOGETHER) != together:
                others = {name: value for name, value in values.items() if name != TOGETHER}
                with room_or_none():  # the next start writes it
                    write_properties(
                        self._disk,
                        directory.path / layout.META_PROPERTIES,
                        others if together is None else {**others, TOGETHER: together},
                    )


def _has_partitions(directory: Path) -> bool:
    return any(layout.parse_partition_directory(entry.name) for entry in directory.iterdir())


def _path_text(path: Path) -> str:
    """As it is written down: a path may be no text, and one of two lines would be two lines there."""
    return " ".join(os.fsencode(path.absolute()).decode("utf-8", "replace").split())


def _together(found: Mapping[str, str]) -> list[tuple[str, str]]:
    """(directory.id, path) of each directory that was there when the file was written."""
    members = (member.partition("@") for member in found.get(TOGETHER, "").split(","))
    return [(directory_id, path) for directory_id, _, path in members if path]
