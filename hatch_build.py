"""README for package indexes: its links lead into this tree, where an index has none."""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Readme(MetadataHookInterface):
    """README.md with links to the project's address, as `[project.urls]` has it."""

    def update(self, metadata):
        home = metadata["urls"]["Source"]
        raw = home.replace("//github.com", "//raw.githubusercontent.com")

        def lead(link):
            picture = link[1].endswith((".png", ".svg"))
            return f"]({raw}/main/{link[1]})" if picture else f"]({home}/blob/main/{link[1]})"

        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = re.sub(r"\]\((?!https?:|#)([^)]+)\)", lead, text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
