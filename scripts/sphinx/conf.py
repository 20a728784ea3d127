"""Configuration of Sphinx; `scripts/docs_site.py` copies it beside the pages."""

project = "orch23"
author = "The orch23 authors"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "orch23"
# Neither fonts nor scripts of other servers: everything that a page needs is in the site.
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_permalinks_icon = "#"
nitpicky = True
# The anchors that GitHub gives to headings.
myst_heading_anchors = 4
