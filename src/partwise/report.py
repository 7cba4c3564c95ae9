"""The report of a clustering, one self-contained page."""

from partwise.apps.view.report import Stability, report_page, stability, write_report

__all__ = ["Stability", "report_page", "stability", "write_report"]
