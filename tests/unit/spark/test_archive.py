"""What goes into the archive of an environment, what stays out, and what cannot be packed at all."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import venv
from pathlib import Path, PurePosixPath

import pytest

from barnabas.spark.archive import CannotPack, Environment, pack, plan
from tests.cli.commands import assert_one_line, run_barnabas

PYTHON = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """An environment with a package, and with what Spark has itself."""
    prefix = tmp_path / "venv"
    venv.create(prefix, with_pip=False)
    packages = prefix / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    contents = {
        "barnabas/__init__.py": "where = __file__",
        "barnabas-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: barnabas\nVersion: 1.0\n",
        "pyspark_barnabas/__init__.py": "",
        "pyspark/__init__.py": "",
        "pyspark/jars/spark.jar": "",
        "pyspark-4.2.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: pyspark\nVersion: 4.2.0\n",
        "py4j/__init__.py": "",
    }
    for name, content in contents.items():
        file = packages / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return Environment(prefix, (packages,), PurePosixPath(PYTHON))


def install_editable(environment: Environment, name: str) -> None:
    info = environment.packages[0] / f"{name}-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "direct_url.json").write_text(json.dumps({"dir_info": {"editable": True}, "url": "file:///home/me/code"}))


def test_the_archive_has_what_is_installed_but_not_what_spark_brings(environment: Environment, tmp_path: Path) -> None:
    size = pack(plan(environment), tmp_path / "environment.tar.gz")
    assert size == (tmp_path / "environment.tar.gz").stat().st_size
    with tarfile.open(tmp_path / "environment.tar.gz") as archive:
        names = {name.removeprefix(f"lib/{PYTHON.name}/site-packages/") for name in archive.getnames()}
    links = {"bin/python", "bin/python3", f"bin/{PYTHON.name}"}
    ours = {"barnabas/__init__.py", "barnabas-1.0.dist-info/METADATA", "pyspark_barnabas/__init__.py"}
    assert names == {"pyvenv.cfg"} | links | ours


def test_the_environment_works_where_it_is_unpacked(environment: Environment, tmp_path: Path) -> None:
    pack(plan(environment), tmp_path / "environment.tar.gz")
    unpacked = tmp_path / "executor" / "environment"
    with tarfile.open(tmp_path / "environment.tar.gz") as archive:
        archive.extractall(unpacked, filter="fully_trusted")
    command = [str(unpacked / "bin" / "python"), "-c", "import barnabas; print(barnabas.where)"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert Path(done.stdout.strip()).is_relative_to(unpacked)


def test_the_cluster_may_have_its_python_elsewhere(environment: Environment, tmp_path: Path) -> None:
    pack(plan(environment), tmp_path / "environment.tar.gz", PurePosixPath("/opt/python/bin/python3.11"))
    with tarfile.open(tmp_path / "environment.tar.gz") as archive:
        assert archive.getmember("bin/python").linkname == "/opt/python/bin/python3.11"
        settings = archive.extractfile("pyvenv.cfg")
        assert settings is not None
        assert b"home = /opt/python/bin\n" in settings.read()


@pytest.mark.parametrize("name", ["barnabas", "shop-transforms"])
def test_an_editable_install_is_refused_by_its_name(environment: Environment, name: str) -> None:
    install_editable(environment, name)
    with pytest.raises(CannotPack, match=rf"editable mode.*{name} \(from /home/me/code\)"):
        plan(environment)


def test_an_environment_without_barnabas_is_refused(environment: Environment) -> None:
    (environment.packages[0] / "barnabas-1.0.dist-info" / "METADATA").unlink()
    with pytest.raises(CannotPack, match="barnabas is not installed in"):
        plan(environment)


def test_a_failure_leaves_no_half_archive(environment: Environment, tmp_path: Path) -> None:
    planned = plan(environment)
    (environment.packages[0] / "barnabas" / "__init__.py").unlink()
    with pytest.raises(FileNotFoundError):
        pack(planned, tmp_path / "environment.tar.gz")
    assert not list(tmp_path.glob("environment.tar.gz*"))


def test_the_command_says_in_one_line_why_it_does_not_pack() -> None:
    """The tests run in an editable install."""
    assert_one_line(run_barnabas("spark", "archive"), "cannot pack this environment", "editable mode", "barnabas (from")


def test_the_command_wants_a_name_that_spark_unpacks() -> None:
    done = run_barnabas("spark", "archive", "environment.zst")
    assert done.returncode == 2
    assert "Spark unpacks what is named .tar.gz or .tgz" in done.stderr
