"""The configuration of the documentation site: ``make docs``."""

import inspect
import os
import re

import rpim

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the data of the gallery are small

project = "rpim"
author = "The rpim developers"
release = version = rpim.__version__
project_copyright = author

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["generated/**/*.ipynb", "generated/**/*.py", "generated/**/*.zip", "generated/**/*.json"]
templates_path = ["_templates"]
default_role = "code"
smartquotes = False  # "" is an empty label
highlight_language = "python"

# Markdown
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# The reference
autosummary_generate = True
autodoc_typehints = "none"  # numpydoc sections have the types
numpydoc_show_class_members = False  # the template of a class lists its members
numpydoc_class_members_toctree = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# The gallery: every script runs when the site is built, unless -D plot_gallery=0 is given.
sphinx_gallery_conf = {
    "examples_dirs": ["../examples/tutorials", "../examples/gallery"],
    "gallery_dirs": ["generated/tutorials", "generated/gallery"],
    "filename_pattern": ".",
    "copyfile_regex": r".*\.csv",
    "doc_module": ("rpim",),
    "backreferences_dir": "generated/backreferences",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "image_srcset": ["2x"],
    "show_signature": False,
    "write_computation_times": False,
}

# The pages: nothing is loaded from other hosts.
html_theme = "pydata_sphinx_theme"
html_title = "rpim"
html_static_path = ["_static"]
html_css_files = ["rpim.css"]
html_favicon = html_logo = "_static/logo.svg"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "rpim"},
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "navigation_with_keys": False,
    "header_links_before_dropdown": 8,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_context = {"default_mode": "auto"}
html_sidebars = {name: [] for name in ("index", "install", "guide", "method", "results", "search")}

# A doctest in a Markdown page stands without a fence, so that pytest can run it; Markdown would read it as a quotation.
DOCTEST = re.compile(r"^>>> .*\n(?:.+\n)*", re.MULTILINE)


def fence_doctests(app, docname, source):
    """Put each doctest of a Markdown page into a fenced block."""
    if app.env.doc2path(docname).suffix == ".md":
        source[0] = DOCTEST.sub(lambda block: f"```pycon\n{block[0]}```\n", source[0])


def skip_foreign(app, what, name, obj, skip, options):
    """Leave out members whose docstring is scikit-learn's: metadata routing and the like."""
    function = obj.fget if isinstance(obj, property) else inspect.unwrap(obj) if callable(obj) else obj
    module = getattr(function, "__module__", None) or ""
    return True if module.startswith("sklearn") else skip


def setup(app):
    app.connect("source-read", fence_doctests)
    app.connect("autodoc-skip-member", skip_foreign)
