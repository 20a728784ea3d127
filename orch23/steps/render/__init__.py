"""The step kind `render`: render a Jinja2 template."""
