"""PySpark's own modules, compiled where Spark looks for them: `python -m spark_connector.pyspark_archive`.

Spark puts `python/lib/pyspark.zip` before everything else on the path of the Python processes that it starts,
and there are no compiled modules in it: each process that no other one is forked for compiles a hundred of
them anew, half a second and more before a stream's first micro-batch. It is PySpark's installation, not ours:
nothing here does it unasked. A Python of another version finds its sources as before.
"""

from __future__ import annotations

import importlib.util
import marshal
import os
import sys
import zipfile
from pathlib import Path

UNCHECKED_HASH = 1
"""of a compiled module that is believed without a look at its source (PEP 552)"""
TESTS = "/tests/"


def archive_path() -> Path:
    """Where Spark takes PySpark's modules from. FileNotFoundError."""
    home = os.environ.get("SPARK_HOME")
    if home is None:
        spec = importlib.util.find_spec("pyspark")
        if spec is None or spec.origin is None:
            raise FileNotFoundError("there is no PySpark, and SPARK_HOME is not set")
        home = str(Path(spec.origin).parent)
    path = Path(home, "python", "lib", "pyspark.zip")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file: Spark takes PySpark's modules from elsewhere")
    return path


def compile_archive(path: Path) -> int:
    """Put compiled modules beside the sources of an archive; how many are new. OSError: that cannot be."""
    made = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        count = _copy(path, made)
        made.chmod(path.stat().st_mode)
        if count:
            made.replace(path)
    finally:
        made.unlink(missing_ok=True)
    return count


def _copy(path: Path, made: Path) -> int:
    count = 0
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
        infos = {info.filename: info for info in old.infolist()}
        compiled = {
            f"{name}c": data
            for name in infos
            if name.endswith(".py") and TESTS not in name and (data := _compiled(name, old.read(name)))
        }
        for name, info in infos.items():
            if name not in compiled:
                new.writestr(info, old.read(name))
        for name, data in compiled.items():
            is_new = name not in infos or old.read(name) != data
            count += is_new
            new.writestr(zipfile.ZipInfo(name, infos[name[:-1]].date_time), data, zipfile.ZIP_DEFLATED)
    return count


def _compiled(name: str, source: bytes) -> bytes | None:
    """The file of a compiled module; None where the source is of no use to this Python."""
    try:
        code = compile(source, name, "exec", dont_inherit=True)
    except SyntaxError:
        return None
    head = importlib.util.MAGIC_NUMBER + UNCHECKED_HASH.to_bytes(4, "little")
    return head + importlib.util.source_hash(source) + marshal.dumps(code)


def main() -> None:
    try:
        path = archive_path()
        count = compile_archive(path)
    except OSError as problem:
        raise SystemExit(f"PySpark's modules cannot be compiled: {problem}") from None
    version = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    said = f"{count:,} modules of {path} are compiled for {version}" if count else f"{path}: compiled already"
    sys.stdout.write(f"{said}\n")


if __name__ == "__main__":
    main()
