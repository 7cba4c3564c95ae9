"""The command ``encoders``, and the question before weights are downloaded."""

from __future__ import annotations

import json
import sys
from typing import Any

import typer
from rich.console import Console

from partwise.apps.cli import outputs
from partwise.apps.cli.options import Asked
from partwise.io.encoders import REGISTRY, find_encoder, recommended
from partwise.io.languages import language_notes
from partwise.io.samples import Samples


def run_encoders(asked: Asked) -> None:
    """Print the table of pretrained encoders."""
    if asked.as_json:
        fields = "name kind recommended languages megabytes dimensions licence extra model revision"
        rows = [
            {**{name: getattr(e, name) for name in fields.split()}, "downloaded": e.is_there}
            for e in REGISTRY.values()
        ]
        print(json.dumps(rows, indent=2))
        return
    table = outputs.plain_table("--encoder!", "for", "MB", "extra!")
    for e in REGISTRY.values():
        about = ", ".join(filter(None, (e.kind, e.languages, e.recommended)))
        table.add_row(e.name, about, str(e.megabytes), e.extra)
    console = Console(markup=False, highlight=False)
    console.print(table)
    console.print("Install an extra with pip install 'partwise[EXTRA]'.")


def ask_for_download(reading: dict[str, Any]) -> None:
    """Ask on a terminal whether the weights of ``--encoder`` may be downloaded."""
    if reading["download"] or reading["offline"]:
        return
    encoder = find_encoder(reading["encoder"])
    if encoder.is_there or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    reading["download"] = typer.confirm(
        f"Download {encoder.megabytes} MB from huggingface.co/{encoder.model} ({encoder.licence})?",
        err=True,
    )


def language_advice(samples: Samples, given: Any) -> list[str]:
    """Return a warning if all labels of a class are in one of several languages.

    A classifier could then learn the language instead of the class.
    """
    if samples.whole_texts is None or given is None:
        return []
    notes = language_notes(samples.whole_texts, given)
    used = REGISTRY.get(str(samples.recipe.get("encoder", "")))
    if notes and (used is None or used.recommended != "multilingual"):
        name = recommended("texts", "multilingual")
        notes[0] += f" --encoder {name} adds embeddings that are alike in all languages."
    return notes
