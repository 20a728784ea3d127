"""Attacks on files outside of the room: writing, removing, reading. Each writes to a victim of its own."""

import ctypes
import fcntl
import mmap
import os
import struct
import subprocess
from pathlib import Path

from attacking import attack, checked, system_call


def victim(world, name):
    return f"{world['victims']}/{name}"


def own(name):
    return Path(os.environ["TMPDIR"], name)


def own_file(name):
    return os.open(own(name), os.O_CREAT | os.O_RDWR, 0o600)


@attack("changed")
def write_over(world):
    Path(victim(world, "write_over")).write_text("taken")


@attack("changed")
def append(world):
    with open(victim(world, "append"), "a") as file:
        file.write("taken")


@attack("changed")
def truncate(world):
    os.truncate(victim(world, "truncate"), 0)


@attack("changed")
def remove(world):
    os.unlink(victim(world, "remove"))


@attack("changed")
def rename_away(world):
    os.rename(victim(world, "rename_away"), victim(world, "rename_away") + ".gone")


@attack("changed")
def rename_over(world):
    own("mine").write_text("taken")
    own("mine").rename(victim(world, "rename_over"))


@attack("changed")
def write_through_a_link(world):
    own("link").symlink_to(victim(world, "write_through_a_link"))
    own("link").write_text("taken")


@attack("changed")
def write_through_a_hard_link(world):
    os.link(victim(world, "write_through_a_hard_link"), own("hard"))
    own("hard").write_text("taken")


@attack("changed")
def write_by_dots(world):
    Path(os.getcwd() + "/" + "../" * 40 + victim(world, "write_by_dots")).write_text("taken")


@attack("changed")
def write_by_own_root(world):
    Path("/proc/self/root" + victim(world, "write_by_own_root")).write_text("taken")


@attack("changed")
def write_by_neighbours_root(world):
    Path(f"/proc/{world['neighbour']}/root" + victim(world, "write_by_neighbours_root")).write_text("taken")


@attack("changed")
def write_by_neighbours_folder(world):
    Path(f"/proc/{world['neighbour']}/cwd/victims/write_by_neighbours_folder").write_text("taken")


@attack("changed", plain="nobody")
def write_by_the_root_of_init(world):
    Path("/proc/1/root" + victim(world, "write_by_the_root_of_init")).write_text("taken")


@attack("changed")
def map_and_write(world):
    with open(victim(world, "map_and_write"), "r+b") as file, mmap.mmap(file.fileno(), 0) as pages:
        pages[0:5] = b"taken"


@attack("changed")
def send_a_file(world):
    own("source").write_text("taken")
    os.sendfile(os.open(victim(world, "send_a_file"), os.O_WRONLY), os.open(own("source"), os.O_RDONLY), 0, 5)


@attack("changed")
def remove_with_a_program(world):
    subprocess.run(["/bin/rm", "-f", victim(world, "remove_with_a_program")], check=False)


@attack("changed")
def write_with_a_shell(world):
    subprocess.run(["/bin/sh", "-c", f"echo taken > {victim(world, 'write_with_a_shell')}"], check=False)


@attack("changed")
def change_the_mode(world):
    os.chmod(victim(world, "change_the_mode"), 0o777)


@attack("changed")
def change_the_times(world):
    os.utime(victim(world, "change_the_times"), (1, 1))


@attack("changed", plain="root")
def change_the_owner(world):
    os.chown(victim(world, "change_the_owner"), 1234, 1234)


@attack("said", plain="root")
def change_the_mode_of_the_first_program(world):
    """What holds the step may be of this user, and was started outside: its mode stays what it is."""
    os.chmod("/proc/1/exe", os.stat("/proc/1/exe").st_mode & 0o7777)


@attack("said", plain="root")
def change_the_times_of_the_first_program(world):
    now = os.stat("/proc/1/exe")
    os.utime("/proc/1/exe", ns=(now.st_atime_ns, now.st_mtime_ns))


@attack("changed")
def change_the_group(world):
    os.chown(victim(world, "change_the_group"), -1, world["other_group"])


@attack("changed")
def set_the_user_id_bit(world):
    os.chmod(victim(world, "set_the_user_id_bit"), 0o4600)


@attack("changed")
def set_the_group_id_bit_of_a_readable_file(world):
    file = os.open(f"{world['readable']}/set_the_group_id_bit_of_a_readable_file", os.O_RDONLY)
    os.fchmod(file, 0o2600)


@attack("changed")
def set_a_flag(world):
    file = os.open(f"{world['readable']}/set_a_flag", os.O_RDONLY)
    fcntl.ioctl(file, 0x40086602, struct.pack("@l", 0x40))  # FS_IOC_SETFLAGS: not in dumps


@attack("changed")
def set_a_flag_the_other_way(world):
    file = os.open(f"{world['readable']}/set_a_flag_the_other_way", os.O_RDONLY)
    fcntl.ioctl(file, 0x401C5820, struct.pack("@5I8x", 0x80, 0, 0, 0, 0))  # FS_IOC_FSSETXATTR


@attack("changed")
def set_a_flag_by_path(world):
    path = os.fsencode(victim(world, "set_a_flag_by_path"))
    attributes = struct.pack("=QIIII", 0x80, 0, 0, 0, 0)
    system_call(469, 469, ctypes.c_int(-100), path, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0))


@attack("said")
def reserve_the_disk(world):
    """Take blocks without writing them: gigabytes in no time, before anything could be noticed."""
    system_call(285, 47, ctypes.c_int(own_file("reserved")), ctypes.c_int(0), ctypes.c_long(0), ctypes.c_long(1 << 16))


@attack("said")
def reserve_the_disk_by_a_request(world):
    asked = struct.pack("@hhqqiI16x", 0, 0, 0, 1 << 16, 0, 0)
    fcntl.ioctl(own_file("reserved_by_a_request"), 0x4030582A, asked)  # FS_IOC_RESVSP64


@attack("said")
def keep_others_from_opening(world):
    file = os.open(f"{world['readable']}/keep_others_from_opening", os.O_RDONLY)
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)


@attack("changed")
def set_an_attribute(world):
    os.setxattr(victim(world, "set_an_attribute"), "user.taken", b"1")


@attack("changed", plain="root")
def open_by_handle(world):
    handle = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0) + b"\0" * 128)
    mount = ctypes.c_int()
    path = os.fsencode(victim(world, "open_by_handle"))
    system_call(303, 264, ctypes.c_int(-100), path, handle, ctypes.byref(mount), ctypes.c_int(0))
    root = os.open(world["victims"], os.O_RDONLY)
    os.write(system_call(304, 265, ctypes.c_int(root), handle, ctypes.c_int(os.O_WRONLY)), b"taken")


@attack("changed", plain="root")
def leave_by_chroot(world):
    folder = os.open("/", os.O_RDONLY)
    own("inner").mkdir()
    os.chroot(own("inner"))
    os.fchdir(folder)
    for _ in range(40):
        os.chdir("..")
    os.chroot(".")
    Path(victim(world, "leave_by_chroot")).write_text("taken")


def _append_to(place):
    def write(world):
        with open(world["places"][place], "a") as file:
            file.write("taken")

    return write


for _place in ("project", "git", "store", "pipeline", "home", "startup"):
    attack("changed", name=f"write_to_{_place}")(_append_to(_place))


def _make_in(folder):
    return lambda world: Path(folder, world["unique"]).write_text("taken")


_PUBLIC = ("/tmp", "/var/tmp", "/dev/shm")
MADE_IN = (*_PUBLIC, "/", "/run", "/etc", "/usr/local/bin", "/usr/lib", "/root", "/var/spool/cron", "/dev", "/home")
for _folder in MADE_IN:
    _name = f"make_in_{_folder.strip('/').replace('/', '_') or 'the_top'}"
    attack("made", name=_name, plain="any" if _folder in _PUBLIC else "nobody")(_make_in(_folder))


@attack("made_in_other_room")
def make_in_another_sandbox_dir(world):
    Path(world["other_room"], "work", "taken").write_text("taken")


@attack("made_in_rooms")
def make_beside_the_sandbox_dir(world):
    Path(world["rooms"], "taken").write_text("taken")


# ---- reading ----------------------------------------------------------------------------------------------------


def _read(place):
    return lambda world: Path(world["places"][place]).read_text()


CREDENTIALS = (
    *(".aws/credentials", ".netrc", ".npmrc", ".pypirc", ".git-credentials", ".cargo/credentials.toml"),
    *(".docker/config.json", ".config/gh/hosts.yml", ".config/gcloud/credentials.db", ".kube/config"),
    *(".m2/settings.xml", ".gradle/gradle.properties", ".bundle/config", ".condarc"),
    # Beside the programs that a step sees.
    *(".rustup/toolchains/stable-x86_64/etc/credentials.toml", ".nvm/versions/node/v22.1.0/etc/npmrc"),
    *(".nvm/versions/node/v22.1.0/lib/node_modules/npm/.npmrc", "miniconda3/.condarc", "miniconda3/conda-meta/x.json"),
    *(".local/share/uv/tools/lint/uv-receipt.toml", ".local/bin/token", "opt/x/bin/.netrc", ".nvm/.npmrc"),
)
for _place in ("project", "store", "home", "key", "shared_memory", *CREDENTIALS):
    attack("secret", name=f"read_{_place.replace('/', '_')}")(_read(_place))


@attack("secret")
def read_an_attribute(world):
    return os.getxattr(victim(world, "read_an_attribute"), "user.secret").decode()


@attack("secret")
def list_a_folder(world):
    return " ".join(os.listdir(world["listed"]))


@attack("said")
def look_at_a_file(world):
    os.stat(victim(world, "look_at_a_file"))


@attack("said")
def watch_a_folder(world):
    libc = ctypes.CDLL(None, use_errno=True)
    checked(libc.inotify_add_watch(checked(libc.inotify_init1(0)), os.fsencode(world["victims"]), 0xFFF))


@attack("secret")
def read_another_sandbox_dir(world):
    return Path(world["other_room"], "work", "secret").read_text()


@attack("secret")
def read_with_a_program(world):
    return subprocess.run(["/bin/cat", world["places"]["key"]], check=False, capture_output=True, text=True).stdout


@attack("secret", plain="nobody")
def read_by_the_root_of_init(world):
    return Path("/proc/1/root" + world["places"]["key"]).read_text()


@attack("secret")
def read_by_a_link(world):
    own("way").symlink_to(world["places"]["key"])
    return own("way").read_text()
