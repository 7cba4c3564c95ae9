"""Write the conda recipe with the checksum of the sdist: python conda/fill_recipe.py DIST."""

import hashlib
import re
import sys
from pathlib import Path


def filled(recipe: str, sdist: Path) -> str:
    """Return the recipe with the version and the SHA-256 checksum of this sdist."""
    version = sdist.name.removeprefix("partwise-").removesuffix(".tar.gz")
    if f'version: "{version}"' not in recipe:
        raise SystemExit(f"conda/recipe.yaml is not for version {version}.")
    checksum = hashlib.sha256(sdist.read_bytes()).hexdigest()
    return re.sub(r'sha256: "[0-9a-f]{64}"', f'sha256: "{checksum}"', recipe)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (archive,) = folder.glob("partwise-*.tar.gz")
    text = filled(Path(__file__).with_name("recipe.yaml").read_text("utf-8"), archive)
    (folder / "recipe.yaml").write_text(text, "utf-8")
