"""nginx as the server of a shared cache, which verifies nothing, for tests."""

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
CONFIG = """
{user} daemon off; worker_processes 1; pid {root}/pid; error_log {root}/errors;
events {{}}
http {{
  access_log off; client_max_body_size 0; client_body_temp_path {root}/temps;
  proxy_temp_path {root}/p; fastcgi_temp_path {root}/f; uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;
  server {{
    listen 127.0.0.1:{port};
    location /cache/ {{ root {root}/www; dav_methods PUT; create_full_put_path on; }}
  }}
}}
"""


@contextlib.contextmanager
def running_nginx(root: Path) -> Iterator[tuple[str, Path]]:
    """Run nginx on a socket of ours, so that no other process can get its port; yield its URL and its folder."""
    if NGINX is None:
        pytest.skip("needs nginx (apt-get install nginx-light)")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        # Its worker would become another user, who may not write here.
        user = "" if os.getuid() else "user root;"
        (root / "conf").write_text(CONFIG.format(root=root, port=port, user=user))
        (root / "www" / "cache").mkdir(parents=True)
        environ = {**os.environ, "NGINX": f"{listener.fileno()};"}
        command = [NGINX, "-p", str(root), "-c", str(root / "conf"), "-e", str(root / "errors")]
        process = subprocess.Popen(command, env=environ, pass_fds=[listener.fileno()], stderr=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}/cache", root / "www" / "cache"
    finally:
        process.terminate()
        process.wait()
