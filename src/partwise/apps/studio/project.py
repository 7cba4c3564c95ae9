"""Folder of a studio project, which keeps labels, part weights, map and progress."""

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
from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise.apps.studio.journal import Journal
from partwise.apps.studio.part_settings import PartSettings
from partwise.apps.studio.predictions import Predictor
from partwise.apps.studio.reviews import Point
from partwise.io import Samples
from partwise.persistence.atomic import whole_file, write_whole

MANIFEST = "project.json"
FORMAT = 2
#: Minimum number of characters of the secret that the access cookie is derived from.
SECRET = 32


class Project:
    """Folder with the journal, the part weights, the map and a hash of the data.

    If samples were added to or removed from the data, labels keep their ids, and ``news`` reports
    it. Part weights are then computed again. Settings of parts are dropped, because the parts are
    new.

    Raises
    ------
    ValueError
        The folder belongs to other data, or another studio has opened it.
    """

    def __init__(self, folder: str | Path, samples: Samples) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self.folder / ".lock")
        self.journal, self.parts = self.folder / "journal.jsonl", self.folder / "parts.partwise"
        self._map, self._progress = self.folder / "map.npz", self.folder / "progress.json"
        self._connection = self.folder / ".connection.json"
        self.entries_in_parts = self.compared = 0
        self.settings = PartSettings()
        self.news = ""
        try:
            self._check(read_manifest(self.folder), samples)
        except ValueError:
            self._lock.close()
            raise

    def _check(self, manifest: dict[str, Any], samples: Samples) -> None:
        """Raise ValueError if the project's labels may belong to other samples."""
        if manifest.get("format", FORMAT) != FORMAT:
            raise ValueError(f"{self.folder} was created by another version of Partwise.")
        self.entries_in_parts = int(manifest.get("entries", 0))
        self.compared = int(manifest.get("colours_compared", 0))
        if manifest.get("data") != fingerprint(samples):
            if manifest:
                self._check_change(manifest, samples)
            self.describe(samples)

    def _check_change(self, manifest: dict[str, Any], samples: Samples) -> None:
        """Raise ValueError if labels cannot be matched to samples after data changed."""
        had, source = int(manifest.get("samples") or 0), str(manifest.get("source"))
        change = f"{had} samples of {source}, here {samples.n_samples} of {samples.source}"
        other = f"{self.folder} is the project of other data ({change}); "
        if Path(source).name != Path(samples.source).name:
            raise ValueError(f"{other}choose another folder with --project.")
        if samples.ids[:had] == [str(i) for i in range(len(samples.ids[:had]))]:
            # Row numbers identify samples only if new rows were added at the end.
            beginning = samples.n_samples >= had and manifest.get("beginning")
            if not beginning or _beginning(samples, had) != beginning:
                raise ValueError(
                    f"{other}its rows have no ids and may have changed, so labels cannot be "
                    "matched with them. Select a column of ids with --id-column, or start a new "
                    "project with --project."
                )
        with contextlib.closing(Journal(self.journal)) as journal:
            self.entries_in_parts, labels = len(journal.entries), set(journal.labels)
        gone = len(labels.difference(samples.ids))
        if 2 * gone > len(labels):
            raise ValueError(
                f"{other}{gone} of {len(labels)} labels have no sample; choose another folder."
            )
        missing = f"; {gone} labelled samples are missing" if gone else ""
        self.news = (
            f"The data changed ({change}): {len(labels) - gone} labels stay with their ids"
            f"{missing}. Part weights are computed again, without your settings of parts."
        )

    def describe(self, samples: Samples) -> None:
        """Write a description of the data, and remove part weights of other data."""
        for path in (self.parts, self._map):
            path.unlink(missing_ok=True)
        self.record(
            format=FORMAT,
            source=samples.source,
            samples=samples.n_samples,
            data=fingerprint(samples),
            beginning=_beginning(samples, samples.n_samples),
            entries=self.entries_in_parts,
            rgb=samples.recipe.get("rgb"),
        )

    def keep_random_first(self, n: int) -> int:
        """Record and return the number of random samples to label first.

        If ``n`` is 0, the number of an earlier start is returned.
        """
        if n:
            self.record(random_first=n)
        return n or int(read_manifest(self.folder).get("random_first", 0))

    def record(self, **content: Any) -> None:
        """Add values to the description of the project."""
        content = {**read_manifest(self.folder), **content}
        write_whole(self.folder / MANIFEST, json.dumps(content, indent=1), force=True)

    def points(self) -> np.ndarray | None:
        """Return the map of the saved part weights, or None if it is missing or outdated."""
        try:
            with np.load(self._map, allow_pickle=False) as file:
                if str(file["parts"]) != _digest(self.parts):
                    return None  # the studio was killed between writing the two files
                self.settings = PartSettings.from_json(json.loads(str(file["settings"])))
                self.entries_in_parts = int(file["entries"])
                return np.asarray(file["points"], dtype=np.float32)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None

    def save(self, points: np.ndarray, predictor: Predictor, *, entries: int) -> None:
        """Save part weights and map for the next start.

        ``entries`` is the number of journal entries that they include. The map contains a hash of
        the part weights, which shows if the studio was killed between writing the two files.
        """
        settings = json.dumps(predictor.settings.to_json())
        predictor.save(self.parts)
        with whole_file(self._map) as file:
            digest = _digest(self.parts)
            np.savez(file, points=points, entries=entries, settings=settings, parts=digest)
        self.entries_in_parts = entries

    def history(self) -> list[Point]:
        """Return the expected accuracies that earlier reviews computed."""
        try:
            rows = json.loads(self._progress.read_text(encoding="utf-8"))
            return [Point(**row) for row in rows]
        except (OSError, ValueError, TypeError):
            return []

    def save_history(self, history: list[Point]) -> None:
        """Write the expected accuracies of all reviews."""
        write_whole(self._progress, json.dumps([asdict(point) for point in history]), force=True)

    def connection(self) -> tuple[str, int]:
        """Return the cookie secret and the port of the last start.

        With them, open browser windows stay valid.
        """
        try:
            found = json.loads(self._connection.read_text(encoding="utf-8"))
            secret, port = found["secret"], found["port"]
            if isinstance(secret, str) and len(secret) >= SECRET and isinstance(port, int):
                return secret, port if 0 < port < 65536 else 0
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return secrets.token_urlsafe(SECRET), 0

    def save_connection(self, secret: str, port: int) -> None:
        """Save cookie secret and port for the next start, readable only by this user."""
        with contextlib.suppress(OSError), whole_file(self._connection) as file:
            os.chmod(file.name, 0o600)
            file.write(json.dumps({"secret": secret, "port": port}).encode())

    def close(self) -> None:
        """Release the lock of the project folder."""
        self._lock.close()


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """Return the description in a project folder, or an empty dictionary."""
    path = Path(folder) / MANIFEST
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def fingerprint(samples: Samples) -> str:
    """Return a hash of the data: ids, shapes, and sums of rows and columns.

    The sums are rounded to six digits.
    """
    digest = hashlib.sha256("\0".join(samples.ids).encode())
    digest.update(repr((samples.X.shape, samples.kind)).encode())
    views = [samples.X] if samples.also is None else [samples.X, samples.also]
    for X, axis in itertools.product(views, (0, 1)):
        sums = X.sum(axis=axis)
        sums = np.asarray(sums.todense() if sp.issparse(sums) else sums, dtype=np.float64).ravel()
        digest.update(" ".join(f"{value:.5e}" for value in sums).encode())
    return digest.hexdigest()


def _beginning(samples: Samples, n: int) -> str:
    """Return a hash of the first n texts, or "" if the samples are not texts."""
    texts = samples.whole_texts
    return "" if texts is None else hashlib.sha256("\0".join(texts[:n]).encode()).hexdigest()


def _digest(path: Path) -> str:
    """Return the SHA-256 hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _lock(path: Path) -> Any:
    """Return an open file that is locked until the process ends.

    The lock prevents two studios from using one project.
    """
    file = path.open("a+b")
    try:
        if os.name == "nt":  # pragma: no cover - the tests run on POSIX
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise ValueError(
            f"Another studio has opened {path.parent}; close it, or choose another --project."
        ) from None
    return file
