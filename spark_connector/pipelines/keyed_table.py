"""A Parquet table of one row a key that is refreshed from a log: only what changed is read and written.

Rows lie in buckets by the hash of their key. A refresh reads the offsets since the last one, keeps the last
record of each key, and writes the buckets that have changes anew, under a version of their own:

    PATH/_table.json                 the manifest: version, offsets covered, the version of each bucket
    PATH/version=7/bucket=3/*.parquet

The manifest is replaced by one rename after everything else: a refresh that is killed before has not
happened, one that is killed after it has. Readers of the version before may go on; older ones are removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from spark_connector.errors import ConnectorError
from spark_connector.pipelines.paths import address, local_directory, refuse_pattern

MANIFEST = "_table.json"
LOCK = "_lock"
FORMAT = 1
BUCKET = "bucket"
DEFAULT_BUCKETS = 16


def with_instants(schema: str) -> str:
    """The columns of a table for Spark, which may be told (`spark.sql.timestampType`) that a plain timestamp
    has no zone: the record's own has one. Manifests say `timestamp`, and tables are compared by that text."""
    return schema.replace("timestamp timestamp", "timestamp timestamp_ltz", 1)


@dataclass(frozen=True)
class Manifest:
    """What a version of the table is made of. `offsets` is the JSON form of the source's offsets."""

    topic: str
    topic_id: str
    buckets: int
    schema: str
    version: int = 0
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    refreshed_ms: int = 0
    versions: dict[str, int] = field(default_factory=dict)
    """bucket to the version that wrote it; a bucket without rows is absent"""
    previous: dict[str, int] = field(default_factory=dict)
    """the same of the version before, whose readers may not have finished"""
    starts: dict[str, dict[str, int]] | None = None
    """where the logs began; None, as below, in manifests from before it was noted"""
    begins: dict[str, dict[str, int]] | None = None
    """the same when the table was last built from them: its rows come from there on"""
    delete_when: str | None = None
    strategy: str = "offset"
    """by what compaction.strategy the record of each key was chosen"""
    read_committed: bool | None = None
    """whether all rows were read so; None, too, where some come from before it was noted"""
    format: int = FORMAT


@dataclass(frozen=True)
class Refresh:
    """What a refresh did: offsets read, keys that had changes, buckets written, rows now.

    `was_full` if the table was built from the whole log; `reason` says why, or why all buckets were written.
    """

    version: int
    offsets_read: int
    keys_changed: int
    buckets_written: int
    rows: int
    was_full: bool
    reason: str


class KeyedTable:
    """The files of one table. Owned by: one process at a time, which holds the lock; any number may read.

    `path` must be a directory that the driver and every executor see (local disk, NFS). ConnectorError for
    one that Spark would take for a pattern, and for another file system's address.
    """

    def __init__(self, path: str | Path) -> None:
        refuse_pattern(str(path))
        self.path = local_directory(path)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the table; ConnectorError when another process refreshes it."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ConnectorError(f"{self.path} is being refreshed by another process") from None
            yield

    def manifest(self) -> Manifest | None:
        """The current version; None when the table was never refreshed."""
        file = self.path / MANIFEST
        try:
            found = json.loads(file.read_text())
            manifest = Manifest(**found)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as problem:
            raise ConnectorError(
                f"{file} is damaged ({problem}); remove it to build the table anew"
            ) from None
        if manifest.format != FORMAT:
            raise ConnectorError(f"{file} has format {manifest.format}; this release reads {FORMAT}")
        return manifest

    def read(self, spark: Any) -> Any:
        """The table as a DataFrame, as of the last finished refresh."""
        manifest = self.manifest()
        if manifest is None:
            raise ConnectorError(f"{self.path} was never refreshed")
        return self.read_buckets(spark, manifest, list(manifest.versions))

    def read_buckets(self, spark: Any, manifest: Manifest, buckets: list[str]) -> Any:
        """The rows of some buckets of a version."""
        places = [
            address(self._bucket(manifest.versions[bucket], bucket))
            for bucket in buckets
            if bucket in manifest.versions
        ]
        if not places:
            return spark.createDataFrame([], with_instants(manifest.schema))
        return spark.read.schema(with_instants(manifest.schema)).parquet(*places)

    def write_version(self, rows: Any, version: int) -> set[str]:
        """Write rows with a column `bucket` as the files of `version`; the buckets that got any."""
        directory = self.path / f"version={version}"
        rows.write.mode("overwrite").partitionBy(BUCKET).parquet(address(directory))
        return {place.name.removeprefix(f"{BUCKET}=") for place in directory.glob(f"{BUCKET}=*")}

    def publish(self, manifest: Manifest) -> None:
        """Make `manifest` the table, then remove what neither it nor the version before it needs."""
        self._sync(self.path / f"version={manifest.version}")
        temporary = self.path / f"{MANIFEST}.new"
        with temporary.open("w") as file:
            json.dump(asdict(manifest), file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path / MANIFEST)
        self._sync_directory(self.path)
        self.remove_unused(manifest)

    def remove_unused(self, manifest: Manifest | None) -> None:
        """Remove buckets of no manifest: those of older versions, and of refreshes that did not finish."""
        used = set()
        if manifest is not None:
            used = {(version, bucket) for bucket, version in manifest.versions.items()}
            used |= {(version, bucket) for bucket, version in manifest.previous.items()}
        for directory in self.path.glob("version=*"):
            version = int(directory.name.removeprefix("version="))
            for place in directory.glob(f"{BUCKET}=*"):
                if (version, place.name.removeprefix(f"{BUCKET}=")) not in used:
                    shutil.rmtree(place)
            if not any(version == wanted for wanted, _ in used):
                shutil.rmtree(directory)

    def _bucket(self, version: int, bucket: str) -> Path:
        return self.path / f"version={version}" / f"{BUCKET}={bucket}"

    def _sync(self, directory: Path) -> None:
        """The manifest must not outlive the files that it names."""
        for place, _, names in os.walk(directory):
            for name in names:
                with Path(place, name).open("rb") as file:
                    os.fsync(file.fileno())
            self._sync_directory(Path(place))

    def _sync_directory(self, directory: Path) -> None:
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
