"""Print the lowest versions that pyproject.toml allows, as constraints for pip.

``make test-oldest`` runs the suite on them. Tools of the tests and of the documentation have no
supported lowest version and are left out.
"""

import re
import tomllib
from pathlib import Path

#: Extras that are left out: they have no supported lowest version, or the tests do not use them.
OTHERS = ("all", "docs", "gpu", "test")


def constraints(text: str) -> list[str]:
    """Return ``name==lowest`` for each ``name>=lowest`` of the package and its extras."""
    project = tomllib.loads(text)["project"]
    extras = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *(need for name in extras if name not in OTHERS for need in extras[name]),
    ]
    found = []
    for need in wanted:
        name, lowest = re.fullmatch(r"([\w.-]+)(?:\[[\w,]+\])?>=([\d.]+)", need).groups()
        found.append(f"{name}=={lowest}")
    return found


if __name__ == "__main__":
    print("\n".join(constraints((Path(__file__).parents[1] / "pyproject.toml").read_text())))
