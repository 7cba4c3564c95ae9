"""A folder that keeps what was computed and what a person said, so that a start is immediate."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import secrets
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from partwise.apps.studio.journal import Journal
from partwise.apps.studio.reviews import Point
from partwise.io.samples import Samples
from partwise.persistence.atomic import whole_file, write_whole

if TYPE_CHECKING:
    from partwise.apps.studio.answers import Judge

MANIFEST = "project.json"
JOURNAL = "journal.jsonl"
MAP = "map.npz"
CODES = "codes.partwise"
PROGRESS = "progress.json"
DOOR = ".door.json"
FORMAT = 1


class Project:
    """A folder: the journal, the map's coordinates, and the name of the data that they are of.

    Data of the same name that grew or shrank keep their labels, by id; ``news`` says so. Codes are
    computed anew then, and what was asked for parts, which have other numbers, is let go.

    Raises
    ------
    ValueError
        The folder belongs to other data, or another studio has it open.
    """

    def __init__(self, folder: str | Path, samples: Samples) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self.folder / ".lock")
        self.fingerprint = fingerprint(samples)
        self.acts_in_codes = 0
        self.wishes: dict[str, Any] = {}
        self.news = ""
        manifest = self.folder / MANIFEST
        try:
            known = json.loads(manifest.read_text(encoding="utf-8")) if manifest.exists() else {}
            self._check(known, samples)
        except ValueError:
            self._lock.close()
            raise
        if known.get("data") != self.fingerprint:
            content = {
                "format": FORMAT,
                "source": samples.source,
                "samples": samples.n_samples,
                "data": self.fingerprint,
                "beginning": _beginning(samples, samples.n_samples),
                "acts": self.acts_in_codes,
            }
            write_whole(manifest, json.dumps(content, indent=1), force=True)

    def _check(self, manifest: dict[str, Any], samples: Samples) -> None:
        """Whether the kept labels are of these samples; ValueError where that is not sure."""
        if not manifest:
            return
        if manifest.get("format") != FORMAT:
            raise ValueError(f"{self.folder} is the project of another version of partwise.")
        self.acts_in_codes = int(manifest.get("acts", 0))
        if manifest.get("data") == self.fingerprint:
            return
        had, source = manifest.get("samples"), manifest.get("source")
        change = f"{had} samples of {source}, here {samples.n_samples} of {samples.source}"
        other = f"{self.folder} is the project of other data ({change}); "
        if Path(str(source)).name != Path(samples.source).name:
            raise ValueError(f"{other}--project names another folder.")
        if samples.ids[:had] == [str(i) for i in range(len(samples.ids[:had]))]:
            # row numbers are names only as long as rows were added behind the others
            kept = samples.n_samples >= int(had or 0) and manifest.get("beginning")
            if not kept or _beginning(samples, int(had or 0)) != kept:
                raise ValueError(
                    f"{other}its rows are numbered and may be others now, so that no label can be "
                    "joined to them. --id-column names rows; --project begins anew."
                )
        with contextlib.closing(Journal(self.journal)) as journal:
            acts, labels = len(journal.acts), set(journal.labels)
        gone = len(labels.difference(samples.ids))
        if 2 * gone > len(labels):
            raise ValueError(
                f"{other}{gone} of the {len(labels)} labelled samples are not there. --project "
                "names another folder."
            )
        for name in (CODES, MAP):
            (self.folder / name).unlink(missing_ok=True)
        self.acts_in_codes = acts
        lost = f"; {gone} labelled samples are not there any more" if gone else ""
        self.news = (
            f"The data changed ({change}): {len(labels) - gone} labels stay with their ids{lost}. "
            "Codes are computed anew, without what was asked for parts."
        )

    @property
    def journal(self) -> Path:
        return self.folder / JOURNAL

    @property
    def codes(self) -> Path:
        """The file with graph and codes."""
        return self.folder / CODES

    def points(self) -> np.ndarray | None:
        """The map of the kept codes; None where there is none that can be read, or of others."""
        try:
            with np.load(self.folder / MAP, allow_pickle=False) as file:
                if "codes" in file and str(file["codes"]) != _digest(self.codes):
                    return None  # killed between the two files
                acts = int(file["acts"])
                wishes = json.loads(str(file["wishes"])) if "wishes" in file else {}
                points = np.asarray(file["points"], dtype=np.float32)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None
        self.acts_in_codes, self.wishes = acts, wishes
        return points

    def keep(self, points: np.ndarray, judge: Judge, *, acts: int) -> None:
        """Keep codes and map for the next start; ``acts`` of the journal are in them.

        The map names the codes that it is of, so that a kill in between is seen.
        """
        wishes = json.dumps(judge.wishes.content())
        judge.keep(self.codes)
        with whole_file(self.folder / MAP) as file:
            np.savez(file, points=points, acts=acts, wishes=wishes, codes=_digest(self.codes))
        self.acts_in_codes = acts

    def history(self) -> list[Point]:
        """What reviews said so far."""
        try:
            rows = json.loads((self.folder / PROGRESS).read_text(encoding="utf-8"))
            return [Point(**row) for row in rows]
        except (OSError, ValueError, TypeError):
            return []

    def keep_history(self, history: list[Point]) -> None:
        content = json.dumps([asdict(point) for point in history])
        write_whole(self.folder / PROGRESS, content, force=True)

    def door(self) -> tuple[str, int]:
        """The secret of the cookies and the last port, so that open windows survive a restart."""
        try:
            found = json.loads((self.folder / DOOR).read_text(encoding="utf-8"))
            secret, port = found["secret"], found["port"]
            if isinstance(secret, str) and len(secret) >= 32 and isinstance(port, int):
                return secret, port if 0 < port < 65536 else 0
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return secrets.token_urlsafe(32), 0

    def keep_door(self, secret: str, port: int) -> None:
        """For the next start; readable by nobody else. Without it, windows have to come anew."""
        with contextlib.suppress(OSError), whole_file(self.folder / DOOR) as file:
            os.chmod(file.name, 0o600)
            file.write(json.dumps({"secret": secret, "port": port}).encode())

    def close(self) -> None:
        self._lock.close()


def fingerprint(samples: Samples) -> str:
    """A hash of ids, shape and the sums of rows and columns, to six digits; of both views."""
    digest = hashlib.sha256("\0".join(samples.ids).encode())
    digest.update(repr((samples.X.shape, samples.kind)).encode())
    views = [samples.X] if samples.also is None else [samples.X, samples.also]
    for X, axis in itertools.product(views, (0, 1)):
        sums = X.sum(axis=axis)
        sums = np.asarray(sums.todense() if sp.issparse(sums) else sums, dtype=np.float64).ravel()
        digest.update(" ".join(f"{value:.5e}" for value in sums).encode())
    return digest.hexdigest()


def _beginning(samples: Samples, n: int) -> str:
    """A hash of the first texts; "" where what is there depends on all samples, as scales do."""
    texts = samples.whole_texts
    return "" if texts is None else hashlib.sha256("\0".join(texts[:n]).encode()).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _lock(path: Path) -> Any:
    """An open file that nobody else has locked; the lock goes with the process."""
    file = path.open("a+b")
    try:
        if os.name == "nt":  # pragma: no cover - no such machine in the tests
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise ValueError(
            f"Another studio has {path.parent} open; close it, or name another folder with "
            "--project."
        ) from None
    return file
