"""Self-contained HTML pages: templates, and pictures that are embedded in them."""

from __future__ import annotations

from typing import Any

from partwise.report.pictures import convergence_uri, image_uri

__all__ = ["convergence_uri", "image_uri", "render"]


def render(template: str, **context: Any) -> str:
    """Fill one of the package's templates; whatever is put in is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("partwise.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**context)
