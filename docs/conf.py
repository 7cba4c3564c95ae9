"""Sphinx settings. `make docs` builds into build/docs; warnings are errors."""

import os
import shutil
import sys
import warnings
from pathlib import Path

from sklearn.exceptions import ConvergenceWarning

import partwise
from partwise.estimators.methods import ESTIMATORS, METHODS

os.environ.setdefault("MPLBACKEND", "Agg")

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "Partwise"
author = "The Partwise developers"
copyright = "The Partwise developers"
version = release = partwise.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "offline_math",
    "walk",
]
html_math_renderer = "mathml"
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
# Other pages include the last two.
exclude_patterns = ["gallery", "images/README*", "auto_gallery/**/*.ipynb"]
exclude_patterns += ["api/estimators.rst", "how_to/methods.rst"]
default_role = "py:obj"
templates_path = ["_templates"]

autosummary_generate = ["api/index", "api/estimators"]
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

html_theme = "pydata_sphinx_theme"
html_title = f"Partwise {version}"
html_theme_options = {
    "github_url": "https://github.com/partwise/partwise",
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "header_links_before_dropdown": 6,
}
html_sidebars = {"index": [], "papers": [], "papers/*": []}
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["partwise.css"]
# A copied example contains the commands without their prompts and output.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "subsection_order": [f"gallery/{name}" for name in ("1-quickstart", "2-choices", "3-papers")],
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "matplotlib_animations": False,
    "copyfile_regex": "",
}

# Examples use loose tolerances to build quickly, so convergence warnings are expected.
warnings.filterwarnings("ignore", category=ConvergenceWarning)


def collect_results():
    """Copy the benchmark results, if `make bench` has written any."""
    found = HERE / "results"
    shutil.rmtree(found, ignore_errors=True)
    found.mkdir()
    source = HERE.parent / "benchmarks" / "results"
    pages = sorted(source.glob("*.md")) if source.is_dir() else []
    for plots in source.glob("plots-*") if pages else []:
        shutil.copytree(plots, found / plots.name)
    for file in [*pages, *source.glob("*.svg")]:
        shutil.copy(file, found)
    lines = ["Benchmark results", "=================", ""]
    if pages:
        lines += [".. toctree::", "   :maxdepth: 1", "", *(f"   {page.stem}" for page in pages)]
    else:
        lines.append("This documentation was built without results. Run ``make bench`` first.")
    (found / "index.rst").write_text("\n".join(lines) + "\n", encoding="utf-8")


collect_results()


def write_methods():
    """Write the table of methods and the list of estimators."""
    rows = [".. list-table::", "   :header-rows: 1", "   :widths: 50 38 12", ""]
    rows += ["   * - You have, and want", "     - Python", "     - ``--method``"]
    for method in METHODS.values():
        called = f"`{method.in_python} <partwise.{method.estimator}>`"
        rows += [f"   * - {method.when}", f"     - {called}", f"     - ``{method.name}``"]
    (HERE / "how_to" / "methods.rst").write_text("\n".join(rows) + "\n", encoding="utf-8")
    lines = [
        ".. currentmodule:: partwise",
        "",
        ".. autosummary::",
        "   :toctree: generated/",
        "   :nosignatures:",
        "",
    ]
    lines += [f"   {name}" for name in ESTIMATORS]
    (HERE / "api" / "estimators.rst").write_text("\n".join(lines) + "\n", encoding="utf-8")


write_methods()


def setup(app):
    """Remove references to scikit-learn's own pages from inherited docstrings."""

    def without_labels(app, what, name, obj, options, lines):
        lines[:] = [line.replace(":ref:`accuracy <accuracy_score>`", "accuracy") for line in lines]

    app.connect("autodoc-process-docstring", without_labels)
