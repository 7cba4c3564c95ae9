"""The report of a clustering, one self-contained page."""

from partwise.view.report import Stability, report_page, stability, write_report

__all__ = ["Stability", "report_page", "stability", "write_report"]
