"""Environment of the other packages, renewed if peers.txt or our versions change."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.settings import HERE
from benchmarks.store import write_text
from partwise._versions import LIBRARIES, versions

REQUIREMENTS = HERE / "peers.txt"
VENV = HERE / ".venv-peers"
# Each entry maps a package to its module and method for a loss; None means that it has no method.
FROBENIUS = {
    "scikit-learn cd": ("scikit-learn", "cd"),
    "scikit-learn mu": ("scikit-learn", "mu"),
    "nmf-rs ehals": ("nmf-rs", "ehals"),
    "nmf-torch halsvar": ("nmf-torch", "halsvar"),
    "torchnmf": ("torchnmf", "mu"),
    "RcppML": ("RcppML", "als"),
}
DIVERGENCE = {
    "scikit-learn mu": ("scikit-learn", "mu"),
    "nmf-rs brunet": ("nmf-rs", "brunet"),
    "nmf-torch mu": ("nmf-torch", "mu"),
    "torchnmf": ("torchnmf", "mu"),
}
DENSE_ONLY = {"nmf-rs", "nmf-torch"}  # packages that accept no sparse arrays


def groups(text: str) -> list[tuple[list[str], bool]]:
    """Return, by line of peers.txt, its packages and whether to install their dependencies."""
    found = []
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if words:
            plain = words[0] != "no-deps"
            found.append((words if plain else words[1:], plain))
    return found


def python_of(venv: Path) -> Path:
    return venv / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def ensure(venv: Path = VENV, *, log: bool = True) -> Path | None:
    """Return the Python interpreter of the other packages.

    Install the environment if it is missing or outdated, and return None if that fails.
    """
    text = REQUIREMENTS.read_text(encoding="utf-8")
    ours = {name: version for name, version in versions().items() if name in LIBRARIES}
    key = hashlib.sha256(f"{sys.version}{text}{ours}".encode()).hexdigest()
    stamp = venv / "partwise-peers"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == key:
        return python_of(venv)
    if log:
        print(f"Installing the peers into {venv.name} (once; a few minutes)", flush=True)
    shutil.rmtree(venv, ignore_errors=True)
    try:
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"The peers' environment could not be made: {error}")
        return None
    held = venv / "ours.txt"
    write_text(held, "".join(f"{name}=={version}\n" for name, version in ours.items()))
    for words, dependencies in groups(text):
        _install(python_of(venv), words, dependencies, held)
    write_text(stamp, key)
    return python_of(venv)


def _install(python: Path, words: list[str], dependencies: bool, held: Path) -> None:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "-q", "install"]
    command += ["--constraint", str(held)] if dependencies else ["--no-deps"]
    done = subprocess.run([*command, *words], capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        print(f"  {' '.join(words)}: {lines[-1] if lines else 'pip failed'}", flush=True)
