"""How the site is built: `make docs` writes build/site, and warnings are errors."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from docutils import nodes

import newcomer

# Kernels of notebooks have a folder of their own: no settings of the person who builds, and quiet logs.
os.environ["IPYTHONDIR"] = tempfile.mkdtemp()
profile = Path(os.environ["IPYTHONDIR"]) / "profile_default"
profile.mkdir(parents=True, exist_ok=True)
(profile / "ipython_kernel_config.py").write_text("get_config().IPKernelApp.log_level = 'ERROR'\n")
sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "newcomer"
author = copyright = "The newcomer authors"
version = release = newcomer.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "generated",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",
    "sphinx_copybutton",
]
exclude_patterns = ["_extensions", "pictures"]

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
smartquotes = False
highlight_language = "none"  # of blocks that do not say theirs
myst_heading_anchors = 4
myst_links_external_new_tab = False

nb_execution_mode = "auto"
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_type_aliases = {name: name for name in ("ArrayLike", "Floats", "Ints", "Bools", "Ids")}
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"  # the sidebar has no room for them

html_theme = "pydata_sphinx_theme"
html_title = "newcomer"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["llms.txt"]  # at the root of the site
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "show_prev_next": True,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
    "show_version_warning_banner": False,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "secondary_sidebar_items": ["page-toc"],
}

SHORT = 24  # characters of code that is not broken into lines


def mark_short_code(app: Any, tree: Any, page: str) -> None:
    """Options are kept in one piece; pictures that a notebook made have something to read for who cannot see them."""
    for code in tree.findall(nodes.literal):
        if len(code.astext()) <= SHORT:
            code["classes"].append("short")
    for picture in tree.findall(nodes.image):
        picture.setdefault("alt", "What the code above draws")


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("doctree-resolved", mark_short_code)
