"""Goal: PySpark's own modules, which Spark's Python processes take from an archive of sources, are there
compiled when somebody asks for it, and found by the Python that compiled them and by others.

Method: a copy of the archive; a Python that has it first on its path, as Spark starts one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

from spark_connector import pyspark_archive
from spark_connector.pyspark_archive import archive_path, compile_archive, main

ASK = "import pyspark.serializers, pyspark; print(pyspark.__file__, pyspark.serializers.__file__)"


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy with one more module, where SPARK_HOME says."""
    copy = tmp_path / "python" / "lib" / "pyspark.zip"
    copy.parent.mkdir(parents=True)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    shutil.copy(archive_path(), copy)
    with zipfile.ZipFile(copy, "a") as more:
        more.writestr("pyspark/later.py", "def of_a_later_python(:")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    return copy


def asked(archive: Path) -> str:
    (libraries,) = Path(pyspark.__file__).parent.glob("python/lib/py4j-*.zip")
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(archive), str(libraries)))},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_compiled_modules_are_found(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inside = f"{archive}/pyspark/"
    assert asked(archive).split() == [f"{inside}__init__.py", f"{inside}serializers.py"]
    mode = 0o640
    archive.chmod(mode)
    main()
    assert f"modules of {archive} are compiled for Python 3." in capsys.readouterr().out
    assert asked(archive).split() == [f"{inside}__init__.pyc", f"{inside}serializers.pyc"]
    assert archive.stat().st_mode & 0o777 == mode
    names = zipfile.ZipFile(archive).namelist()
    assert "pyspark/later.pyc" not in names
    assert not [name for name in names if "/tests/" in name and name.endswith(".pyc")]
    main()
    assert "compiled already" in capsys.readouterr().out
    assert len(names) == len(set(names)) == len(zipfile.ZipFile(archive).namelist())
    assert [path.name for path in archive.parent.iterdir()] == ["pyspark.zip"]


def test_another_python_finds_the_sources(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark_archive.importlib.util, "MAGIC_NUMBER", b"\x00\x00\r\n")
    assert compile_archive(archive) > 10
    inside = f"{archive}/pyspark/"
    assert asked(archive).split() == [f"{inside}__init__.py", f"{inside}serializers.py"]


def test_an_archive_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(SystemExit, match=r"cannot be compiled: .*pyspark\.zip: no such file"):
        main()
