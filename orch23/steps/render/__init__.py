"""The kind `render`: render a template."""
