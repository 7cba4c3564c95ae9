"""Public function that writes the report of a clustering as one HTML page."""

from partwise.apps.view.report import Stability, report_page, stability, write_report

__all__ = ["Stability", "report_page", "stability", "write_report"]
