"""Self-contained HTML pages: reports of clusterings and classifications."""

from __future__ import annotations

from partwise.apps.view.report.page import report_page, write_report
from partwise.apps.view.report.pictures import convergence_uri, image_uri, render
from partwise.apps.view.report.stability import Stability, stability

__all__ = [
    "Stability",
    "convergence_uri",
    "image_uri",
    "render",
    "report_page",
    "stability",
    "write_report",
]
