"""Formulas as MathML at build time: browsers draw them without a script and without a network."""

from latex2mathml.converter import convert
from sphinx.writers.html5 import HTML5Translator


def _inline(self: HTML5Translator, node):
    from docutils import nodes

    self.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(self: HTML5Translator, node):
    from docutils import nodes

    self.body.append(f'<div class="formula">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
