"""Makes the wheel of the Python package of a module that is built already: wheel.py LIB_LANDFAST_SO DIRECTORY.

`pip install ./python` builds the same by maturin. This program exists because maturin compiles the module in a build of its
own, with features of the dependencies that differ from those of the workspace, so that all of them are compiled once more.
"""

import base64
import hashlib
import platform
import sys
import tomllib
import zipfile
from pathlib import Path

HERE = Path(__file__).parent


def main(module: Path, directory: Path) -> Path:
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    version = tomllib.loads((HERE.parent / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    libc = "_".join(platform.libc_ver()[1].split(".")[:2])
    tag = f"cp311-abi3-manylinux_{libc}_{platform.machine()}"
    info = f"landfast-{version}.dist-info"
    entries = {
        f"landfast/{path.relative_to(HERE / 'package/landfast')}": path.read_bytes()
        for path in sorted((HERE / "package/landfast").rglob("*"))
        if path.suffix in (".py", ".pyi", ".typed")
    }
    entries["landfast/py.typed"] = b""
    entries["landfast/_landfast.abi3.so"] = module.read_bytes()
    entries[f"{info}/METADATA"] = metadata(project, version).encode()
    entries[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: landfast\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    )
    points = project["entry-points"].items()
    entries[f"{info}/entry_points.txt"] = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in found.items()) for group, found in points
    ).encode()
    record = "".join(f"{name},sha256={digest(data)},{len(data)}\n" for name, data in entries.items())
    entries[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    directory.mkdir(parents=True, exist_ok=True)
    wheel = directory / f"landfast-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in entries.items():
            archive.writestr(zipfile.ZipInfo(name), data, compress_type=zipfile.ZIP_DEFLATED)
    return wheel


def metadata(project: dict, version: str) -> str:
    lines = [
        "Metadata-Version: 2.4",
        "Name: landfast",
        f"Version: {version}",
        f"Summary: {project['description']}",
        f"License-Expression: {project['license']}",
        f"Requires-Python: {project['requires-python']}",
    ]
    lines += [f"Classifier: {line}" for line in project["classifiers"]]
    for extra, requirements in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f"Requires-Dist: {requirement} ; extra == '{extra}'" for requirement in requirements]
    return "\n".join([*lines, "Description-Content-Type: text/markdown", "", (HERE / "README.md").read_text()])


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(main(Path(sys.argv[1]), Path(sys.argv[2])))
