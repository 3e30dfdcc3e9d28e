"""mountinfo as the kernel writes it: escapes, optional fields, mounts over mounts."""

from __future__ import annotations

from pathlib import Path

from stoker.node.mountinfo import MountEntry, mounts, parse_mountinfo

TEXT = rb"""22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 22 0:35 / /mnt/with\040space rw,nosuid shared:1 master:2 - fuse.stoker default/a\134b ro,user_id=0
41 22 0:36 / /mnt/tab\011line\012back\134040 rw - fuse.stoker s rw
42 22 0:37 / /mnt/caf@ rw - tmpfs none
garbage
43 22 0:38 / /dash\040-\040dash rw - tmpfs a - b
""".replace(b"@", b"\xc3\xa9-\xff")


def test_what_the_kernel_writes() -> None:
    found = list(parse_mountinfo(TEXT))
    assert found[1] == MountEntry("/mnt/with space", "fuse.stoker", "default/a\\b", "0:35")
    assert [entry.mountpoint for entry in found[2:]] == [
        "/mnt/tab\tline\nback\\040",
        "/mnt/café-\udcff",
        "/dash - dash",
    ]


def test_the_one_on_top_is_the_last(tmp_path: Path) -> None:
    file = tmp_path / "mountinfo"
    file.write_bytes(b"1 1 0:1 / /a rw - ext4 x rw\n2 1 0:2 / /a rw - fuse.stoker y rw\n")
    assert [entry.source for entry in mounts(str(file))] == ["x", "y"]


def test_this_machine() -> None:
    assert any(entry.mountpoint == "/proc" and entry.fstype == "proc" for entry in mounts())
