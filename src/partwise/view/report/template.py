"""Templates, filled in."""

from __future__ import annotations

from typing import Any


def render(template: str, **context: Any) -> str:
    """Fill one of the package's templates; whatever is put in is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("partwise.view.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**context)
